"""The verify verb: named stages, each passed, failed or skipped with its reasons."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sifmark import house, render
from sifmark.build import record_of
from sifmark.console import show, step
from sifmark.engines import Engine, engine
from sifmark.engines.flat import converted_base
from sifmark.errors import SifmarkError
from sifmark.execute import device_options, locate, names_file
from sifmark.files import sha256_file
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
from sifmark.run import run
from sifmark.settings import overridden, settings
from sifmark.sif import PARTITION, SIGNATURE, Sif, read_sif

OURS = (render.SITE, render.CODE, render.APPS)
_AGAIN = "build it again: inv build NAME --force"
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

    path: Path
    sif: Sif
    labels: dict[str, str]

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
        """The workload that the file is named for, else all of them."""
        before, dash, _ = self.path.name.partition("-")
        return (before,) if dash and before in self.workloads else self.workloads


class Refuted(SifmarkError):  # noqa: N818 - named for what it says
    """A check found the image not to be what it should be."""


class Skipped(Exception):  # noqa: N818 - it is no error
    """A stage cannot be judged here."""


def verify_images(name: str, as_json: bool) -> None:
    """Verify what a name, a glob or a path means, and print it. Raises SifmarkError when a stage fails."""
    paths = [locate(name)] if names_file(name) else [locate(image.name) for image in find_images(name)]
    verdicts = {path: verify(path) for path in paths}
    if as_json:
        show(json.dumps({str(path): [_plain(v) for v in found] for path, found in verdicts.items()}, indent=2))
    else:
        for path, found in verdicts.items():
            _print(path, found)
    failed = [path.name for path, found in verdicts.items() if any(v.outcome is Outcome.FAILED for v in found)]
    if failed:
        raise SifmarkError(f"not verified: {', '.join(failed)}", "the failed stages above say what is wrong")


def verify(path: Path) -> list[Verdict]:
    """All stages of one image, in order."""
    return [_judge(stage, path) for stage in STAGES]


def trust(image: Subject) -> list[str]:
    """Is it the file that was built, on the base that the recipe pins, with nothing added that would run?"""
    partitions = [entry for entry in image.sif.descriptors if entry.kind == PARTITION]
    if len(partitions) > 1:
        raise Refuted(f"it has {len(partitions)} partitions: an overlay changes what runs", _AGAIN)
    base, recorded = _matches_pin(image), _matches_record(image)
    return [recorded, base, "signature: not checked; this version does not sign"]


def structure(image: Subject) -> list[str]:
    """Does the engine see our labels, apps and run script, and may any user read our files?"""
    seen = _engine().inspect(image.path)
    if seen.labels != image.labels:
        raise Refuted("Apptainer shows other labels than the file's metadata holds", _AGAIN)
    if seen.apps != image.workloads:
        raise Refuted(f"its apps are {seen.apps}, its label says {image.workloads}", _AGAIN)
    if render.run_script() not in seen.runscript:
        raise Refuted("its run script does not start our entrypoint", _AGAIN)
    said = f"{len(image.labels)} labels, apps {', '.join(image.workloads)}"
    return [said, f"{_all_readable(image)} files of ours, all readable", _base_untouched(image)]


def smoke(image: Subject) -> list[str]:
    """Does it test itself, and answer a small run of each workload that is meant with a valid result?"""
    tool = _engine()
    options = ("--containall", "--cleanenv", *device_options(image.path))
    run(tool.command(image.path, "test", options=options), time_limit=settings().time_limit)
    said = ["self-test passed"]
    for workload in image.meant:
        argv = tool.command(image.path, "run", [workload, "--smoke"], options)
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


STAGES: tuple[Callable[[Subject], list[str]], ...] = (trust, structure, smoke, golden)


def _judge(stage: Callable[[Subject], list[str]], path: Path) -> Verdict:
    with step(f"{path.name}: {stage.__name__}"):
        try:
            return Verdict(stage.__name__, Outcome.PASSED, tuple(stage(_subject(path))))
        except Skipped as reason:
            return Verdict(stage.__name__, Outcome.SKIPPED, (str(reason),))
        except SifmarkError as error:
            return Verdict(stage.__name__, Outcome.FAILED, (error.cause, error.remedy))


def _subject(path: Path) -> Subject:
    sif = read_sif(path)
    labels = sif.labels()
    for key, form in _CLAIMS.items():
        if re.fullmatch(form, labels.get(key, "")) is None:
            raise Refuted(f"its label {key} is {labels.get(key)!r}", "is it an image that sifmark built?")
    return Subject(path, sif, labels)


def _engine() -> Engine:
    found = engine()
    if found.version() is None:
        raise Skipped("Apptainer is not installed here")
    return found


def _matches_record(image: Subject) -> str:
    identity = image.sif.identity()
    path = record_of(image.path.with_name(f"{image.recipe}.sif"))
    if not path.is_file():
        raise Skipped(f"identity {identity}; no build record lies beside the file to hold it against")
    try:
        record = json.loads(path.read_text())
        recorded, digest = record["identity"], record["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refuted(f"its build record {path} is damaged: {error}", _AGAIN) from error
    if recorded != identity:
        raise Refuted(f"its identity is {identity}, its build recorded {recorded}", _AGAIN)
    if digest == sha256_file(image.path):
        return f"identity {identity} and digest as recorded"
    if any(entry.kind == SIGNATURE for entry in image.sif.descriptors):
        return f"identity {identity} as recorded; the file was signed since"
    raise Refuted("what would run is as recorded, but the file has changed since its build", _AGAIN)


def _matches_pin(image: Subject) -> str:
    digest, platform = image.labels[BASE_DIGEST], image.labels[PLATFORM]
    if image.recipe not in recipe_names():
        raise Skipped(f"base {digest}; no recipe {image.recipe!r} here to hold it against")
    base = load_recipe(image.recipe).base
    stand_in = image.labels[STAND_IN] == "true"
    pinned = _stand_in_of(base, platform).get("digest") if stand_in else base.digests.get(platform)
    if digest != pinned:
        raise Refuted(f"its base is {digest}, pinned is {pinned}", _AGAIN)
    return f"base: {f'a stand-in for {base.reference}' if stand_in else base.reference}, {digest} as pinned"


def _stand_in_of(base: Base, platform: str) -> dict[str, Any]:
    """The generated pin of a base's stand-in; empty where there is none."""
    pin: dict[str, Any] = stand_in_pins(settings().stand_in_pins)["bases"].get(base.reference, {}).get(platform, {})
    return pin


