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
from sifmark.core.console import legible, show, step
from sifmark.core.errors import AGAIN, SifmarkError, unknown_name
from sifmark.core.process import run
from sifmark.core.settings import overridden, settings
from sifmark.engines import Engine, Refuted
from sifmark.engines.locate import device_options, locate, names_file
from sifmark.recipes.golden import REFRESH, differences
from sifmark.recipes.names import find_images
from sifmark.recipes.plan import BASE_DIGEST, BUILD_KEY, COMPRESSION, STAND_IN, make_plan
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import document_problems
from sifmark.trust.checks import trust
from sifmark.trust.image import Skipped, Subject, pinned_for, subject_of

Stage = Callable[[Subject], list[str]]


class Outcome(Enum):
    """What a stage says. Skipped is never a pass."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Verdict:
    """One stage's outcome, and why."""

    stage: str
    outcome: Outcome
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
        show(json.dumps({address: [_plain(v) for v in judged] for address, judged in verdicts.items()}, indent=2))
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


def verify(tool: Engine, address: str, stages: Sequence[Stage] | None = None, signed: bool = False) -> list[Verdict]:
    """Stages of one image, in order. What is not to be trusted is not started."""
    verdicts: list[Verdict] = []
    for stage in stages or STAGES:
        distrusted = stage is smoke and any(v.outcome is Outcome.FAILED for v in verdicts if v.stage == trust.__name__)
        reason = "not started: the image is not to be trusted" if distrusted else ""
        with step(f"{Path(address).name}: {stage.__name__}"):
            verdicts.append(_judge(stage, partial(subject_of, tool, address, signed), reason))
    return verdicts


def structure(image: Subject) -> list[str]:
    """Does the engine see our labels, names and start, may any user read our files, and is the base untouched?"""
    if image.engine.version() is None:
        raise Skipped(f"{image.engine.name.capitalize()} is not installed here")
    started = image.evidence.require_start()
    return [started, f"{_all_readable(image)} files of ours, all readable", _base_untouched(image)]


def smoke(image: Subject) -> list[str]:
    """Does it test itself, and answer a small run of each workload that is meant with a valid result?"""
    tool = image.engine
    if tool.version() is None:
        raise Skipped(f"{tool.name.capitalize()} is not installed here")
    if image.to_be_signed:
        image.evidence.signer(settings().keys)
    options = [*tool.sealed_off(), *device_options(tool, image.address)]
    run(tool.command(image.address, "test", [], options), time_limit=settings().time_limit)
    said = ["self-test passed"]
    for workload in image.meant:
        argv = tool.command(image.address, "run", [workload, "--smoke"], options)
        done = run(argv, time_limit=settings().time_limit, check=False)
        result = _valid_answer(workload, image, done.output)
        status, software = result["status"], result["provenance"]["software"]
        if status["state"] == "no_device":
            raise Skipped(f"{workload}: {status['message']}; its answer is valid")
        if done.exit_code != 0:
            raise Refuted(f"{workload}: {status['state']}: {status['message']}", by_hand(image, workload))
        _match_framework(image, software["framework_version"])
        said.append(f"{workload}: {status['state']}, {software['framework']} {software['framework_version']}")
    return said


def golden(image: Subject) -> list[str]:
    """Does the recipe still render what was last reviewed?"""
    if not paths.IS_CHECKOUT:
        raise Skipped("only a clone has the reviewed texts")
    if image.recipe not in recipe_names():
        raise Skipped(f"this clone has no recipe {image.recipe!r}")
    if changed := differences(image.recipe):
        raise Refuted(f"rendered text differs from tests/golden: {', '.join(changed)}", REFRESH)
    return ["definition and Dockerfile are as reviewed"]


STAGES: tuple[Stage, ...] = (trust, structure, smoke, golden)


def _judge(stage: Stage, find: Callable[[], Subject], not_to_run: str) -> Verdict:
    try:
        subject = find()
        if not_to_run:
            raise Skipped(not_to_run)
        return Verdict(stage.__name__, Outcome.PASSED, tuple(stage(subject)))
    except Skipped as reason:
        return Verdict(stage.__name__, Outcome.SKIPPED, (str(reason),))
    except SifmarkError as error:
        return Verdict(stage.__name__, Outcome.FAILED, (error.cause, error.remedy))


def _any_failed(verdicts: list[Verdict]) -> bool:
    return any(verdict.outcome is Outcome.FAILED for verdict in verdicts)


def _base_untouched(image: Subject) -> str:
    """Hold all that is not ours against the base."""
    if image.recipe not in recipe_names():
        return f"base: no recipe {image.recipe!r} here, its tree was not compared"
    pin = pinned_for(image)
    if pin is None:
        return "base: no stand-ins are here, its tree was not compared"
    if pin.digest != image.labels[BASE_DIGEST]:
        return "base: another one is pinned here, its tree was not compared"
    bases = "stand-in" if image.labels[STAND_IN] == "true" else "pinned"
    chosen = overridden(bases=bases, compression=image.labels.get(COMPRESSION))
    return image.evidence.require_base(make_plan(image.recipe, chosen))


def _all_readable(image: Subject) -> int:
    """Count our files; raise Refuted for the first that another user could not read."""
    count = 0
    for mode, name in image.evidence.modes():
        needed = "r-x" if mode[0] == "d" else "r"
        if mode[0] != "l" and not mode[7:10].startswith(needed):
            raise Refuted(f"{name} has mode {mode}: other users cannot read it", AGAIN)
        count += 1
    if not count:
        raise Refuted("it holds none of our files", AGAIN)
    return count


def by_hand(image: Subject, workload: str) -> str:
    """How a user sees for himself."""
    return f"run it by hand to see: {shlex.join(image.engine.command(image.address, 'run', [workload, '--smoke'], []))}"


def _match_framework(image: Subject, seen: str | None) -> None:
    """Raise Refuted where the framework is another one than the base's."""
    if image.recipe not in recipe_names():
        return
    pin = pinned_for(image)
    if pin is None or pin.digest != image.labels[BASE_DIGEST] or pin.framework_version is None:
        return  # nothing here states anything of that base
    if not str(seen).startswith(pin.framework_version):
        raise Refuted(f"its framework says version {seen}, the base has {pin.framework_version}", AGAIN)


def _valid_answer(workload: str, image: Subject, answer: str) -> dict[str, Any]:
    remedy = by_hand(image, workload)
    try:
        result: Any = json.loads(answer)
    except ValueError as error:
        raise Refuted(f"{workload} did not answer with JSON alone: {error}", remedy) from error
    if not isinstance(result, dict):
        raise Refuted(f"{workload} answered with JSON that is no object", remedy)
    if problems := document_problems(result):
        raise Refuted(f"{workload}: its result is not valid: {problems[0]}", remedy)
    named = result["provenance"]["image"]
    if named is None or named["build_key"] != image.labels[BUILD_KEY]:
        raise Refuted(f"{workload}: its result does not name the image's build key", AGAIN)
    return result


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "outcome": verdict.outcome.value}


def _print(address: str, verdicts: list[Verdict]) -> None:
    show(address)
    for verdict in verdicts:
        show(f"  {verdict.outcome.value:<8} {verdict.stage}")
        for reason in filter(None, verdict.reasons):
            show(f"           {legible(reason)}")
