"""The verify verb: named stages, each passed, failed or skipped with its reasons."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from sifmark import house
from sifmark.build import record_of
from sifmark.console import show, step
from sifmark.engines import Engine, Evidence, Refuted
from sifmark.errors import AGAIN, SifmarkError, unknown_name
from sifmark.execute import device_options, locate, names_file
from sifmark.golden import REFRESH, differences
from sifmark.images import find_images
from sifmark.plan import (
    BASE_DIGEST,
    BUILD_KEY,
    COMPRESSION,
    PLATFORM,
    RECIPE,
    STAND_IN,
    WORKLOADS,
    make_plan,
    stand_in_pins,
)
from sifmark.reading import document_problems
from sifmark.recipe import Base, load_recipe, recipe_names
from sifmark.run import run, side_by_side
from sifmark.settings import overridden, settings

_SIGNED = "signature:"
_DIGEST = r"sha256:[0-9a-f]{64}"
# What a label must look like before anything is done with it.
_CLAIMS = {
    RECIPE: r"[a-z][a-z0-9_]*",
    WORKLOADS: r"[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*",
    PLATFORM: r"[a-z0-9_]+",
    STAND_IN: r"true|false",
    BUILD_KEY: _DIGEST,
    BASE_DIGEST: _DIGEST,
}


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


@dataclass(frozen=True)
class Subject:
    """An image whose labels have the form that ours have."""

    engine: Engine
    address: str
    evidence: Evidence
    to_be_signed: bool = False  # by one of the trusted keys

    @property
    def labels(self) -> dict[str, str]:
        """What it says of itself."""
        return self.evidence.labels

    @property
    def recipe(self) -> str:
        """The recipe that the image says it is of."""
        return self.labels[RECIPE]

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that the image says it has."""
        return tuple(sorted(self.labels[WORKLOADS].split(",")))

    @property
    def meant(self) -> tuple[str, ...]:
        """The workload that the image is named for, else all of them."""
        named = self.evidence.workload
        return (named,) if named in self.workloads else self.workloads


Stage = Callable[[Subject], list[str]]


class Skipped(Exception):  # noqa: N818 - it is no error
    """A stage cannot be judged here."""


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
            verdicts.append(_judge(stage, partial(_subject, tool, address, signed), reason))
    return verdicts


def trust(image: Subject) -> list[str]:
    """Is it what was built, on the base that the recipe pins, with nothing added that would run?"""
    image.evidence.require_alone()
    with side_by_side(1) as pool:  # Apptainer reads all of it too
        signature = pool.submit(_signature, image)
        image.evidence.identity()
        told = signature.result()
    by_name = told.startswith(f"{_SIGNED} by ")
    base, recorded = (_or_signed(check, image, by_name) for check in (_matches_pin, _matches_record))
    return [recorded, base, _came_from(image), told]


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
    if not house.IS_CHECKOUT:
        raise Skipped("only a clone has the reviewed texts")
    if image.recipe not in recipe_names():
        raise Skipped(f"this clone has no recipe {image.recipe!r}")
    if changed := differences(image.recipe):
        raise Refuted(f"rendered text differs from tests/golden: {', '.join(changed)}", REFRESH)
    return ["definition and Dockerfile are as reviewed"]


STAGES: tuple[Stage, ...] = (trust, structure, smoke, golden)


def _judge(stage: Stage, subject_of: Callable[[], Subject], not_to_run: str) -> Verdict:
    try:
        subject = subject_of()
        if not_to_run:
            raise Skipped(not_to_run)
        return Verdict(stage.__name__, Outcome.PASSED, tuple(stage(subject)))
    except Skipped as reason:
        return Verdict(stage.__name__, Outcome.SKIPPED, (str(reason),))
    except SifmarkError as error:
        return Verdict(stage.__name__, Outcome.FAILED, (error.cause, error.remedy))


def _any_failed(verdicts: list[Verdict]) -> bool:
    return any(verdict.outcome is Outcome.FAILED for verdict in verdicts)


def _subject(tool: Engine, address: str, signed: bool) -> Subject:
    evidence = tool.evidence(address)
    for key, form in _CLAIMS.items():
        if re.fullmatch(form, evidence.labels.get(key, "")) is None:
            raise Refuted(f"its label {key} is {evidence.labels.get(key)!r}", "is it an image that sifmark built?")
    return Subject(tool, address, evidence, signed or settings().require_signature)


def _or_signed(check: Callable[[Subject], str], image: Subject, by_name: bool) -> str:
    """What a check says; where it cannot be made here, a trusted signature stands in for it."""
    try:
        return check(image)
    except Skipped as reason:
        if not by_name:
            raise
        return str(reason)


