"""The verify verb: named stages, each passed, failed or skipped with its reasons."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sifmark import house, render
from sifmark.build import record_of
from sifmark.console import show, step
from sifmark.engines.apptainer import Apptainer
from sifmark.errors import SifmarkError
from sifmark.execute import locate
from sifmark.files import sha256_file
from sifmark.golden import REFRESH, differences
from sifmark.images import find_images
from sifmark.plan import BUILD_KEY, LABEL, RECIPE, STAND_IN
from sifmark.reading import document_problems
from sifmark.recipe import load_recipe, recipe_names
from sifmark.run import run
from sifmark.settings import settings
from sifmark.sif import Sif, read_sif


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


class Refuted(SifmarkError):  # noqa: N818 - named for what it says
    """A check found the image not to be what it should be."""


class Skipped(Exception):  # noqa: N818 - it is no error
    """A stage cannot be judged here."""


def verify_images(name: str, as_json: bool) -> None:
    """Verify what a name, a glob or a path means, and print it. Raises SifmarkError when a stage fails."""
    paths = [locate(name)] if name.endswith(".sif") else [locate(image.name) for image in find_images(name)]
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


def trust(path: Path) -> list[str]:
    """Is it the file that was built, on the base that the recipe pins?"""
    image = read_sif(path)
    said = [_matches_record(path, image), _matches_pin(image.labels())]
    return [*said, "signature: not checked; this version does not sign"]


def structure(path: Path) -> list[str]:
    """Does the engine see our labels, apps and run script, and may any user read our files?"""
    labels, seen = read_sif(path).labels(), _engine().inspect(path)
    if seen.labels != labels:
        raise Refuted("Apptainer shows other labels than the file's metadata holds", "build it again")
    workloads = tuple(sorted(labels.get(f"{LABEL}.workloads", "").split(",")))
    if seen.apps != workloads:
        raise Refuted(f"its apps are {seen.apps}, its label says {workloads}", "build it again")
    if render.run_script() not in seen.runscript:
        raise Refuted("its run script does not start our entrypoint", "build it again")
    return [
        f"{len(labels)} labels, apps {', '.join(workloads)}",
        f"{_all_readable(path)} files of ours, all readable",
    ]


def smoke(path: Path) -> list[str]:
    """Does it test itself, and answer a small run of each workload with a valid result?"""
    engine = _engine()
    isolated = ("--containall", "--cleanenv")
    run(engine.command(path, "test", options=isolated), time_limit=settings().time_limit)
    said = ["self-test passed"]
    labels = read_sif(path).labels()
    for workload in labels[f"{LABEL}.workloads"].split(","):
        argv = engine.command(path, "run", [workload, "--smoke"], isolated)
        said.append(_judge_answer(workload, labels, run(argv, time_limit=settings().time_limit).output))
    return said


def golden(path: Path) -> list[str]:
    """Does the recipe still render what was last reviewed?"""
    if not house.IS_CHECKOUT:
        raise Skipped("only a clone has the reviewed texts")
    recipe = read_sif(path).labels().get(RECIPE, "")
    if recipe not in recipe_names():
        raise Skipped(f"this clone has no recipe {recipe!r}")
    if changed := differences(recipe):
        raise Refuted(f"rendered text differs from tests/golden: {', '.join(changed)}", REFRESH)
    return ["definition and Dockerfile are as reviewed"]


STAGES: tuple[Callable[[Path], list[str]], ...] = (trust, structure, smoke, golden)


def _judge(stage: Callable[[Path], list[str]], path: Path) -> Verdict:
    with step(f"{path.name}: {stage.__name__}"):
        try:
            return Verdict(stage.__name__, Outcome.PASSED, tuple(stage(path)))
        except Skipped as reason:
            return Verdict(stage.__name__, Outcome.SKIPPED, (str(reason),))
        except SifmarkError as error:
            return Verdict(stage.__name__, Outcome.FAILED, (error.cause, error.remedy))


def _engine() -> Apptainer:
    engine = Apptainer()
    if engine.version() is None:
        raise Skipped("Apptainer is not installed here")
    return engine


def _matches_record(path: Path, image: Sif) -> str:
    identity = image.identity()
    record = record_of(path.with_name(f"{image.labels().get(RECIPE, '')}.sif"))
    if not record.is_file():
        return f"identity {identity}; no build record lies beside the file to hold it against"
    recorded = json.loads(record.read_text())
    if recorded["identity"] != identity:
        raise Refuted(f"its identity is {identity}, its build recorded {recorded['identity']}", "build it again")
    if recorded["digest"] != sha256_file(path):
        return f"identity {identity} as recorded; the file's digest is another, as after signing"
    return f"identity {identity} and digest as recorded"


def _matches_pin(labels: dict[str, str]) -> str:
    missing = [key for key in (RECIPE, BUILD_KEY, STAND_IN) if key not in labels]
    if missing:
        raise Refuted(f"it lacks the labels {', '.join(missing)}", "is it an image that sifmark built?")
    if labels[STAND_IN] == "true":
        return "base: a stand-in, as its label says"
    digest = labels.get("org.opencontainers.image.base.digest")
    recipe = labels[RECIPE]
    if recipe not in recipe_names():
        return f"base {digest}; no recipe {recipe!r} here to hold it against"
    pinned = load_recipe(recipe).base.digests.get(labels.get(f"{LABEL}.platform", ""))
    if digest != pinned:
        raise Refuted(f"its base is {digest}, the recipe pins {pinned}", f"build it again: inv build {recipe}")
    return f"base {digest} as pinned"


def _all_readable(path: Path) -> int:
    """Count our files; raise Refuted for the first that another user could not read."""
    offset = str(read_sif(path).system.offset)
    listed = run(["unsquashfs", "-offset", offset, "-lls", path, render.SITE, render.CODE, render.APPS]).output
    rows = [line.split(maxsplit=5) for line in listed.splitlines() if line[:1] in "-dl" and "squashfs-root/" in line]
    for mode, *_, name in rows:
        needed = "r-x" if mode[0] == "d" else "r"
        if mode[0] != "l" and not mode[7:10].startswith(needed):
            raise Refuted(f"{name} has mode {mode}: other users cannot read it", "build it again")
    if not rows:
        raise Refuted("it holds none of our files", "build it again")
    return len(rows)


def _judge_answer(workload: str, labels: dict[str, str], answer: str) -> str:
    try:
        result: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise Refuted(f"{workload} did not answer with JSON alone: {error}", "run it by hand to see") from error
    if problems := document_problems(result):
        raise Refuted(f"{workload}: its result is not valid: {problems[0]}", "run it by hand to see")
    image = result["provenance"]["image"]
    if image is None or image["build_key"] != labels[BUILD_KEY]:
        raise Refuted(f"{workload}: its result does not name the image's build key", "build it again")
    framework = result["provenance"]["software"]
    return f"{workload}: {result['status']['state']}, {framework['framework']} {framework['framework_version']}"


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "outcome": verdict.outcome.value}


def _print(path: Path, verdicts: list[Verdict]) -> None:
    show(str(path))
    for verdict in verdicts:
        show(f"  {verdict.outcome.value:<8} {verdict.stage}")
        for reason in filter(None, verdict.reasons):
            show(f"           {reason}")
