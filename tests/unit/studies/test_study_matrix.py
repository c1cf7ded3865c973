"""The matrix of a study: its rows and columns, and what stands in a cell."""

from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_studies import plan_of, run_of

from sifmark.studies.overview import Labels, MatrixCell, cells_of_plan, matrices
from sifmark.studies.study import Reason, RunState

S = RunState


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([(S.DONE, ""), (S.DONE, ""), (S.DONE, "")], "3/3"),
        ([(S.DONE, ""), (S.TO_DO, ""), (S.TO_DO, "")], "1/3"),
        ([(S.TO_DO, "")], "-"),
        ([(S.DONE, "out_of_memory"), (S.DONE, "out_of_memory")], "OOM"),
        ([(S.DONE, "out_of_memory"), (S.TO_DO, "")], "1/2"),
        ([(S.DONE, "out_of_memory"), (S.DONE, "")], "2/2"),
        ([(S.FAILED, "time_limit: --time-limit was reached")], "time"),
        ([(S.DONE, ""), (S.FAILED, "crashed: no more")], "1/2 failed(crashed)"),
        ([(S.FAILED, "no_result: exit code 2")], "failed(no_result)"),
        ([(S.DONE, ""), (S.RUNNING, ""), (S.FAILED, "crashed")], "1/3 running"),
        ([(S.QUEUED, "Priority"), (S.QUEUED, "Priority")], "queued"),
        ([(S.CANNOT_RUN, "needs 71 GiB")], "cannot"),
    ],
)
def test_a_cell_says_how_its_repeats_are(tmp_path: Path, states: list[tuple[RunState, str]], text: str) -> None:
    (planned,) = plan_of(tmp_path, run_of()).runs
    runs = tuple(replace(planned, state=state, reason=Reason(*reason.split(": "))) for state, reason in states)
    assert MatrixCell("a group", "here", {}, runs).text == text


@pytest.mark.parametrize(
    ("sizes", "text"), [((64, 64), "2/2 max=64"), ((64, 60), "2/2 max=60..64"), ((None, 8), "2/2 max=8")]
)
def test_a_cell_says_which_batch_size_was_the_largest(tmp_path: Path, sizes: tuple[int | None, ...], text: str) -> None:
    (planned,) = plan_of(tmp_path, run_of(batch_size="max"), state=S.DONE).runs
    runs = tuple(replace(planned, batch_size=size) for size in sizes)
    assert MatrixCell("a group", "here", {}, runs).text == text


def test_batch_sizes_are_columns_and_other_axes_rows(tmp_path: Path) -> None:
    runs = [
        run_of(name, batch_size=size, precision=precision)
        for name in ("a", "b")
        for precision in ("fp32", "bf16")
        for size in (16, "max", 8)
        if (name, size) != ("b", "max")
    ]
    (matrix,) = matrices(cells_of_plan(plan_of(tmp_path, *runs)))
    assert matrix.title == "a group: resnet50, by batch size"
    assert matrix.columns == ("system", "precision", "8", "16", "max")
    assert matrix.rows == (
        ("a", "fp32", "-", "-", "-"),
        ("a", "bf16", "-", "-", "-"),
        ("b", "fp32", "-", "-", ""),
        ("b", "bf16", "-", "-", ""),
    )


def test_without_batch_sizes_the_axis_with_most_values_is_across(tmp_path: Path) -> None:
    runs = [run_of(concurrency=clients, compile=fast) for clients in (1, 4, 16) for fast in (True, False)]
    (matrix,) = matrices(cells_of_plan(plan_of(tmp_path, *runs)))
    assert matrix.columns == ("system", "compile", "1", "4", "16")


def test_a_group_without_axes_has_one_column(tmp_path: Path) -> None:
    runs = [run_of(repeat=number) for number in (1, 2)]
    (matrix,) = matrices(cells_of_plan(plan_of(tmp_path, *runs, state=S.DONE)))
    assert matrix.columns == ("system", "runs") and matrix.rows == (("here", "2/2"),)


def test_a_run_is_called_by_what_distinguishes_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, *(run_of(batch_size=size, precision="fp32", task="training") for size in (1, 2)))
    assert Labels(plan).of(plan.runs[0]) == "here: resnet50 training batch size 1"
