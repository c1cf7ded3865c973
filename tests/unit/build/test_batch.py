"""Planning and running many builds, without an engine: only what would start a build in a container is replaced."""

import json
import shutil
from dataclasses import asdict, replace
from typing import Any

import pytest
from unit.fakes import FakeEngine, labels_of
from unit.refusals import refused

from sifmark.builds import batch, image
from sifmark.builds.batch import (
    Action,
    BuildOptions,
    BuildOutcome,
    OutcomeState,
    PlannedBuild,
    build_one,
    default_jobs,
    matching_recipes,
    plan_build,
    run_builds,
)
from sifmark.builds.image import require_space
from sifmark.core.environment import temporary_folder
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.process import CompletedCommand
from sifmark.core.settings import Settings
from sifmark.engines import Forecast, open_engine
from sifmark.engines.apptainer import forecast
from sifmark.recipes.labels import BUILD_KEY, COMPRESSION
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import recipe_names


@pytest.fixture
def engine(site: Settings) -> FakeEngine:
    return FakeEngine(site)


def build_of(name: str, **estimate: int) -> PlannedBuild:
    return PlannedBuild(name, Action.BUILD, "", Forecast(**estimate))


def test_everything_is_every_recipe() -> None:
    assert matching_recipes("*") == recipe_names()
    assert matching_recipes("resnet50-*") == recipe_names()
    assert matching_recipes("cpu") == ("cpu",)
    with refused(UsageError, "unknown-name"):
        matching_recipes("nosuch")


def test_a_plan_says_what_and_why(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "compressed_size", lambda *_: 40_000_000)  # what no registry here would say
    engine = open_engine(site, "apptainer")
    builds = {recipe: plan_build(recipe, BuildOptions(), engine, site) for recipe in recipe_names()}
    space_of_base = Forecast(cached=80_000_000, temporary=140_000_000, stored=40_000_000)
    assert builds["cpu"] == PlannedBuild("cpu", Action.BUILD, "not built yet", space_of_base, ())
    refused = {recipe for recipe, build in builds.items() if build.action is Action.SKIP}
    assert refused and all("there is no digest" in builds[recipe].reason for recipe in refused)


def test_forecasts_are_the_engine_s_own(site: Settings, engine: FakeEngine) -> None:
    """A Docker Engine stores images itself: what it builds needs no room for SIF files or converted bases."""
    engine.estimate, engine.kept = Forecast(size=7, cached=3), {"a stage": True, "another": False}
    build = plan_build("cpu", BuildOptions(), engine, site)
    assert (build.forecast, build.cached_stages) == (engine.estimate, ("a stage",))
    assert build.document() == {
        "recipe": "cpu",
        "action": "build",
        "reason": "not built yet",
        "size": 7,
        "seconds": None,
        "cached": 3,
        "cached_stages": ["a stage"],
    }
    require_space([Forecast(size=2**60)], site)  # 1 EiB, but not in a folder of ours
    assert default_jobs([build_of("cpu", size=2**60)] * 2, site) == default_jobs([build_of("cpu")] * 2, site)


@pytest.mark.parametrize(
    ("labels", "options", "reason"),
    [
        ({}, BuildOptions(), None),
        ({}, BuildOptions(force=True), "asked for"),
        ({COMPRESSION: "gzip"}, BuildOptions(compression="lz4"), "another compression"),
        ({BUILD_KEY: "other"}, BuildOptions(), "code or recipe changed"),
        ({BUILD_KEY: "other", "org.sifmark.lock": "other"}, BuildOptions(), "other wheels"),
        ({BUILD_KEY: "other", "org.opencontainers.image.base.digest": "other"}, BuildOptions(), "another base"),
    ],
)
def test_why_an_image_is_built_again(
    site: Settings, engine: FakeEngine, labels: dict[str, Any], options: BuildOptions, reason: str | None
) -> None:
    engine.add("cpu", labels={**make_plan("cpu", site).labels(), **labels})
    build = plan_build("cpu", options, engine, site)
    assert (build.action, build.reason) == (
        (Action.LEAVE, "nothing changed") if reason is None else (Action.BUILD, reason)
    )


def test_an_image_without_labels_is_no_whole_one(site: Settings, engine: FakeEngine) -> None:
    engine.add("cpu").labels.clear()
    assert plan_build("cpu", BuildOptions(), engine, site).reason == "the file there is not a complete image"


@pytest.fixture
def no_stand_ins(site: Settings) -> None:
    site.stand_in_pins.parent.mkdir(parents=True)
    pins = {"schema_version": "1.0", "registry": "127.0.0.1:1", "bases": {}}
    site.stand_in_pins.write_text(json.dumps(pins))


@pytest.mark.usefixtures("no_stand_ins")
def test_what_has_no_stand_in_here_is_skipped(site: Settings, engine: FakeEngine) -> None:
    build = plan_build("cuda", BuildOptions(bases="stand-in"), engine, site)
    assert build.action is Action.SKIP and "there is no test base" in build.reason


