"""Planning and carrying out many builds, without an engine: what starts builds is replaced, the rest is real."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sifmark.build import batch
from sifmark.build.batch import (
    Action,
    BuildOptions,
    PlannedBuild,
    default_jobs,
    matching_recipes,
    plan_build,
    require_space,
    run_builds,
)
from sifmark.build.image import BuildReport
from sifmark.core import settings
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.process import CompletedCommand
from sifmark.recipes.recipe import recipe_names


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIFMARK_DIST", str(tmp_path / "dist"))
    monkeypatch.setenv("SIFMARK_BASES", "pinned")
    settings.settings.cache_clear()
    monkeypatch.setattr(batch, "compressed_size", lambda *_: 40_000_000)  # what no registry here would say
    return tmp_path


def test_everything_is_every_recipe() -> None:
    assert matching_recipes("*") == recipe_names()
    assert matching_recipes("resnet50-*") == recipe_names()
    assert matching_recipes("cpu") == ("cpu",)
    with pytest.raises(UsageError, match="no image 'nosuch'"):
        matching_recipes("nosuch")


def test_a_plan_says_what_and_why() -> None:
    intents = {recipe: plan_build(recipe, BuildOptions()) for recipe in recipe_names()}
    assert (intents["cpu"].what, intents["cpu"].why, intents["cpu"].at_hand) == (Action.BUILD, "not built yet", ())
    assert intents["cpu"].size is None, "no wheel is at hand: their size is not known"
    refused = {recipe for recipe, intent in intents.items() if intent.what is Action.REFUSE}
    assert refused and all("nobody has seen the digest" in intents[recipe].why for recipe in refused)


@pytest.fixture
def no_stand_ins(site: Path) -> None:
    (site / "cache" / "stand-in").mkdir(parents=True)
    pins = {"schema_version": "1.0", "registry": "127.0.0.1:1", "bases": {}}
    (site / "cache" / "stand-in" / "pins.json").write_text(json.dumps(pins))


def test_what_has_no_stand_in_here_is_skipped(no_stand_ins: None) -> None:
    intent = plan_build("cuda", BuildOptions(bases="stand-in"))
    assert intent.what is Action.REFUSE and "there is no stand-in" in intent.why


def test_more_than_fits_is_refused_before_anything_starts(site: Path) -> None:
    require_space([PlannedBuild("cpu", Action.BUILD, "", size=1, cached=1)])
    with pytest.raises(SifmarkError, match=r"the builds add about 1048576\.0 GiB to .*/cache"):
        require_space([PlannedBuild("cpu", Action.BUILD, "", size=1, cached=2**50)])
    with pytest.raises(SifmarkError, match=r"the builds add about 1048576\.0 GiB to .*/dist"):
        require_space([PlannedBuild("cpu", Action.BUILD, "", size=2**50)])


def test_jobs_are_at_most_what_the_host_carries() -> None:
    small = [PlannedBuild(name, Action.BUILD, "", size=1) for name in "abc"]
    assert default_jobs([]) == 1
    assert 1 <= default_jobs(small) <= 3
    free = shutil.disk_usage("/").free
    assert default_jobs([replace(intent, size=free) for intent in small]) == 1


def test_a_failure_stops_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def run(argv: list[str], **_options: object) -> CompletedCommand:
        started.append(argv[argv.index("build") + 1])
        if started[-1] == "cuda":  # killed: it said nothing
            return CompletedCommand(tuple(argv), -9, "", ("unpacking",), 0.0)
        told = asdict(batch.BuildOutcome(started[-1], "built", names=("resnet50-cpu",)))
        return CompletedCommand(tuple(argv), 0, json.dumps([told]), (), 0.0)

    monkeypatch.setattr(batch, "run", run)
    monkeypatch.setattr(batch, "build_one", lambda recipe, _options: batch.BuildOutcome(recipe, "up to date"))
    todo = [
        PlannedBuild("cuda", Action.BUILD, ""),
        PlannedBuild("cpu", Action.BUILD, ""),
        PlannedBuild("cpu_tf", Action.LEAVE, ""),
    ]
    todo += [PlannedBuild("xpu", Action.REFUSE, "no digest"), PlannedBuild("ipu", Action.BROKEN, "ipu.toml: bad")]
    outcomes = run_builds(todo, BuildOptions(), jobs=1)
    assert [(outcome.recipe, outcome.state) for outcome in outcomes] == [
        ("cuda", "failed"),
        ("cpu", "built"),
        ("cpu_tf", "up to date"),
        ("xpu", "skipped"),
        ("ipu", "failed"),
    ]
    assert started == ["cuda", "cpu"]
    assert outcomes[0].reason.startswith("exit code -9 from: ") and "unpacking" in outcomes[0].reason
    assert outcomes[4].reason == "ipu.toml: bad"


def test_a_build_that_is_started_tells_its_own_reason(no_stand_ins: None) -> None:
    (told,) = run_builds([PlannedBuild("cuda", Action.BUILD, "")], BuildOptions(bases="stand-in"), jobs=1)
    assert (told.recipe, told.state) == ("cuda", "failed") and told.seconds > 0
    assert told.reason.startswith("there is no stand-in for ") and "remedy: " in told.reason


def test_options_go_on_to_the_builds_that_are_started() -> None:
    assert BuildOptions().words() == []
    assert BuildOptions("stand-in", "lz4", True).words() == ["--bases", "stand-in", "--compression", "lz4", "--force"]


def test_what_is_reused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    built = BuildReport("cpu", ("resnet50-cpu",), True, 0.1, 7)
    monkeypatch.setattr(batch, "build_recipe", lambda *_: built)
    outcome = batch.build_one("cpu", BuildOptions())
    assert (outcome.state, outcome.reused, outcome.names) == ("up to date", ("image",), ("resnet50-cpu",))
