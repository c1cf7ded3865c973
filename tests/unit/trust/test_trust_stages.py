"""The stages of verify: what passes, fails or is skipped, and what is not started."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import TRAINING, from_image
from unit.fakes import FakeEngine, sha256

from sifmark.builds import ledger
from sifmark.builds.records import record_path
from sifmark.commands.images import verify as verify_command
from sifmark.core import paths
from sifmark.core.checks import Status
from sifmark.core.errors import UsageError
from sifmark.core.files import write_json
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed
from sifmark.recipes.hardware import Access
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, DEVICES, DOCKER_FLAGS, RECIPE, STAND_IN
from sifmark.trust import stages as module
from sifmark.trust.stages import STAGES, StageResult, select_stages, verify


@pytest.fixture
def engine(site: Settings, tmp_path: Path) -> FakeEngine:
    """An engine with an image of recipe cpu that was built here and answers with a valid result."""
    engine = FakeEngine(site)
    image = engine.add("resnet50-cpu", workload="resnet50")
    write_json(record_path("cpu", engine), {"identity": image.runs, "digest": image.file})
    ledger.record_trusted(image.file, site)
    answer(engine, tmp_path)
    return engine


def answer(engine: FakeEngine, folder: Path, exit_code: int = 0, **changes: Any) -> None:
    """Let a run print a valid result of the image, with other values at dotted paths."""
    key = engine.images["fake:resnet50-cpu"].labels[BUILD_KEY]
    document = from_image(provenance__image__build_key=key, **changes)
    (folder / "result.json").write_text(json.dumps(document))
    engine.programs["run"] = ["sh", "-c", f"cat {shlex.quote(str(folder / 'result.json'))}; exit {exit_code}"]


def stage(engine: FakeEngine, name: str, **changed: Any) -> StageResult:
    (verdict,) = verify(engine, "fake:resnet50-cpu", replace(engine.settings, **changed), select_stages(name))
    return verdict


def test_a_good_image_passes_every_stage(engine: FakeEngine) -> None:
    results = verify(engine, "fake:resnet50-cpu", engine.settings)
    assert [(verdict.check.name, verdict.check.status) for verdict in results] == [
        ("trust", Status.PASSED),
        ("structure", Status.PASSED),
        ("smoke", Status.PASSED),
        ("golden", Status.PASSED),
    ]
    assert results[2].findings[0] == "self-test passed" and results[2].findings[1].startswith("resnet50: completed, ")


def test_stages_are_chosen_by_name_and_keep_their_order() -> None:
    assert [stage.name for stage in STAGES] == ["trust", "structure", "smoke", "golden"]
    assert [stage.name for stage in select_stages("golden, trust")] == ["trust", "golden"]
    assert [stage.name for stage in STAGES if stage.starts_image] == ["smoke"]
    with pytest.raises(UsageError) as error:
        select_stages("trust,smok")
    assert error.value.code == "unknown-name" and "smoke" in error.value.remedy


@pytest.mark.parametrize(("here", "isolation"), [(False, ["--isolated"]), (True, ["--isolated", "--with-network"])])
def test_the_self_test_and_all_runs_are_isolated(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, here: bool, isolation: list[str]
) -> None:
    """A network is there only for a device that is on one, and only where that device is."""
    monkeypatch.setattr(Access, "existing_files", lambda _: ["/dev/ipu0"] if here else [])
    labels = {DEVICES: "/dev/ipu*", DOCKER_FLAGS: "--network=host", RECIPE: "of_others"}
    engine.images["fake:resnet50-cpu"].labels.update(labels)
    assert stage(engine, "smoke").check.status is Status.PASSED
    started = engine.commands[:2]  # a third one is only named, in the advice to run it by hand
    assert [(verb, list(options)) for _, verb, _, options in started] == [
        ("test", [*isolation, "--device"]),
        ("run", [*isolation, "--device"]),
    ]


@pytest.mark.parametrize("stages", ["structure,smoke", "trust,structure,smoke"])
def test_what_structure_refutes_is_not_started(engine: FakeEngine, tmp_path: Path, stages: str) -> None:
    """Also where the image is unsigned and unknown, so that trust says nothing."""
    record_path("cpu", engine).unlink()
    engine.images["fake:resnet50-cpu"].start = CheckFailed("starts something else", code="image-altered")
    engine.programs |= {name: ["touch", str(tmp_path / "started")] for name in ("run", "test")}
    results = verify(engine, "fake:resnet50-cpu", engine.settings, select_stages(stages))
    assert [verdict.check.status for verdict in results[-2:]] == [Status.FAILED, Status.SKIPPED]
    assert not (tmp_path / "started").exists()


def test_what_is_not_to_be_trusted_is_not_started(engine: FakeEngine, tmp_path: Path) -> None:
    engine.images["fake:resnet50-cpu"].runs = sha256("other")
    engine.programs |= {name: ["touch", str(tmp_path / "started")] for name in ("run", "test")}
    trust, structure, smoke, _ = verify(engine, "fake:resnet50-cpu", engine.settings)
    assert trust.check.status is Status.FAILED and structure.check.status is Status.PASSED
    assert smoke.check.status is Status.SKIPPED and "not to be trusted" in smoke.check.detail
    assert not (tmp_path / "started").exists()


def test_an_unsigned_image_is_not_started_where_a_signature_is_asked_for(engine: FakeEngine, tmp_path: Path) -> None:
    engine.programs |= {name: ["touch", str(tmp_path / "started")] for name in ("run", "test")}
    verdict = stage(engine, "smoke", require_signature=True, keys=("site.pub",))
    assert verdict.check.status is Status.FAILED and not (tmp_path / "started").exists()


@pytest.mark.parametrize("name", ["structure", "smoke"])
def test_without_its_engine_an_image_is_not_judged(engine: FakeEngine, name: str) -> None:
    engine.installed = False
    assert stage(engine, name).check.status is Status.SKIPPED


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"start": CheckFailed("starts something else", code="image-altered")}, "starts something else"),
        ({"base": CheckFailed("a changed file", code="image-altered")}, "a changed file"),
        ({"files": ()}, "it holds none of our files"),
        ({"files": (("-rw-------", "/sifmark/run"),)}, "/sifmark/run has mode -rw-------"),
        ({"files": (("drwxr-x--x", "/sifmark"),)}, "/sifmark has mode drwxr-x--x"),
    ],
)
def test_a_structure_that_is_not_ours_fails(engine: FakeEngine, fields: dict[str, Any], said: str) -> None:
    for name, value in fields.items():
        setattr(engine.images["fake:resnet50-cpu"], name, value)
    verdict = stage(engine, "structure")
    assert verdict.check.status is Status.FAILED and said in verdict.check.detail


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({RECIPE: "nosuch"}, "no recipe 'nosuch' here"),
        ({STAND_IN: "true"}, "no test bases here"),
        ({BASE_DIGEST: sha256("other")}, "another one is pinned here"),
        ({}, "the base as it was"),
    ],
)
def test_a_base_that_is_not_here_is_not_compared(engine: FakeEngine, labels: dict[str, Any], said: str) -> None:
    engine.images["fake:resnet50-cpu"].labels.update(labels)
    verdict = stage(engine, "structure")
    assert verdict.check.status is Status.PASSED and said in verdict.findings[2]


def test_links_need_no_mode(engine: FakeEngine) -> None:
    engine.images["fake:resnet50-cpu"].files = (("lrwx------", "/sifmark/x -> y"), ("-rw-r--r--", "/sifmark/run"))
    assert stage(engine, "structure").findings[1] == "2 files of sifmark, all readable"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("no JSON", "no valid result: is not JSON"),
        ("[]", "no valid result: is not an object"),
        ("{}", "no valid result: is not a sifmark result"),
        (TRAINING.read_text(), "does not name the image's build key"),
    ],
)
def test_an_answer_that_is_no_result_of_the_image_fails(engine: FakeEngine, printed: str, said: str) -> None:
    engine.programs["run"] = [sys.executable, "-c", f"print({printed!r})"]
    verdict = stage(engine, "smoke")
    assert verdict.check.status is Status.FAILED and said in verdict.check.detail


def test_a_failed_self_test_fails(engine: FakeEngine) -> None:
    engine.programs["test"] = ["false"]
    assert stage(engine, "smoke").check.status is Status.FAILED


def test_a_run_that_fails_is_told_with_its_state(engine: FakeEngine, tmp_path: Path) -> None:
    answer(engine, tmp_path, exit_code=1)
    verdict = stage(engine, "smoke")
    assert verdict.check.status is Status.FAILED and "resnet50: completed: " in verdict.check.detail
    assert verdict.check.remedy.startswith("run it by hand to see: ")


def test_without_a_device_a_valid_answer_is_no_failure(engine: FakeEngine, tmp_path: Path) -> None:
    ending = {"state": "no_device", "exit_code": 3, "message": "no device", "phase": "import"}
    answer(engine, tmp_path, exit_code=3, example="out_of_memory", status=ending)
    verdict = stage(engine, "smoke")
    assert verdict.check.status is Status.SKIPPED and "its answer is valid" in verdict.check.detail


def test_another_framework_than_the_base_s_fails(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sifmark.trust import stages
    from sifmark.trust.image import BasePin

    digest = engine.images["fake:resnet50-cpu"].labels[BASE_DIGEST]
    monkeypatch.setattr(stages, "pin_of_base", lambda _: BasePin(digest, "2.7"))
    answer(engine, tmp_path, provenance__software__framework_version="2.7.1+cpu")
    assert stage(engine, "smoke").check.status is Status.PASSED
    answer(engine, tmp_path, provenance__software__framework_version="2.13.0")
    assert "its framework says version 2.13.0, the base has 2.7" in stage(engine, "smoke").check.detail


@pytest.mark.parametrize(("checkout", "recipe"), [(False, "cpu"), (True, "nosuch")])
def test_reviewed_texts_are_of_a_clone_s_own_recipes(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, checkout: bool, recipe: str
) -> None:
    monkeypatch.setattr(paths, "IS_CHECKOUT", checkout)
    engine.images["fake:resnet50-cpu"].labels[RECIPE] = recipe
    assert stage(engine, "golden").check.status is Status.SKIPPED


def test_rendered_texts_that_were_not_reviewed_fail(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "differences", lambda *_: ["cpu.def"])
    verdict = stage(engine, "golden")
    assert verdict.check.status is Status.FAILED and "cpu.def" in verdict.check.detail


def test_programs_read_stage_outcome_and_reasons(engine: FakeEngine) -> None:
    failed = stage(engine, "trust", keys=("site.pub",), require_signature=True)
    assert failed.document() == {"stage": "trust", "outcome": "failed", "reasons": ["it is not signed"]}
    skipped = {"stage": "smoke", "outcome": "skipped", "reasons": ["Fake is not installed here"]}
    engine.installed = False
    assert stage(engine, "smoke").document() == skipped


def test_an_image_of_0_1_0_is_verified_as_it_was_then(
    trusting: Settings, made_by_0_1_0: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real image of an earlier version, by the real engine: the findings of then, though some words changed."""
    verify_command([str(made_by_0_1_0 / "cpu.sif")], trusting, "json", stages="trust", key=["trusted"])
    ((address, answer),) = json.loads(capsys.readouterr().out).items()
    recorded = (made_by_0_1_0 / "expected-verify.json").read_text()
    recorded = recorded.replace(
        "no record of its build is here to hold it against", "there is no record of its build here"
    )
    ((_, expected),) = json.loads(recorded).items()
    assert Path(address).name == "cpu.sif" and answer == expected
