"""The stages of verify: each passed, failed or skipped, with its reasons."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.checks import Check, Status
from sifmark.core.console import step
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError, unknown_name
from sifmark.core.keys import key_files
from sifmark.core.settings import Settings, with_options
from sifmark.engines import CheckFailed, Engine
from sifmark.engines.locate import engine_for, locate, names_file, run_isolated
from sifmark.recipes.golden import REFRESH, differences
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, COMPRESSION, STAND_IN
from sifmark.recipes.names import cards, find_images, recipes_in, smallest_image
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import load_text
from sifmark.trust.checks import check_trust
from sifmark.trust.image import CheckSkipped, ImageUnderTest, image_under_test, pin_of_base

_USAGE = 2  # exit code of images for wrong usage
_LEFT_OUT = ": left out: "


@dataclass(frozen=True)
class Stage:
    """A group of checks. `run` returns what they found, or raises SifmarkError or CheckSkipped."""

    name: str
    run: Callable[[ImageUnderTest], list[str]]
    starts_image: bool = False


@dataclass(frozen=True)
class StageResult:
    """The outcome of a stage as one check, and what was found line by line."""

    check: Check
    findings: tuple[str, ...]

    @property
    def reasons(self) -> list[str]:
        """What was found, and for a failure its remedy."""
        remedy = self.check.remedy if self.check.status is Status.FAILED else ""
        return [reason for reason in (*self.findings, remedy) if reason]

    def document(self) -> dict[str, Any]:
        """Return the outcome as programs read it."""
        return {"stage": self.check.name, "outcome": self.check.status.value, "reasons": self.reasons}


def verify_images(
    names: Iterable[str],
    settings: Settings,
    stages: Sequence[Stage] | None = None,
    *,
    signed: bool = False,
    around: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> dict[str, list[StageResult]]:
    """Verify images, recipes, globs or files, each image once, and return the outcomes by address.

    Each image is verified within `around`, which gets a title. With `signed` a trusted signature is required. Raises
    SifmarkError for a name without an image, or a key that is not there.
    """
    key_files(settings.keys)
    results = {}
    for name in dict.fromkeys(chain.from_iterable(map(_targets, names))):
        engine = engine_for(name, settings)
        address = locate(name, engine)
        with around(f"verify {Path(address).name}"):
            results[address] = verify(engine, address, settings, stages, signed)
    return results


def _targets(name: str) -> list[str]:
    """Return a file, or for each recipe that a pattern matches its smallest image: all are the same file."""
    if names_file(name):
        return [name]
    images = find_images(name)
    return [images[0].name] if len(images) == 1 else [smallest_image(recipe) for recipe in recipes_in(images)]


def select_stages(names: str) -> list[Stage]:
    """Return the stages that a list with commas names, in their own order; all if it is empty. Raises UsageError."""
    by_name = {stage.name: stage for stage in STAGES}
    wanted = [name.strip() for name in names.split(",")] if names else list(by_name)
    for name in wanted:
        if name not in by_name:
            raise unknown_name("stage", name, by_name)
    return [stage for name, stage in by_name.items() if name in wanted]


def require_verified(results: Mapping[str, Sequence[StageResult]], required: Collection[str]) -> None:
    """Raise SifmarkError if a stage failed, or one that is required was skipped."""
    every = [(Path(address).name, each.check) for address, stages in results.items() for each in stages]
    if failed := dict.fromkeys(name for name, check in every if check.status is Status.FAILED):
        remedy = "the failed stages above say what is wrong"
        raise SifmarkError(f"not verified: {', '.join(failed)}", remedy, code="verification-failed")
    skipped = (name for name, check in every if check.status is Status.SKIPPED and check.name in required)
    if names := ", ".join(dict.fromkeys(skipped)):
        cause = f"not verified: {names}: a required stage was skipped ({', '.join(sorted(required))})"
        remedy = "give a trusted key with --key, or choose with --require which stages must not be skipped"
        raise SifmarkError(cause, remedy, code="verification-failed")


def verify(
    engine: Engine, address: str, settings: Settings, stages: Sequence[Stage] | None = None, signed: bool = False
) -> list[StageResult]:
    """Run stages on one image, in order; without `stages` all. One that failed `trust` or `structure` is not started.

    With `signed` a trusted signature is required.
    """
    results: list[StageResult] = []
    pinned = engine.pinned(address)
    for stage in STAGES if stages is None else stages:
        refused = stage.starts_image and _is_distrusted(results)
        with step(f"{Path(address).name}: {stage.name}"):
            results.append(_run_stage(stage, engine, pinned, settings, signed, refused))
    return results


def _is_distrusted(results: Sequence[StageResult]) -> bool:
    checked = (TRUST.name, STRUCTURE.name)
    return any(result.check.name in checked and result.check.status is Status.FAILED for result in results)


def _run_stage(
    stage: Stage, engine: Engine, address: str, settings: Settings, signed: bool, refused: bool
) -> StageResult:
    try:
        image = image_under_test(engine, address, settings, signed)
        if refused:
            raise CheckSkipped("not started: the image is not to be trusted", code="image-untrusted")
        return _result(stage, Status.PASSED, stage.run(image))
    except CheckSkipped as reason:
        return _result(stage, Status.SKIPPED, [str(reason)])
    except SifmarkError as error:
        return _result(stage, Status.FAILED, [error.cause], error.remedy)


def _result(stage: Stage, status: Status, findings: list[str], remedy: str = "") -> StageResult:
    return StageResult(Check(stage.name, status, "\n".join(findings), remedy), tuple(findings))


def check_structure(image: ImageUnderTest) -> list[str]:
    """Check that the engine sees our labels, names and start, that any user can read our files, and the base.

    Raises CheckFailed, or CheckSkipped without the engine.
    """
    require_engine(image)
    start = image.inspection.require_start()
    return [start, f"{_count_readable(image)} files of sifmark, all readable", _compare_base(image)]


def check_smoke(image: ImageUnderTest) -> list[str]:
    """Let an image test itself, and run each workload that its name stands for. Return what each answered.

    Raises CheckFailed, CommandError if the self-test fails, or CheckSkipped without the engine or a device.
    """
    require_engine(image)
    if image.signature_required:
        image.inspection.signer(image.settings.keys)
    run_isolated(image.engine, image.address, "test", [])
    answers = [_run_workload(image, workload) for workload in image.named_workloads]
    if all(_LEFT_OUT in answer for answer in answers):
        raise CheckSkipped("; ".join(answers), code="device-missing")
    return ["self-test passed", *answers]


def require_engine(image: ImageUnderTest) -> None:
    """Raise CheckSkipped unless the image's engine is installed."""
    if image.engine.version() is None:
        raise CheckSkipped(f"{image.engine.name.capitalize()} is not installed here", code="engine-missing")


