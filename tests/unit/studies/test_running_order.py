"""Which runs come first when time is short, and how long they will take."""

from pathlib import Path
from typing import Any

import pytest
from unit.fake_studies import plan_of, run_of
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.studies.running.budget import Estimates, most_informative_first, parse_budget
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


def test_estimates_follow_what_runs_took(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, run_of(batch_size=1), run_of(batch_size=2), seconds=10.0)
    unknown = plan_of(tmp_path, run_of(batch_size=4))
    first, second = plan.runs
    estimates = Estimates()
    assert estimates.seconds(first) == 10 and estimates.seconds(unknown.runs[0]) is None
    assert estimates.total([*plan.runs, *unknown.runs]) is None
    estimates.learn(first, 30.0)
    assert estimates.seconds(second) == 30 and estimates.total([second, second], side_by_side=2) == 30
    estimates.learn(unknown.runs[0], 5.0)
    assert estimates.seconds(unknown.runs[0]) == 5