def _base_untouched(image: Subject) -> str:
    """Hold the tree of all that is not ours against the converted base, if the cache still has it."""
    if image.recipe not in recipe_names():
        return f"base: no recipe {image.recipe!r} here, its tree was not compared"
    bases = "stand-in" if image.labels[STAND_IN] == "true" else "pinned"
    base = converted_base(make_plan(image.recipe, overridden(bases=bases, compression=image.labels.get(COMPRESSION))))
    if not (base / "root.squashfs").is_file():
        return "base: not in the cache, its tree was not compared"
    ours = tuple(f"squashfs-root/{folder}" for folder in OURS)
    before = set(_listed(base / "root.squashfs", 0))
    after = [row for row in _listed(image.path, image.sif.system.offset) if not row[-1].startswith(ours)]
    if changed := before.symmetric_difference(after):
        names = sorted({row[-1].partition(" -> ")[0] for row in changed})
        raise Refuted(f"{len(names)} files of the base are not as they were, for example {names[0]}", _AGAIN)
    return f"{len(before)} files of the base, all as they were"


def _listed(squashfs: Path, offset: int, *folders: str) -> list[tuple[str, ...]]:
    """Mode, owner, size, date, time and name of each file in a squashfs."""
    listed = run(["unsquashfs", "-offset", str(offset), "-lls", squashfs, *folders]).output.splitlines()
    rows = [line for line in listed if line[:1] in "-dlbcps" and "squashfs-root/" in line]
    return [tuple(line.split(maxsplit=5)) for line in rows]


def _all_readable(image: Subject) -> int:
    """Count our files; raise Refuted for the first that another user could not read."""
    rows = _listed(image.path, image.sif.system.offset, *OURS)
    for mode, *_, name in rows:
        needed = "r-x" if mode[0] == "d" else "r"
        if mode[0] != "l" and not mode[7:10].startswith(needed):
            raise Refuted(f"{name} has mode {mode}: other users cannot read it", _AGAIN)
    if not rows:
        raise Refuted("it holds none of our files", _AGAIN)
    return len(rows)


def by_hand(image: Subject, workload: str) -> str:
    """How a user sees for himself."""
    return f"run it by hand to see: apptainer run {image.path} {workload} --smoke"


def _match_framework(image: Subject, seen: str | None) -> None:
    """Raise Refuted where the framework is another one than the base's."""
    if image.recipe not in recipe_names():
        return
    base = load_recipe(image.recipe).base
    stated = base.framework_version
    if image.labels[STAND_IN] == "true":
        stated = _stand_in_of(base, image.labels[PLATFORM]).get("framework_version")
    if stated is not None and not str(seen).startswith(stated):
        raise Refuted(f"its framework says version {seen}, the base has {stated}", _AGAIN)


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
        raise Refuted(f"{workload}: its result does not name the image's build key", _AGAIN)
    return result


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "outcome": verdict.outcome.value}


def _print(path: Path, verdicts: list[Verdict]) -> None:
    show(str(path))
    for verdict in verdicts:
        show(f"  {verdict.outcome.value:<8} {verdict.stage}")
        for reason in filter(None, verdict.reasons):
            show(f"           {reason}")