def manual_command(image: ImageUnderTest, workload: str) -> str:
    """Return the advice to run a workload by hand."""
    return f"run it by hand to see: {shlex.join(image.engine.command(image.address, 'run', [workload, '--smoke'], []))}"


def check_golden(image: ImageUnderTest) -> list[str]:
    """Check that the image's recipe still renders what was last reviewed. Raises CheckFailed, CheckSkipped."""
    if not paths.IS_CHECKOUT:
        raise CheckSkipped("only a clone has the reviewed texts", code="checkout-missing")
    if image.recipe not in recipe_names():
        raise CheckSkipped(f"this clone has no recipe {image.recipe!r}", code="recipe-missing")
    if changed := differences(image.recipe):
        cause = f"rendered text differs from tests/golden: {', '.join(changed)}"
        raise CheckFailed(cause, REFRESH, code="golden-differs")
    return ["definition and Dockerfile are as reviewed"]


TRUST = Stage("trust", check_trust)
STRUCTURE = Stage("structure", check_structure)
STAGES = (
    TRUST,
    STRUCTURE,
    Stage("smoke", check_smoke, starts_image=True),
    Stage("golden", check_golden),
)


def _compare_base(image: ImageUnderTest) -> str:
    """Compare everything that is not ours with the base, if that is pinned here. Raises CheckFailed."""
    if image.recipe not in recipe_names():
        return f"base: no recipe {image.recipe!r} here, its files were not compared"
    pin = pin_of_base(image)
    if pin is None:
        return "base: no test bases here, its files were not compared"
    if pin.digest != image.labels[BASE_DIGEST]:
        return "base: another one is pinned here, its files were not compared"
    bases = "stand-in" if image.labels[STAND_IN] == "true" else "pinned"
    site = with_options(image.settings, bases=bases, compression=image.labels.get(COMPRESSION))
    return image.inspection.require_base(make_plan(image.recipe, site))


