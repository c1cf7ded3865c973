"""Listing, removing and reproducing images, with an engine whose images are in memory."""

import json
import shutil
from pathlib import Path

import pytest
from unit.fakes import FakeEngine, settings_for, write_image
from unit.refusals import refused

from sifmark.builds.clean import remove_products
from sifmark.builds.image import build_recipe, state
from sifmark.builds.listing import buildable, image_rows, recipe_rows, workload_rows
from sifmark.builds.records import record_path
from sifmark.builds.reproduce import reproduce_image
from sifmark.commands import image as command
from sifmark.commands.images import SETS, show_list
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.recipes.names import cards, images, names_of
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import recipe_names


@pytest.fixture
def engine(site: Settings) -> FakeEngine:
    return FakeEngine(site)


@pytest.fixture
def built(engine: FakeEngine, site: Settings) -> FakeEngine:
    build_recipe(make_plan("cpu", site), engine, site)
    return engine


def test_rows_tell_the_state_of_each_image(built: FakeEngine, site: Settings) -> None:
    states = {row["name"]: row["state"] for row in image_rows(images(), built, site)}
    assert {name for name, state in states.items() if state == "built"} == set(names_of("cpu"))
    built.add("resnet50-cpu")
    (row,) = [row for row in image_rows(images(), built, site) if row["name"] == "resnet50-cpu"]
    assert (row["state"], row["file"], row["reason"]) == ("stale", "fake:resnet50-cpu", None)
    assert [row["name"] for row in recipe_rows()] == list(recipe_names())
    assert [row["name"] for row in workload_rows()] == list(cards())


def test_workloads_have_their_bounds_on_a_device(capsys: pytest.CaptureFixture[str], site: Settings) -> None:
    show_list("workloads", site, "json", "nvidia h100")
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["workloads"]}
    assert list(rows) == list(cards()) and not rows["matmul"]["bounds"]
    (of_training, *_) = rows["resnet50"]["bounds"]
    expected = {"device": "NVIDIA H100 80GB HBM3", "task": "training", "precision": "bf16", "unit": "images/s"}
    assert expected.items() <= of_training.items() and 40_000 < of_training["throughput"] < 41_000
    assert {bound["device"] for bound in rows["resnet50"]["bounds"]} >= {"NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"}
    show_list("workloads", site, "table", "GC2")
    captured = capsys.readouterr()
    assert "GC200" not in captured.out and "No bound: all_gather" in captured.err
    with refused(UsageError, "unknown-name", "'H1000'"):
        show_list("workloads", site, "table", "H1000")
    with refused(UsageError, "invalid-option") as raised:
        show_list("cpu", site, "table", "NVIDIA H200")
    assert raised.value.remedy == "sifmark list workloads --device 'NVIDIA H200'"


def test_workloads_of_a_set(capsys: pytest.CaptureFixture[str], site: Settings) -> None:
    show_list("workloads", site, "json", of_set="2026")
    rows = json.loads(capsys.readouterr().out)["workloads"]
    assert {row["set"] for row in rows} == {"2026"} and "llama_8b" in {row["name"] for row in rows}
    assert {card["set"] for card in cards().values()} == set(SETS)
    with refused(UsageError, "invalid-option") as raised:
        show_list("cpu", site, "table", of_set="papers")
    assert raised.value.remedy == "sifmark list workloads --set papers"


def test_a_name_that_is_another_image_than_its_recipe_s_is_not_built(site: Settings) -> None:
    """Where the names are copies, on a file system without hard links; a copy itself is."""
    apptainer = open_engine(site, "apptainer")
    recipe, name = Path(apptainer.address("cpu")), Path(apptainer.address("resnet50-cpu"))
    plan = write_image(recipe, "cpu", site)
    shutil.copyfile(recipe, name)
    assert state("resnet50-cpu", plan, apptainer) == "built" == state("cpu", plan, apptainer)
    with name.open("ab") as stream:
        stream.write(b"more")
    assert (state("resnet50-cpu", plan, apptainer), state("cpu", plan, apptainer)) == ("stale", "built")
    recipe.unlink()
    assert state("resnet50-cpu", plan, apptainer) == "built", "there is no other to compare it with"


def test_what_cannot_be_built_says_why(site: Settings) -> None:
    assert buildable("cpu", site) == {"buildable": True, "reason": None, "build_key": make_plan("cpu", site).build_key}
    unresolved = buildable("xpu_ipex", site)
    assert not unresolved["buildable"] and unresolved["reason"] and unresolved["build_key"] is None


def test_products_are_removed_and_nothing_else(built: FakeEngine, site: Settings) -> None:
    own = site.dist / "results.json"
    own.write_text("{}")
    assert record_path("cpu", built).is_file()
    removed = list(remove_products(built, site))
    assert built.images == {} and not record_path("cpu", built).exists() and own.exists()
    assert {"fake:cpu", "fake:resnet50-cpu"} <= set(removed)
    assert list(remove_products(built, site)) == []


def test_a_second_build_is_compared_with_the_image(built: FakeEngine, site: Settings) -> None:
    result = reproduce_image("cpu", built, site)
    assert (result.recipe, result.address, result.difference) == ("cpu", "fake:cpu", None)
    assert result.identity == built.images["fake:cpu"].identity()


def test_only_what_was_built_from_these_sources_is_built_again(engine: FakeEngine, site: Settings) -> None:
    with refused(SifmarkError, "image-not-built"):
        reproduce_image("cpu", engine, site)
    engine.add("cpu")
    with refused(SifmarkError, "image-stale"):
        reproduce_image("cpu", engine, site)


def test_a_difference_is_the_answer_and_a_failure(
    built: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(built, monkeypatch)
    command.reproduce("cpu", settings, "table")
    assert capsys.readouterr().out.startswith("fake:cpu: identical, sha256:")
    built.images["fake:cpu"].differs = "/sifmark/run differs"
    with refused(SifmarkError, "not-reproduced"):
        command.reproduce("cpu", settings, "json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["reproduced"], answer["difference"]) == (False, "/sifmark/run differs")
