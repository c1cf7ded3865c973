"""The throughput of real runs, held against a clock that the loop knows nothing of."""

from __future__ import annotations

import pytest

WARMUP, STEPS, BATCH = 10, 90, 3  # a step too many or too few would be 1.25 % of the window


@pytest.mark.parametrize("wait", ["0", "0.005"])
def test_the_throughput_is_that_of_an_outside_clock(double, tmp_path, wait):
    """The device itself notes when each step ends. Within 1 %, waits for data included."""
    (tmp_path / "data" / "cat").mkdir(parents=True)
    for number in range(BATCH):
        (tmp_path / "data" / "cat" / f"{number}.jpg").touch()  # the double looks into no file
    document = double.result(
        *("resnet50", "--data", tmp_path / "data", "--batch-size", BATCH, "--steps", STEPS, "--warmup-steps", WARMUP),
        DOUBLE_STAMPS=str(tmp_path / "stamps"),
        DOUBLE_WAIT_SECONDS=wait,
    )
    stamps = [float(line) for line in (tmp_path / "stamps").read_text().splitlines()]
    assert len(stamps) == STEPS
    seconds = stamps[-1] - stamps[WARMUP - 1]
    assert document["metrics"]["throughput"]["value"] == pytest.approx(BATCH * (STEPS - WARMUP) / seconds, rel=0.01)
    assert document["phases"]["steady"]["seconds"] == pytest.approx(seconds, rel=0.01)