def _count_readable(image: ImageUnderTest) -> int:
    """Return how many files are ours. Raises CheckFailed if there are none, or if another user cannot read one."""
    count = 0
    for mode, name in image.inspection.file_modes():
        needed = "r-x" if mode[0] == "d" else "r"
        if mode[0] != "l" and not mode[7:10].startswith(needed):
            cause = f"{name} has mode {mode}: other users cannot read it"
            raise CheckFailed(cause, REBUILD_REMEDY, code="image-files-unreadable")
        count += 1
    if not count:
        raise CheckFailed("it holds none of our files", REBUILD_REMEDY, code="image-altered")
    return count


def _refusal(tail: Sequence[str]) -> str:
    """Return why an image refused its options: the line of its error, or the last one of an earlier version."""
    line = next((line for line in tail if line.startswith("error: ")), tail[-1])
    return line.removeprefix("error: ").removeprefix("sifmark: ")


def _run_workload(image: ImageUnderTest, workload: str) -> str:
    command = run_isolated(image.engine, image.address, "run", [workload, "--smoke"], check=False)
    if command.exit_code == _USAGE and _is_microbenchmark(workload):  # it needs several devices, or one that is no CPU
        return f"{workload}{_LEFT_OUT}{_refusal(command.tail)}"
    result = _valid_result(workload, image, command.output)
    status, software = result["status"], result["provenance"]["software"]
    if status["state"] == "no_device":
        raise CheckSkipped(f"{workload}: {status['message']}; its answer is valid", code="device-missing")
    if command.exit_code != 0:
        cause = f"{workload}: {status['state']}: {status['message']}"
        raise CheckFailed(cause, manual_command(image, workload), code="run-failed")
    _require_framework(image, software["framework_version"])
    return f"{workload}: {status['state']}, {software['framework']} {software['framework_version']}"


def _is_microbenchmark(workload: str) -> bool:
    card = cards().get(workload)
    return card is not None and card["tasks"] == ["microbenchmark"]


def _valid_result(workload: str, image: ImageUnderTest, answer: str) -> dict[str, Any]:
    """Return a run's result. Raises CheckFailed if it is not a valid one of this image."""
    remedy = manual_command(image, workload)
    result, problems = load_text(answer.encode())
    if problems:
        raise CheckFailed(f"{workload}: its answer is no valid result: {problems[0]}", remedy, code="result-invalid")
    claimed = result["provenance"]["image"]
    if claimed is None or claimed["build_key"] != image.labels[BUILD_KEY]:
        cause = f"{workload}: its result does not name the image's build key"
        raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
    return result


def _require_framework(image: ImageUnderTest, version: str | None) -> None:
    """Raise CheckFailed if the framework is another one than the base's, as far as it is pinned here."""
    if image.recipe not in recipe_names():
        return
    pin = pin_of_base(image)
    if pin is None or pin.digest != image.labels[BASE_DIGEST] or pin.framework_version is None:
        return
    if not str(version).startswith(pin.framework_version):
        cause = f"its framework says version {version}, the base has {pin.framework_version}"
        raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
