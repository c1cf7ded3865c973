"""Export of a study's runs to another program."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmark.core.errors import UsageError, unknown_name
from sifmark.core.files import atomic_path
from sifmark.core.settings import Settings
from sifmark.core.shell import comment, word
from sifmark.engines.binds import with_absolute_paths
from sifmark.studies.exports.exported import ExportedFile, by_system, heading
from sifmark.studies.exports.jube import jube_files
from sifmark.studies.exports.reframe import reframe_files
from sifmark.studies.exports.shell import shell_files
from sifmark.studies.slurm.images import started_image
from sifmark.studies.slurm.options import JobOptions, job_options, limit_of
from sifmark.studies.slurm.script import script_of
from sifmark.studies.slurm.submit import render_runs
from sifmark.studies.study import RunState, StudyPlan

_SBATCH = "sbatch"


@dataclass(frozen=True)
class Export:
    """What a format is made of."""

    plan: StudyPlan
    place: Path
    settings: Settings

    @property
    def elsewhere(self) -> "Export":
        """The same with absolute paths in arguments, for programs that start each run in a separate folder."""
        runs = tuple(
            replace(each, run=replace(each.run, arguments=with_absolute_paths(each.run.arguments)))
            for each in self.plan.runs
        )
        return replace(self, plan=replace(self.plan, runs=runs))

    def options(self) -> dict[str, JobOptions]:
        """Return the options of jobs by system."""
        return {
            system.name: job_options(
                self.settings.slurm, system.slurm, f"{self.plan.study.file}: system {system.name}: slurm"
            )
            for system in self.plan.study.systems
        }

    def seconds(self) -> dict[str, int]:
        """Return by key how long runs may take."""
        options = self.options()
        return {each.key: limit_of(each.seconds, options[each.run.system]) for each in self.plan.runs}


def _reframe(export: Export) -> Iterable[ExportedFile]:
    export = export.elsewhere
    options = export.options()
    systems = {system.name: system for system in export.plan.study.systems}
    images = {
        name: started_image(
            systems[name], replace(options[name], start_with="apptainer"), export.settings, runs, own_folders=True
        )
        for name, runs in by_system(export.plan)
    }
    return reframe_files(export.plan, images, export.seconds())


def _jube(export: Export) -> Iterable[ExportedFile]:
    export = export.elsewhere
    return jube_files(export.plan, export.options(), export.seconds())


def _shell(export: Export) -> Iterable[ExportedFile]:
    return shell_files(export.plan, Path.cwd())


def _sbatch(export: Export) -> Iterator[ExportedFile]:
    """Yield the script and list of runs of each job array, and a script that submits all.

    They are those by which `study.run --on slurm` submits. Raises SifmarkError where an image or data are missing.
    """
    lines = ["#!/usr/bin/env bash", *map(comment, heading(export.plan, "Slurm")), "set -euo pipefail"]
    for number, rendered in enumerate(render_runs(export.plan, export.settings), start=1):
        name = f"{export.plan.study.name}-{number}-{rendered.array.shape.text}"
        array = replace(rendered.array, name=name, folder=export.place.absolute())
        lines.append(f"sbatch {word(str(array.script))}")
        yield ExportedFile(array.script.name, script_of(array), executable=True)
        yield ExportedFile(array.list.name, array.lines)
        # Folders that tasks write to; Slurm does not make them.
        yield from (ExportedFile(f"{folder.name}/.keep", "") for folder in (array.logs,))
    yield ExportedFile("submit.sh", "\n".join(lines) + "\n", executable=True)


FORMATS: Mapping[str, Callable[[Export], Iterable[ExportedFile]]] = {
    "reframe": _reframe,
    "jube": _jube,
    "shell": _shell,
    _SBATCH: _sbatch,
}


def export_study(plan: StudyPlan, form: str, place: Path, settings: Settings) -> list[Path]:
    """Write the files of an export into a folder, and return their paths.

    Raises UsageError if no run can be done, SifmarkError where an image or data are missing.
    """
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place} is no folder", "name a folder: -o FOLDER", code="invalid-option")
    runs = tuple(planned for planned in plan.runs if planned.state is not RunState.CANNOT_RUN)
    if not runs:
        remedy = f"see why: sifmark study.plan {plan.study.words}"
        raise UsageError(f"study {plan.study.name} has no run that could be exported", remedy, code="study-invalid")
    files = list(FORMATS[form](Export(replace(plan, runs=runs), place, settings)))
    for folder in {planned.result.parent for planned in runs if form == _SBATCH}:
        folder.mkdir(parents=True, exist_ok=True)  # which jobs write to
    return [_write(place, file) for file in files]


def _write(place: Path, file: ExportedFile) -> Path:
    target = place / file.name
    with atomic_path(target) as draft:
        draft.write_text(file.text, encoding="utf-8", errors="surrogateescape")  # as paths have it
        draft.chmod(0o755 if file.executable else 0o644)
    return target
