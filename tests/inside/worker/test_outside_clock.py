"""The throughput of real runs, held against a clock that the loop knows nothing of."""

from __future__ import annotations

import itertools

import pytest

WARMUP, STEPS, BATCH = 10, 90, 3  # a step too many or too few would be 1.25 % of the window


ATTEMPTS = 3  # a busy host may stop either clock for more than a step; a wrong window is wrong in every run


@pytest.mark.parametrize("wait", ["0", "0.005"])
def test_the_throughput_is_that_of_an_outside_clock(double, tmp_path, wait):
    """The device itself notes when each step ends. Within 1 %, waits for data included."""
    (tmp_path / "data" / "cat").mkdir(parents=True)
    for number in range(BATCH):
        (tmp_path / "data" / "cat" / f"{number}.jpg").touch()  # the double looks into no file
    runs = (difference_of_clocks(double, tmp_path, wait) for _ in range(ATTEMPTS))
    differences = list(itertools.takewhile(lambda difference: difference > 0.01, runs))
    assert len(differences) < ATTEMPTS, differences


def difference_of_clocks(double, folder, wait):
    """The larger relative difference of a run's throughput and timed window from what the device noted."""
    (folder / "stamps").unlink(missing_ok=True)
    document = double.result(
        *("resnet50", "--data", folder / "data", "--batch-size", BATCH, "--steps", STEPS, "--warmup-steps", WARMUP),
        DOUBLE_STAMPS=str(folder / "stamps"),
        DOUBLE_WAIT_SECONDS=wait,
    )
    stamps = [float(line) for line in (folder / "stamps").read_text().splitlines()]
    assert len(stamps) == STEPS
    seconds = stamps[-1] - stamps[WARMUP - 1]
    throughput = document["metrics"]["throughput"]["value"]
    differences = (throughput * seconds / (BATCH * (STEPS - WARMUP)), document["phases"]["steady"]["seconds"] / seconds)
    return max(abs(ratio - 1) for ratio in differences)
