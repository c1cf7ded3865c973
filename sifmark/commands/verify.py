"""The verify command: check images in stages, and print what each stage found."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sifmark.core.checks import Status
from sifmark.core.console import output, printable
from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.core.settings import Settings
from sifmark.engines.locate import engine_for, locate, names_file
from sifmark.recipes.names import find_images
from sifmark.trust.stages import STAGES, Stage, StageResult, verify


def verify_images(name: str, settings: Settings, as_json: bool, stages: str = "", signed: bool = False) -> None:
    """Verify the images that a name, a glob or a path refers to; `stages` are names with commas, empty for all.

    With `signed` a signature by a trusted key is required, as it is if the settings say so. Raises SifmarkError if a
    stage fails.
    """
    selected = select_stages(stages)
    engine = engine_for(name, settings)
    names = [name] if names_file(name) else [image.name for image in find_images(name)]
    addresses = [locate(each, engine) for each in names]
    results = {address: verify(engine, address, settings, selected, signed) for address in addresses}
    if as_json:
        documents = {address: [stage_document(each) for each in stages] for address, stages in results.items()}
        output(json.dumps(documents, indent=2))
    else:
        _print(results)
    failed = [Path(address).name for address, stages in results.items() if _any_failed(stages)]
    if failed:
        remedy = "the failed stages above say what is wrong"
        raise SifmarkError(f"not verified: {', '.join(failed)}", remedy, code="verification-failed")


def select_stages(names: str) -> Sequence[Stage]:
    """Return the stages that a list with commas names, in their own order; all if it is empty. Raises UsageError."""
    by_name = {stage.name: stage for stage in STAGES}
    wanted = [name.strip() for name in names.split(",")] if names else list(by_name)
    for name in wanted:
        if name not in by_name:
            raise unknown_name("stage", name, by_name)
    return [stage for name, stage in by_name.items() if name in wanted]


def stage_document(result: StageResult) -> dict[str, Any]:
    """Return a stage's outcome as programs read it."""
    return {"stage": result.check.name, "outcome": result.check.status.value, "reasons": _reasons(result)}


def _reasons(result: StageResult) -> list[str]:
    """Return what was found, and for a failure its remedy."""
    return [*result.findings, *([result.check.remedy] if result.check.status is Status.FAILED else [])]


def _any_failed(results: Sequence[StageResult]) -> bool:
    return any(result.check.status is Status.FAILED for result in results)


def _print(results: Mapping[str, Sequence[StageResult]]) -> None:
    for address, stages in results.items():
        output(address)
        for result in stages:
            output(f"  {result.check.status.value:<8} {result.check.name}")
            for reason in filter(None, _reasons(result)):
                output(f"           {printable(reason)}")
