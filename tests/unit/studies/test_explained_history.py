"""What may explain a change of performance, and the study of images that decides."""

import json
import random
from pathlib import Path
from typing import Any

import documents
import pytest
import tomlkit
from unit.refusals import refused
from unit.studies.histories import DRIVER, FIRST, HOST, IMAGE, KERNEL, key, nights, write_nights
from unit.studies.test_history import lowered

from sifmark.commands.study_analysis import history as show_history
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import load_settings
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, LOCK, RECIPE, REVISION
from sifmark.studies.history import explain
from sifmark.studies.history.bisect import Bisection, bisection_of, conclusion, decide, keys_of
from sifmark.studies.history.changes import History, histories
from sifmark.studies.history.explain import Explanation, KeptImage, explanations
from sifmark.studies.history.series import load_history
from sifmark.studies.load import load_study

COMMAND = ["resnet50", "--batch-size=8", "--steps", "30", "--repeat=3", "--site", "alpha", "--skip-numerics"]


def histories_of(folder: Path) -> list[History]:
    return histories(load_history([str(folder)], "throughput").series)


def explained(folder: Path, *, kept: dict[str, KeptImage] | None = None) -> list[Explanation]:
    every = histories_of(folder)
    (history,) = [each for each in every if each.changes]
    (change,) = history.changes
    return explanations(history, change, every, kept)


def changing(name: str, before: Any, after: Any) -> dict[str, Any]:
    """A fact that is another one from the thirteenth night on."""
    return {name: [before] * 12 + [after] * 8}


class Engine:
    """Images with SBOMs, as an engine shows them."""

    def __init__(self, **packages: dict[str, str]) -> None:
        self.packages = packages

    def inspect(self, address: str) -> Any:
        listed = [{"name": name, "version": version} for name, version in self.packages[address].items()]
        sbom = json.dumps({"components": listed}).encode()
        return type("Inspection", (), {"sboms": lambda _: {"sbom.cyclonedx.json": sbom}})()


def image(number: int, base: str = "1", lock: str = "1", code: str = "1", engine: Any = None) -> KeptImage:
    labels = {RECIPE: "cpu", BUILD_KEY: key(number), BASE_DIGEST: base, LOCK: lock, REVISION: code}
    return KeptImage(f"image{number}.sif", labels, engine)


# What differs


def test_the_fact_that_separates_best_comes_first(tmp_path: Path) -> None:
    kernels = ["6.1"] * 9 + ["6.2"] * 3 + ["6.2"] * 8  # which came three nights too early
    changes: dict[str, Any] = {DRIVER: ["550"] * 12 + ["560"] * 8, KERNEL: kernels}
    write_nights(tmp_path, lowered(nights(1, 20), 12), **changes)
    found = explained(tmp_path)
    assert [(each.name, each.kind) for each in found[:2]] == [
        ("device_conditions.driver", "driver"),
        ("host.kernel", "host"),
    ]
    assert found[0].separation == 1 and found[1].separation == pytest.approx(0.75)
    assert (found[0].before, found[0].after) == ("550", "560")


def test_what_changed_elsewhere_without_an_effect_comes_after_its_equals(tmp_path: Path) -> None:
    changes: dict[str, Any] = {DRIVER: ["550"] * 12 + ["560"] * 8, KERNEL: ["6.1"] * 12 + ["6.2"] * 8}
    write_nights(tmp_path / "a", lowered(nights(1, 20), 12), **changes)
    other: dict[str, Any] = {DRIVER: changes[DRIVER], "site": "beta", HOST: "other"}
    write_nights(tmp_path / "b", nights(2, 20), **other)
    found = explained(tmp_path)
    assert [(each.name, each.without_effect) for each in found[:2]] == [
        ("host.kernel", 0),
        ("device_conditions.driver", 1),
    ]


