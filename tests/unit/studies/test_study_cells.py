"""Cells of studies: how they are divided over devices and nodes, and what rows and reasons a plan has of them."""

from pathlib import Path

import pytest

from sifmark.core import paths
from sifmark.core.settings import Settings
from sifmark.studies.feasibility import ImageTarget, resolve_config
from sifmark.studies.image_options import Cell, Division, arguments_of, division_of, options_of
from sifmark.studies.overview import remarks_of, rows_of, total
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.study import RunState, System
from sifmark.studies.study_file import Lines

FOUR = System("four", "cuda", devices=4, nodes=8)
TOML = sorted([*paths.RECIPES.glob("*.toml"), *paths.STUDIES.glob("*.toml")])


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ({}, (1, 1, 1)),
        ({"devices": 8}, (8, 2, 1)),
        ({"devices": 6}, (6, 2, 1)),
        ({"devices": 2, "nodes": 2}, (2, 2, 1)),
        ({"nodes": 2}, (8, 2, 1)),
        ({"stages": 2}, (2, 1, 2)),
        ({"devices": 4, "strategy": "tensor"}, (4, 1, 1, 4)),
        ({"devices": 8, "strategy": "fsdp", "tensor": 2}, (8, 2, 1, 2)),
        ({"tensor": 2, "stages": 2}, (4, 1, 2, 2)),
        ({"devices": 4, "strategy": "pipelined", "stages": 2}, (4, 1, 2)),
        ({"devices": 4, "strategy": "fsdp"}, (4, 1, 1)),
    ],
)
def test_a_cell_has_as_few_nodes_as_have_its_devices(cell: dict[str, int], expected: tuple[int, ...]) -> None:
    assert division_of({"workload": "gpt2", **cell}, FOUR) == Division(*expected)


def test_a_system_of_unknown_devices_is_one_node() -> None:
    assert division_of({"workload": "gpt2", "devices": 16}, System("any", "cuda")) == Division(16, 1, 1)


@pytest.mark.parametrize(
    ("value", "mode", "words"),
    [
        (True, "auto", ("resnet50", "--compile")),
        (False, "none", ("resnet50", "--compile", "none")),
        ("max-autotune", "max-autotune", ("resnet50", "--compile", "max-autotune")),
    ],
)
def test_a_study_compiles_or_names_the_mode(value: bool | str, mode: str | None, words: tuple[str, ...]) -> None:
    cell: Cell = {"workload": "resnet50", "compile": value}
    assert options_of(cell, Division(1, 1, 1)).compile == mode
    assert arguments_of(cell, Division(1, 1, 1)) == words


def test_data_are_not_looked_at() -> None:
    cell: Cell = {"workload": "resnet50", "data": "/nowhere", "epochs": 2, "data_workers": 4, "meter": "replay:/none"}
    config = resolve_config(cell, Division(1, 1, 1), ImageTarget("pytorch", "cuda"))
    assert not config.problem and config.endless
    options = options_of(cell, Division(1, 1, 1), ("--threads", "3"))
    assert (options.data, options.meter, options.threads) == ("synthetic", "none", 3)


def test_reasons_use_the_keys_of_studies() -> None:
    target = ImageTarget("pytorch", "cuda")
    cases: tuple[tuple[Cell, str], ...] = (
        ({"workload": "gpt2", "devices": 2, "concurrency": 2, "task": "inference"}, "concurrency"),
        ({"workload": "lstm", "strategy": "tensor", "devices": 2}, "lstm is no row of equal blocks"),
        ({"workload": "resnet50", "batch_size": 3, "devices": 2}, "it is no multiple of"),
        (
            {"workload": "gpt2", "strategy": "tensor", "devices": 3, "tensor": 2},
            "3 devices are no multiple of the 2 of a copy",
        ),
    )
    for cell, reason in cases:
        problem = resolve_config(cell, division_of(cell, System("a", "cuda")), target).problem
        assert reason in problem and "--" not in problem


@pytest.mark.parametrize("path", TOML, ids=lambda path: path.name)
def test_lines_are_those_of_the_keys(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines, rows = Lines(text), text.splitlines()
    places = [place for place in lines._lines if isinstance(place[-1], str)]
    assert len(places) > 5
    for place in places:
        assert str(place[-1]) in rows[lines.of(place) - 1], place


def test_rows_and_reasons_of_a_plan(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'title = "t"\nrepeats = 3\n[[run]]\nworkload = "lstm"\nprecision = ["fp32", "tf32", "fp16"]\n'
        "batch_size = [32, 64]\nexcept = [{ precision = 'fp16', batch_size = 64 }]\n"
    )
    settings = Settings(cache=tmp_path / "cache", dist=tmp_path / "dist")
    plan = plan_study(Request(str(tmp_path / "s.toml"), systems=("a:cpu", "b:cuda")), settings)
    first, second = rows_of(plan)
    assert (first.system, second.system, first.runs) == ("a", "b", 15)
    assert first.axes == "3 of precision x 2 of batch_size x 3 repeats - 3"
    assert first.states == {RunState.TO_DO: 6, RunState.CANNOT_RUN: 9}
    assert first.seconds == pytest.approx(total(each.seconds for each in plan.runs if each.run.system == "a"))
    (remark, *_) = [each for each in remarks_of(plan) if each.state is RunState.CANNOT_RUN]
    assert (remark.reason, remark.runs) == ("precision tf32: cpu in pytorch has fp32, bf16, fp8", 6)
    assert remark.cells == ("precision=tf32 batch_size=32", "precision=tf32 batch_size=64")
    assert total([None, None]) is None and total([]) == 0 and total([None, 2.0]) == 2.0