def _signature(image: Subject) -> str:
    """By whom it is signed. Raises Refuted where a signature is asked for and none holds."""
    keys = settings().keys
    if image.to_be_signed or (keys and image.evidence.signed()):
        return f"{_SIGNED} by {image.evidence.signer(keys)}"
    known = "nobody says whose: no keys in sifmark.toml" if image.evidence.signed() else "none"
    return f"{_SIGNED} {known}"


def _came_from(image: Subject) -> str:
    """Whether its provenance is of this image, and says what its labels say."""
    if (found := image.evidence.provenance()) is None:
        return "provenance: none in it"
    statement, subjects = found
    try:
        told = json.loads(statement)
        stated = {subject["name"]: subject["digest"]["sha256"] for subject in told["subject"]}
        definition = told["predicate"]["buildDefinition"]
        claims = {
            RECIPE: definition["externalParameters"]["recipe"],
            BUILD_KEY: definition["internalParameters"]["buildKey"],
            BASE_DIGEST: f"sha256:{definition['resolvedDependencies'][0]['digest']['sha256']}",
        }
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Refuted(f"its provenance does not read: {error!r}", AGAIN) from error
    if stated != subjects:
        raise Refuted("its provenance is of another image", AGAIN)
    for label, claim in claims.items():
        if image.labels[label] != claim:
            raise Refuted(f"its provenance says {claim}, its label {label} says {image.labels[label]}", AGAIN)
    return f"provenance: of this image; SBOM: {', '.join(sorted(image.evidence.sboms())) or 'none'}"


def _matches_record(image: Subject) -> str:
    identity = image.evidence.identity()
    path = _record_beside(image)
    if not path.is_file():
        raise Skipped(f"identity {identity}; no record of its build is here to hold it against")
    try:
        record = json.loads(path.read_text())
        recorded, digest = record["identity"], record["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refuted(f"its build record {path} is damaged: {error}", AGAIN) from error
    if recorded != identity:
        raise Refuted(f"its identity is {identity}, its build recorded {recorded}", AGAIN)
    return f"{image.evidence.require_digest(digest)}: {identity}"


def _record_beside(image: Subject) -> Path:
    """A file's record lies beside it, wherever it is; an engine's own images have theirs in the folder of images."""
    record = record_of(image.recipe, image.engine)
    return Path(image.address).with_name(record.name) if names_file(image.address) else record


def _matches_pin(image: Subject) -> str:
    digest, platform = image.labels[BASE_DIGEST], image.labels[PLATFORM]
    if image.recipe not in recipe_names():
        raise Skipped(f"base {digest}; no recipe {image.recipe!r} here to hold it against")
    base = load_recipe(image.recipe).base
    stand_in = image.labels[STAND_IN] == "true"
    if stand_in and not settings().stand_in_pins.is_file():
        raise Skipped(f"base: a stand-in for {base.reference}, {digest}; no stand-ins are here to hold it against")
    pinned = _stand_in_of(base, platform).get("digest") if stand_in else base.digests.get(platform)
    if digest != pinned:
        raise Refuted(f"its base is {digest}, pinned is {pinned}", AGAIN)
    return f"base: {f'a stand-in for {base.reference}' if stand_in else base.reference}, {digest} as pinned"


def _stand_in_of(base: Base, platform: str) -> dict[str, Any]:
    """The generated pin of a base's stand-in; empty where there is none."""
    pin: dict[str, Any] = stand_in_pins(settings().stand_in_pins)["bases"].get(base.reference, {}).get(platform, {})
    return pin


def _base_untouched(image: Subject) -> str:
    """Hold all that is not ours against the base."""
    if image.recipe not in recipe_names():
        return f"base: no recipe {image.recipe!r} here, its tree was not compared"
    bases = "stand-in" if image.labels[STAND_IN] == "true" else "pinned"
    if bases == "stand-in" and not settings().stand_in_pins.is_file():
        return "base: no stand-ins are here, its tree was not compared"
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
    base = load_recipe(image.recipe).base
    stated = base.framework_version
    if image.labels[STAND_IN] == "true" and not settings().stand_in_pins.is_file():
        return
    if image.labels[STAND_IN] == "true":
        stated = _stand_in_of(base, image.labels[PLATFORM]).get("framework_version")
    if stated is not None and not str(seen).startswith(stated):
        raise Refuted(f"its framework says version {seen}, the base has {stated}", AGAIN)


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
            show(f"           {reason}")
