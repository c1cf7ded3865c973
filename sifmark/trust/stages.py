"""The verify verb: named stages, each passed, failed or skipped with its reasons."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.console import output, printable, step
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError, unknown_name
from sifmark.core.process import run
from sifmark.core.settings import settings, with_options
from sifmark.engines import CheckFailed, Engine
from sifmark.engines.locate import device_options, locate, names_file
from sifmark.recipes.golden import REFRESH, differences
from sifmark.recipes.names import find_images
from sifmark.recipes.plan import BASE_DIGEST, BUILD_KEY, COMPRESSION, STAND_IN, make_plan
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import document_problems
from sifmark.trust.checks import check_trust
from sifmark.trust.image import CheckSkipped, ImageUnderTest, image_under_test, pin_of_base

Stage = Callable[[ImageUnderTest], list[str]]


class StageStatus(Enum):
    """What a stage says. Skipped is never a pass."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class StageResult:
    """One stage's outcome, and why."""

    stage: str
    outcome: StageStatus
    reasons: tuple[str, ...]


def verify_images(name: str, as_json: bool, stages: str = "", signed: bool = False) -> None:
    """Verify what a name, a glob or a path means, and print it; only some stages, or all.

    With `signed` a signature by a trusted key is asked for, as it is where the site's settings do.

    Raises SifmarkError when a stage fails.
    """
    chosen = _chosen(stages)
    found = [locate(name)] if names_file(name) else [locate(image.name) for image in find_images(name)]
    verdicts = {address: verify(tool, address, chosen, signed) for tool, address in found}
    if as_json:
        output(json.dumps({address: [_plain(v) for v in judged] for address, judged in verdicts.items()}, indent=2))
    else:
        for address, judged in verdicts.items():
            _print(address, judged)
    failed = [Path(address).name for address, judged in verdicts.items() if _any_failed(judged)]
    if failed:
        raise SifmarkError(f"not verified: {', '.join(failed)}", "the failed stages above say what is wrong")


def _chosen(names: str) -> Sequence[Stage]:
    """The stages that a list with commas names, in their own order; all where it is empty. Raises UsageError."""
    known = {stage.__name__: stage for stage in STAGES}
    wanted = [name.strip() for name in names.split(",")] if names else list(known)
    if strange := [name for name in wanted if name not in known]:
        raise unknown_name("stage", strange[0], known)
    return [stage for name, stage in known.items() if name in wanted]


def verify(
    tool: Engine, address: str, stages: Sequence[Stage] | None = None, signed: bool = False
) -> list[StageResult]:
    """Stages of one image, in order. What is not to be trusted is not started."""
    verdicts: list[StageResult] = []
    for stage in stages or STAGES:
        distrusted = stage is smoke and any(
            v.outcome is StageStatus.FAILED for v in verdicts if v.stage == check_trust.__name__
        )
        reason = "not started: the image is not to be trusted" if distrusted else ""
        with step(f"{Path(address).name}: {stage.__name__}"):
            verdicts.append(_judge(stage, partial(image_under_test, tool, address, signed), reason))
    return verdicts


def structure(image: ImageUnderTest) -> list[str]:
    """Does the engine see our labels, names and start, may any user read our files, and is the base untouched?"""
    if image.engine.version() is None:
        raise CheckSkipped(f"{image.engine.name.capitalize()} is not installed here")
    started = image.inspection.require_start()
    return [started, f"{_all_readable(image)} files of ours, all readable", _base_untouched(image)]


def smoke(image: ImageUnderTest) -> list[str]:
    """Does it test itself, and answer a small run of each workload that is meant with a valid result?"""
    tool = image.engine
    if tool.version() is None:
        raise CheckSkipped(f"{tool.name.capitalize()} is not installed here")
    if image.to_be_signed:
        image.inspection.signer(settings().keys)
    options = [*tool.isolation_flags(), *device_options(tool, image.address)]
    run(tool.command(image.address, "test", [], options), time_limit=settings().time_limit)
    said = ["self-test passed"]
    for workload in image.meant:
        argv = tool.command(image.address, "run", [workload, "--smoke"], options)
        done = run(argv, time_limit=settings().time_limit, check=False)
        result = _valid_answer(workload, image, done.output)
        status, software = result["status"], result["provenance"]["software"]
        if status["state"] == "no_device":
            raise CheckSkipped(f"{workload}: {status['message']}; its answer is valid")
        if done.exit_code != 0:
            raise CheckFailed(f"{workload}: {status['state']}: {status['message']}", manual_command(image, workload))
        _match_framework(image, software["framework_version"])
        said.append(f"{workload}: {status['state']}, {software['framework']} {software['framework_version']}")
    return said