def test_measured_numbers_separate_by_how_little_they_overlap(tmp_path: Path) -> None:
    clock = "device_conditions_after__clock"
    clocks: Any = [{"value": 1980.0 - 400 * (night >= 12) + night, "unit": "MHz"} for night in range(20)]
    write_nights(tmp_path, lowered(nights(1, 20), 12), **{clock: clocks})
    (found,) = [each for each in explained(tmp_path) if each.kind == "measured"]
    assert found.name == "device_conditions_after.clock" and found.separation == 1
    assert found.before > found.after


def test_packages_are_those_in_which_the_sboms_of_both_images_differ(tmp_path: Path) -> None:
    write_nights(tmp_path, lowered(nights(1, 20), 12), **changing(IMAGE, key(1), key(2)))
    packages = Engine(**{"image1.sif": {"torch": "2.1", "numpy": "2"}, "image2.sif": {"torch": "2.2", "numpy": "2"}})
    kept = {key(number): image(number, engine=packages) for number in (1, 2)}
    found = [each for each in explained(tmp_path, kept=kept) if each.kind == "package"]
    assert [(each.name, each.before, each.after) for each in found] == [("torch", "2.1", "2.2")]
    assert not [each for each in explained(tmp_path, kept={key(1): kept[key(1)]}) if each.kind == "package"]


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_explains_every_change(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    write_nights(tmp_path, lowered(nights(1, 20), 12), **changing(DRIVER, "550", "560"))
    show_history(load_settings(), (str(tmp_path),), explain=True, images=(str(tmp_path),), form=form)
    text = capsys.readouterr().out
    if form == "json":
        (change,) = json.loads(text)["explanations"]
        assert change["facts"][0]["name"] == "device_conditions.driver"
    else:
        assert "driver  device_conditions.driver  550     560    1.00" in text
    show_history(
        load_settings(), (str(tmp_path),), explain=True, images=(str(tmp_path),), since="2026-10-01", form=form
    )
    assert "560" not in capsys.readouterr().out.partition("explanations")[2]


# The study that decides


@pytest.fixture
def changed(tmp_path: Path) -> History:
    """A history whose image changed, and performance with it; its runs were asked for by a real command."""
    files = write_nights(tmp_path / "nights", lowered(nights(1, 20), 12, 0.8), **changing(IMAGE, key(1), key(2)))
    (history,) = histories_of(tmp_path / "nights")
    for file in files:
        document = json.loads(file.read_text())
        document["provenance"]["command"] = COMMAND
        file.write_text(json.dumps(document))
    return history


def bisection(history: History, *more: KeptImage) -> Bisection:
    images = [image(1), image(2, base="2", lock="2"), *more]
    return bisection_of(history, history.changes[0], {each.key: each for each in images})


def test_a_command_becomes_the_keys_of_a_run() -> None:
    keys, more = keys_of("resnet50", COMMAND)
    assert keys == {"workload": "resnet50", "batch_size": 8, "steps": 30, "skip_numerics": True} and more == []
    keys, _ = keys_of("gpt2", ["gpt2", "--strategy=ddp", "--replicas", "4", "--duration", "30s"])
    assert keys == {"workload": "gpt2", "strategy": "ddp", "duration": "30s", "devices": 4}
    assert keys_of("resnet50", ["--find-max-batch", "--all"])[0] == {"workload": "resnet50", "batch_size": "max"}


def test_the_study_has_the_images_of_both_sides_and_those_that_differ_in_one_part(
    changed: History, tmp_path: Path
) -> None:
    only_lock, other = image(3, lock="2"), image(4, lock="3")
    both = image(5, base="2", lock="2", code="9")  # another code than either side
    foreign = image(6, base="2", lock="3")  # other packages than either side
    found = bisection(changed, only_lock, other, both, foreign)
    assert [(name, parts) for name, _, parts in found.images] == [
        ("before", ()),
        ("with-packages", ("packages",)),
        ("after", ("base", "packages")),
    ]
    file = tmp_path / "why.toml"
    file.write_text(found.text)
    study = load_study(str(file))
    assert [(each.name, each.image) for each in study.systems] == [
        ("before", "image1.sif"),
        ("with-packages", "image3.sif"),
        ("after", "image2.sif"),
    ]
    assert tomlkit.parse(found.text)["run"][0]["steps"] == 30
    assert 3 <= found.repeats <= 10


def test_without_two_images_no_study_can_decide(changed: History, tmp_path: Path) -> None:
    with refused(SifmarkError, "bisection-impossible", key(2)):
        bisection_of(changed, changed.changes[0], {key(1): image(1)})
    write_nights(tmp_path / "driver", lowered(nights(1, 20), 12), **changing(DRIVER, "550", "560"))
    (same,) = histories_of(tmp_path / "driver")
    with refused(SifmarkError, "bisection-impossible", "same image"):
        bisection_of(same, same.changes[0], {})


def results_of(folder: Path, levels: dict[str, float], count: int = 6) -> list[str]:
    """Results of a study whose systems took turns within an hour."""
    chance = random.Random(2)
    for repeat in range(count):
        for place, (system, level) in enumerate(levels.items()):
            value = level * chance.lognormvariate(0, 0.005)
            when = FIRST.replace(minute=6 * repeat + place)
            write_nights(folder / system, [value], first=when, site=system, session__boot__value=documents.BOOT)
    return [str(folder / system) for system in levels]


@pytest.mark.parametrize(
    ("levels", "verdicts", "words"),
    [
        ({"before": 100, "with-packages": 80, "after": 80}, [True, True], "with its packages alone"),
        ({"before": 100, "with-packages": 100, "after": 80}, [False, True], "is not known"),
        ({"before": 100, "with-packages": 99, "after": 101}, [False, False], "did not make the change"),
    ],
)
def test_results_decide_which_images_have_the_change(
    changed: History, tmp_path: Path, levels: dict[str, float], verdicts: list[bool], words: str
) -> None:
    found = bisection(changed, image(3, lock="2"))
    steps = decide(found, results_of(tmp_path / "results", levels))
    assert [step.has_change for step in steps] == verdicts
    assert words in conclusion(steps)


def test_images_that_differ_in_no_part_that_labels_name_still_made_the_change(changed: History, tmp_path: Path) -> None:
    found = bisection_of(changed, changed.changes[0], {key(number): image(number) for number in (1, 2)})
    steps = decide(found, results_of(tmp_path / "results", {"before": 100, "after": 80}))
    assert conclusion(steps) == "the image made the change, and its labels do not say by what"


def test_a_study_without_results_decides_nothing(changed: History, tmp_path: Path) -> None:
    steps = decide(bisection(changed), results_of(tmp_path / "results", {"before": 100.0}))
    assert [step.has_change for step in steps] == [None] and "cannot tell" in conclusion(steps)


def test_the_command_writes_the_study_and_says_how_to_go_on(
    changed: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(explain, "kept_images", lambda *_: {key(1): image(1), key(2): image(2, base="2", code="2")})
    monkeypatch.setattr("sifmark.commands.explained_history._kept", explain.kept_images)
    monkeypatch.setattr("sifmark.studies.history.bisect._asked", lambda _: ("resnet50", COMMAND))
    write_nights(tmp_path / "again", lowered(nights(1, 20), 12, 0.8), **changing(IMAGE, key(1), key(2)))
    show_history(load_settings(), ("again",), bisect="why.toml")
    assert "sifmark study.run why.toml" in capsys.readouterr().err
    results_of(tmp_path / "results" / "why", {"before": 100, "after": 80})
    show_history(load_settings(), ("again",), bisect="why.toml")
    said = capsys.readouterr()
    assert "the image made the change; which of base, code" in said.out and "git log 1..2" in said.err
    with refused(SifmarkError, "result-missing", "no change"):
        show_history(load_settings(), ("again",), bisect="why.toml", since="2026-10-01")
    with refused(UsageError, "invalid-option", ".toml"):
        show_history(load_settings(), ("again",), bisect="why.json")
    with refused(UsageError, "file-missing", "nowhere"):
        monkeypatch.undo()
        show_history(load_settings(), (str(tmp_path / "again"),), explain=True, images=("nowhere",))
