"""Which runs come first when time is short, and how long they will take."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_studies import plan_of, run_of
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.studies.estimate import Estimates
from sifmark.studies.running.budget import most_informative_first, parse_budget
from sifmark.studies.study import Scalar


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("1h30m", 5400), ("45m", 2700), ("90", 90), ("90s", 90), ("0.5h", 1800), ("1h1m1s", 3661)],
)
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h", "soon", "2 h", "-1h", "1d", "h", "1m2h"])
def test_what_is_no_time_is_no_budget(text: str) -> None:
    with refused(UsageError, "invalid-option"):
        parse_budget(text)


def order(folder: Path, *cells: dict[str, Any], repeats: int = 1) -> list[tuple[Scalar, ...]]:
    runs = [run_of("here", repeat=number, **cell) for number in range(1, repeats + 1) for cell in cells]
    ordered = most_informative_first(plan_of(folder, *runs).runs)
    keys = [key for key in cells[0] if key != "workload"]
    return [(*(planned.run.cell[key] for key in keys), planned.run.repeat) for planned in ordered]


def test_the_ends_of_an_axis_come_first_then_the_middles(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [{"batch_size": size} for size in (1, 2, 4, 8, 16, "max")]
    sizes = [size for size, _ in order(tmp_path, *cells)]
    assert (
        sizes[:2] == [1, "max"]
        and sizes[2] == 4
        and sorted(map(str, sizes)) == sorted(map(str, (1, 2, 4, 8, 16, "max")))
    )


def test_all_cells_come_once_before_any_comes_again(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [{"batch_size": size} for size in (1, 2, 4)]
    assert order(tmp_path, *cells, repeats=2) == [(1, 1), (4, 1), (2, 1), (1, 2), (4, 2), (2, 2)]


def test_every_value_of_an_axis_of_names_is_an_end(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"precision": precision, "batch_size": size} for precision in ("fp32", "tf32", "bf16") for size in (1, 2, 4)
    ]
    first = order(tmp_path, *cells)[:6]
    assert {(precision, size) for precision, size, _ in first} == {
        (precision, size) for precision in ("fp32", "tf32", "bf16") for size in (1, 4)
    }


def test_estimates_follow_what_runs_took() -> None:
    estimates, first, second = Estimates(), run_of(batch_size=1), run_of(batch_size=2)
    assert estimates.seconds(first, 10.0) == 10 and estimates.seconds(first, None) is None
    estimates.learn(first, 30.0, 10.0)
    assert estimates.seconds(second, 20.0) == 60, "of the same workload"
    assert estimates.seconds(replace(first, repeat=2), 10.0) == 30
    estimates.learn(replace(first, repeat=2), 40.0, 10.0)
    assert estimates.seconds(replace(first, repeat=3), 10.0) == 35, "as its repeats on average"
    estimates.learn(run_of(batch_size=4), 5.0, None)
    assert estimates.seconds(run_of(batch_size=8), None) == 5


def test_a_short_run_says_little_of_other_workloads() -> None:
    estimates, other = Estimates(), run_of(workload="lstm")
    estimates.learn(run_of(workload="matmul"), 1.0, 15.0)
    assert estimates.seconds(other, 100.0) == pytest.approx(100 * 61 / 75)
    estimates.learn(run_of(workload="resnet50"), 600.0, 300.0)
    assert estimates.seconds(other, 100.0) == pytest.approx(100 * 661 / 375)


def test_a_run_that_did_not_fit_says_nothing_of_smaller_ones() -> None:
    estimates, large = Estimates(), run_of(batch_size=4096)
    estimates.learn(large, 4.0, 600.0, is_whole=False)
    assert estimates.seconds(run_of(batch_size=1), 20.0) == 20 and estimates.seconds(large, 600.0) == 4