def golden(image: ImageUnderTest) -> list[str]:
    """Does the recipe still render what was last reviewed?"""
    if not paths.IS_CHECKOUT:
        raise CheckSkipped("only a clone has the reviewed texts")
    if image.recipe not in recipe_names():
        raise CheckSkipped(f"this clone has no recipe {image.recipe!r}")
    if changed := differences(image.recipe):
        raise CheckFailed(f"rendered text differs from tests/golden: {', '.join(changed)}", REFRESH)
    return ["definition and Dockerfile are as reviewed"]


STAGES: tuple[Stage, ...] = (check_trust, structure, smoke, golden)


def _judge(stage: Stage, find: Callable[[], ImageUnderTest], not_to_run: str) -> StageResult:
    try:
        subject = find()
        if not_to_run:
            raise CheckSkipped(not_to_run)
        return StageResult(stage.__name__, StageStatus.PASSED, tuple(stage(subject)))
    except CheckSkipped as reason:
        return StageResult(stage.__name__, StageStatus.SKIPPED, (str(reason),))
    except SifmarkError as error:
        return StageResult(stage.__name__, StageStatus.FAILED, (error.cause, error.remedy))


def _any_failed(verdicts: list[StageResult]) -> bool:
    return any(verdict.outcome is StageStatus.FAILED for verdict in verdicts)


def _base_untouched(image: ImageUnderTest) -> str:
    """Hold all that is not ours against the base."""
    if image.recipe not in recipe_names():
        return f"base: no recipe {image.recipe!r} here, its tree was not compared"
    pin = pin_of_base(image)
    if pin is None:
        return "base: no stand-ins are here, its tree was not compared"
    if pin.digest != image.labels[BASE_DIGEST]:
        return "base: another one is pinned here, its tree was not compared"
    bases = "stand-in" if image.labels[STAND_IN] == "true" else "pinned"
    chosen = with_options(settings(), bases=bases, compression=image.labels.get(COMPRESSION))
    return image.inspection.require_base(make_plan(image.recipe, chosen))


def _all_readable(image: ImageUnderTest) -> int:
    """Count our files; raise Refuted for the first that another user could not read."""
    count = 0
    for mode, name in image.inspection.file_modes():
        needed = "r-x" if mode[0] == "d" else "r"
        if mode[0] != "l" and not mode[7:10].startswith(needed):
            raise CheckFailed(f"{name} has mode {mode}: other users cannot read it", REBUILD_REMEDY)
        count += 1
    if not count:
        raise CheckFailed("it holds none of our files", REBUILD_REMEDY)
    return count


def manual_command(image: ImageUnderTest, workload: str) -> str:
    """How a user sees for himself."""
    return f"run it by hand to see: {shlex.join(image.engine.command(image.address, 'run', [workload, '--smoke'], []))}"


def _match_framework(image: ImageUnderTest, seen: str | None) -> None:
    """Raise Refuted where the framework is another one than the base's."""
    if image.recipe not in recipe_names():
        return
    pin = pin_of_base(image)
    if pin is None or pin.digest != image.labels[BASE_DIGEST] or pin.framework_version is None:
        return  # nothing here states anything of that base
    if not str(seen).startswith(pin.framework_version):
        raise CheckFailed(f"its framework says version {seen}, the base has {pin.framework_version}", REBUILD_REMEDY)


def _valid_answer(workload: str, image: ImageUnderTest, answer: str) -> dict[str, Any]:
    remedy = manual_command(image, workload)
    try:
        result: Any = json.loads(answer)
    except ValueError as error:
        raise CheckFailed(f"{workload} did not answer with JSON alone: {error}", remedy) from error
    if not isinstance(result, dict):
        raise CheckFailed(f"{workload} answered with JSON that is no object", remedy)
    if problems := document_problems(result):
        raise CheckFailed(f"{workload}: its result is not valid: {problems[0]}", remedy)
    named = result["provenance"]["image"]
    if named is None or named["build_key"] != image.labels[BUILD_KEY]:
        raise CheckFailed(f"{workload}: its result does not name the image's build key", REBUILD_REMEDY)
    return result


def _plain(verdict: StageResult) -> dict[str, Any]:
    return {**asdict(verdict), "outcome": verdict.outcome.value}


def _print(address: str, verdicts: list[StageResult]) -> None:
    output(address)
    for verdict in verdicts:
        output(f"  {verdict.outcome.value:<8} {verdict.stage}")
        for reason in filter(None, verdict.reasons):
            output(f"           {printable(reason)}")