@pytest.mark.parametrize(
    ("estimate", "folder"),
    [({"cached": 2**50}, "cache"), ({"stored": 2**50}, "dist"), ({"temporary": 2**50}, "scratch")],
)
def test_more_than_fits_is_refused_before_anything_starts(
    site: Settings, monkeypatch: pytest.MonkeyPatch, estimate: dict[str, Any], folder: str
) -> None:
    monkeypatch.setenv("APPTAINER_TMPDIR", str(site.cache.parent / "scratch"))
    require_space([Forecast(stored=1, cached=1, temporary=1)], site)
    with refused(SifmarkError, "disk-full", "1048576.0 GiB", f"/{folder}") as error:
        require_space([Forecast(**estimate)], site)
    assert "APPTAINER_TMPDIR" in error.value.remedy


def test_folders_of_one_disk_share_what_it_has_left(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of temporary files only those of one build count, and none of them beside the images."""
    monkeypatch.setenv("APPTAINER_TMPDIR", str(site.cache.parent))
    monkeypatch.setattr(image, "free_space", lambda _: 100)
    require_space([Forecast(cached=20, temporary=60, stored=40), Forecast(cached=20, temporary=50, stored=20)], site)
    for needed in (Forecast(cached=41, temporary=60), Forecast(cached=41, stored=60)):
        with refused(SifmarkError, "disk-full", "101 B", "100 B"):
            require_space([needed], site)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"APPTAINER_TMPDIR": "/scratch", "TMPDIR": "/x"}, "/scratch"),
        ({"APPTAINER_TMPDIR": "", "TMPDIR": "/x"}, "/x"),
        ({"TEMP": "/y"}, "/tmp"),
    ],
)
def test_where_apptainer_unpacks(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str) -> None:
    for name in ("APPTAINER_TMPDIR", "TMPDIR", "TEMP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(temporary_folder()) == folder


def test_jobs_are_at_most_what_the_host_carries(site: Settings) -> None:
    small = [build_of(name, stored=1) for name in "abc"]
    assert default_jobs([], site) == 1
    assert 1 <= default_jobs(small, site) <= 3
    free = shutil.disk_usage("/").free
    assert default_jobs([replace(build, forecast=Forecast(stored=free)) for build in small], site) == 1


def test_a_failure_stops_only_itself(site: Settings, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def run(argv: list[str], _environment: dict[str, str], **_options: object) -> CompletedCommand:
        started.append(argv[argv.index("build") + 1])
        if started[-1] == "cuda":  # killed: it said nothing
            return CompletedCommand(tuple(argv), -9, "", ("unpacking",), 0.0)
        outcome = BuildOutcome(started[-1], OutcomeState.BUILT, names=("resnet50-cpu",))
        return CompletedCommand(tuple(argv), 0, json.dumps([asdict(outcome)]), (), 0.0)

    monkeypatch.setattr(batch, "run_sifmark", run)
    engine.add("cpu_tf", labels=make_plan("cpu_tf", site).labels())
    builds = [build_of("cuda"), build_of("cpu"), PlannedBuild("cpu_tf", Action.LEAVE, "")]
    builds += [PlannedBuild("xpu", Action.SKIP, "no digest"), PlannedBuild("ipu", Action.BROKEN, "ipu.toml: bad")]
    outcomes = run_builds(builds, BuildOptions(), engine, site, jobs=1)
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


@pytest.mark.usefixtures("no_stand_ins")
def test_a_build_that_is_started_tells_its_own_reason(site: Settings, engine: FakeEngine) -> None:
    (outcome,) = run_builds([build_of("cuda")], BuildOptions(bases="stand-in"), engine, site, jobs=1)
    assert (outcome.recipe, outcome.state) == ("cuda", "failed") and outcome.seconds > 0
    assert outcome.reason.startswith("there is no test base for ") and "remedy: " in outcome.reason


def test_options_go_on_to_the_builds_that_are_started() -> None:
    assert BuildOptions().arguments() == []
    words = ["--bases", "stand-in", "--compression", "lz4", "--force"]
    assert BuildOptions("stand-in", "lz4", True).arguments() == words


def test_what_is_reused_is_told(site: Settings, engine: FakeEngine) -> None:
    engine.kept = {"a stage": True, "another": False}
    outcome = build_one("cpu", BuildOptions(), engine, site)
    assert (outcome.state, outcome.reused, outcome.identity) == ("built", ("a stage",), engine.images["fake:cpu"].runs)
    again = build_one("cpu", BuildOptions(), engine, site)
    assert (again.state, again.reused, again.names) == ("up to date", ("image",), outcome.names)
    assert engine.builds == ["cpu"] and json.loads(json.dumps(again.document()))["state"] == "up to date"
    assert "resnet50-cpu" in again.names and labels_of("cpu").keys() <= engine.images["fake:resnet50-cpu"].labels.keys()
