"""A study as job arrays of a scheduler: the scripts by which sifmark submits runs itself, to be submitted by hand."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sifmark.core.settings import Settings
from sifmark.studies.exports.exported import ExportedFile, heading
from sifmark.studies.schedulers.dialects.rendering import script_of
from sifmark.studies.schedulers.jobs import JobArray
from sifmark.studies.schedulers.submit import render_runs
from sifmark.studies.study import StudyPlan

# How a script is submitted, by scheduler. `{count}` is the number of runs in the array.
_SUBMIT = {
    "slurm": "sbatch {script}",
    "flux": "flux batch --cc=1-{count} {script}",
    "pbs": "qsub {script}",
    "lsf": "bsub < {script}",
}


def batch_files(plan: StudyPlan, scheduler: str, place: Path, settings: Settings) -> Iterator[ExportedFile]:
    """Yield a script and a list of runs for each array, and a script that submits all.

    Raises SifmarkError where an image or data are missing.
    """
    arrays = []
    for number, rendered in enumerate(render_runs(plan, settings, scheduler), start=1):
        shape = rendered.array.shape
        array = replace(rendered.array, name=f"{plan.study.name}-{number}-{shape.text}", folder=place.absolute())
        arrays.append(array)
        yield ExportedFile(array.script.name, script_of(array, scheduler), executable=True)
        yield ExportedFile(array.list.name, array.lines)
        # Folders that jobs write to; a scheduler does not make them.
        yield from (ExportedFile(f"{folder.name}/.keep", "") for folder in (array.records, array.logs))
    yield ExportedFile("submit.sh", "\n".join(_submission(plan, scheduler, arrays)) + "\n", executable=True)


def _submission(plan: StudyPlan, scheduler: str, arrays: list[JobArray]) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield from (f"# {line}" for line in heading(plan, scheduler))
    yield "set -euo pipefail"
    for array in arrays:
        yield _SUBMIT[scheduler].format(script=shlex.quote(str(array.script)), count=len(array.elements))
