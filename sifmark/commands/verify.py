"""The verify command: check images in stages, and print what each stage found."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sifmark.commands.answers import Table, answer
from sifmark.commands.pipelines import folded, write_junit
from sifmark.core.checks import Status
from sifmark.core.console import detail, output, paint, printable
from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.core.keys import key_files
from sifmark.core.settings import Settings
from sifmark.engines.locate import engine_for, locate, names_file
from sifmark.recipes.names import find_images, recipes_in, smallest_image
from sifmark.trust.stages import STAGES, TRUST, Stage, StageResult, verify

Results = Mapping[str, Sequence[StageResult]]  # by the image's address


def verify_images(
    names: Iterable[str],
    settings: Settings,
    form: str,
    stages: str = "",
    require: str = "",
    signed: bool = False,
    junit: str = "",
) -> None:
    """Verify the images that names, globs or paths refer to; `stages` are names with commas, empty for all.

    With `signed` a trusted signature is required, as it is if the settings say so. A recipe's image is verified once,
    whatever its names. `junit` is a file for a report, or empty. Raises SifmarkError if a stage fails, or if one of
    the stages in `require` was skipped; where the variable CI is set, `trust` is required.
    """
    key_files(settings.keys)  # a key that is not there is reported first
    selected = select_stages(stages)
    required = {stage.name for stage in select_stages(require)} if require else default_required(selected)
    targets = dict.fromkeys(target for name in names for target in _targets(name))
    results = {}
    for name in targets:
        engine = engine_for(name, settings)
        address = locate(name, engine)
        with folded(f"verify {Path(address).name}"):
            results[address] = verify(engine, address, settings, selected, signed)
    documents = {address: [stage_document(each) for each in stages] for address, stages in results.items()}
    answer(form, documents, _table(results), lambda: _show(results), summary="Verified images")
    if junit:
        suites = {address: [result.check for result in stages] for address, stages in results.items()}
        write_junit(Path(junit), suites)
    _judge(results, required)


def select_stages(names: str) -> Sequence[Stage]:
    """Return the stages that a list with commas names, in their own order; all if it is empty. Raises UsageError."""
    by_name = {stage.name: stage for stage in STAGES}
    wanted = [name.strip() for name in names.split(",")] if names else list(by_name)
    for name in wanted:
        if name not in by_name:
            raise unknown_name("stage", name, by_name)
    return [stage for name, stage in by_name.items() if name in wanted]


def default_required(selected: Sequence[Stage]) -> set[str]:
    """Return the stages that must not be skipped if nothing was said: in CI `trust`, if it is selected."""
    return {TRUST.name} & {stage.name for stage in selected} if os.environ.get("CI") else set()


def stage_document(result: StageResult) -> dict[str, Any]:
    """Return a stage's outcome as programs read it."""
    return {"stage": result.check.name, "outcome": result.check.status.value, "reasons": _reasons(result)}


def _targets(name: str) -> list[str]:
    """Return a file, or for each recipe that a pattern matches its smallest image: all are the same file."""
    if names_file(name):
        return [name]
    images = find_images(name)
    if len(images) == 1:
        return [images[0].name]
    detail(f"  {name}: {', '.join(image.name for image in images)}")
    return [smallest_image(recipe) for recipe in recipes_in(images)]


def _judge(results: Results, required: set[str]) -> None:
    failed = _names(results, lambda result: result.check.status is Status.FAILED)
    if failed:
        remedy = "the failed stages above say what is wrong"
        raise SifmarkError(f"not verified: {', '.join(failed)}", remedy, code="verification-failed")
    skipped = _names(results, lambda result: result.check.status is Status.SKIPPED and result.check.name in required)
    if skipped:
        cause = f"not verified: {', '.join(skipped)}: a required stage was skipped ({', '.join(sorted(required))})"
        remedy = "give a trusted key with --key, or choose with --require which stages must not be skipped"
        raise SifmarkError(cause, remedy, code="verification-failed")


def _names(results: Results, applies: Callable[[StageResult], bool]) -> list[str]:
    return [Path(address).name for address, stages in results.items() if any(map(applies, stages))]


def _reasons(result: StageResult) -> list[str]:
    """Return what was found, and for a failure its remedy."""
    return [*result.findings, *([result.check.remedy] if result.check.status is Status.FAILED else [])]


def _table(results: Results) -> Table:
    rows = [
        (address, result.check.name, result.check.status.value, "; ".join(filter(None, _reasons(result))))
        for address, stages in results.items()
        for result in stages
    ]
    return Table(("image", "stage", "outcome", "reasons"), rows)


def _show(results: Results) -> None:
    for address, stages in results.items():
        output(address)
        for result in stages:
            outcome = result.check.status.value
            output(f"  {paint(f'{outcome:<8}', word=outcome)} {result.check.name}")
            for reason in filter(None, _reasons(result)):
                output(f"           {printable(reason)}")
    counts = Counter(result.check.status.value for stages in results.values() for result in stages)
    output(", ".join(f"{count} {'stage' if count == 1 else 'stages'} {state}" for state, count in counts.items()))
