"""The host's end of a run's progress: lines of any image, whole or not, and nothing left behind."""

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.fakes import FakeEngine

from sifmark.core.settings import Settings
from sifmark.engines.progress import PROGRESS_VARIABLE, ProgressPipe, new_pipe, progress_folder

LINE = {
    "schema_version": "1.0", "started": "2026-11-27T12:42:58.531Z", "workload": "resnet50", "task": "training",
    "device": "cpu", "precision": "fp32", "batch_size": 8, "phase": "measuring", "steps": 30, "planned_steps": 100,
    "planned_seconds": None, "share": 0.3, "seconds_left": 17.5, "unit": "images", "throughput": 4.0, "rate": 4.1,
    "loss": 6.9, "power_watts": None, "memory_mib": 359.3,
}  # fmt: skip


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[ProgressPipe]:
    pipe = ProgressPipe(tmp_path / "pipe")
    yield pipe
    pipe.close()
    assert not (tmp_path / "pipe").exists()


def send(pipe: ProgressPipe, *lines: bytes) -> None:
    descriptor = os.open(pipe.variables[PROGRESS_VARIABLE], os.O_WRONLY | os.O_NONBLOCK)
    for line in lines:
        os.write(descriptor, line)
    os.close(descriptor)


def encoded(**fields: Any) -> bytes:
    return json.dumps({**LINE, **fields}).encode() + b"\n"


def test_lines_are_read_as_they_come_also_in_pieces(pipe: ProgressPipe) -> None:
    assert list(pipe.read()) == []
    line = encoded(steps=32)
    send(pipe, encoded(), encoded(steps=31), line[:50])
    assert [progress.steps for progress in pipe.read()] == [30, 31]
    send(pipe, line[50:])
    (progress,) = pipe.read()
    assert (progress.steps, progress.workload, progress.power_watts, progress.loss) == (32, "resnet50", None, 6.9)


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_loss_may_be_a_word(pipe: ProgressPipe, word: str) -> None:
    send(pipe, encoded(loss=word))
    (progress,) = pipe.read()
    assert progress.loss is not None and not math.isfinite(progress.loss)


@pytest.mark.parametrize(
    "line",
    [
        b"\n", b"{}\n", b"[" * 3000 + b"\n", b"\xff\xfe\n", b'"text"\n', encoded(schema_version="2.0"),
        encoded(more=1), encoded(share=2), encoded(unit="x" * 201), encoded(loss="a lot"), encoded(steps=-1),
        encoded(throughput=-1), encoded(started="now\n"), encoded(started="\ud800"),
    ],
)  # fmt: skip
def test_lines_of_another_form_are_left_out(pipe: ProgressPipe, line: bytes) -> None:
    send(pipe, line, encoded())
    assert [progress.steps for progress in pipe.read()] == [30]


def test_a_line_without_an_end_takes_no_memory(pipe: ProgressPipe) -> None:
    for _ in range(100):
        send(pipe, b"x" * 4000)
        assert list(pipe.read()) == []
    send(pipe, b"\n", encoded())
    assert [progress.steps for progress in pipe.read()] == [30]


@given(st.integers(0, 10**400))
def test_no_number_is_too_large(number: int) -> None:
    with progress_folder() as folder:
        pipe = new_pipe(folder, "pipe")
        assert pipe is not None
        send(pipe, encoded(steps=number, throughput=number, loss=number))
        assert all(float(progress.steps) >= 0 for progress in pipe.read())
        pipe.close()


def test_only_this_user_can_enter_and_a_run_sees_the_folder(site: Settings) -> None:
    with progress_folder() as folder:
        assert folder is not None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        pipe = ProgressPipe(folder / "pipe")
        assert pipe.options(FakeEngine(site))
        pipe.close()
    assert not folder.exists()


def test_without_a_place_for_pipes_a_run_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no such folder"))
    with progress_folder() as folder:
        assert folder is None and new_pipe(folder, "pipe") is None
    (tmp_path / "pipe").write_text("taken")
    assert new_pipe(tmp_path, "pipe") is None


def test_what_an_image_puts_in_the_place_of_a_pipe_ends_nothing() -> None:
    with progress_folder() as folder:
        assert folder is not None
        pipe = ProgressPipe(folder / "pipe")
        (folder / "pipe").unlink()
        (folder / "pipe").mkdir()
        pipe.close()
