"""Shared parts of exports: files, headings, and labels of runs."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sifmark.studies.overview import varying_by_group
from sifmark.studies.study import PlannedRun, Run, StudyPlan, System


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export."""

    name: str
    text: str
    executable: bool = False


def labels_of(plan: StudyPlan) -> dict[str, str]:
    """Return labels of runs by key, unique in a system: group, what varies in it, and the repeat.

    Runs that have the same on several systems name theirs.
    """
    keys = varying_by_group(plan.runs)
    labels = {planned.key: _label(planned.run, keys[planned.run.group]) for planned in plan.runs}
    several = {label for label, count in Counter(labels.values()).items() if count > 1}
    systems = {planned.key: planned.run.system for planned in plan.runs}
    return {key: f"{label} system={systems[key]}" if label in several else label for key, label in labels.items()}


def _label(run: Run, keys: Collection[str]) -> str:
    words = [run.group, *(f"{key}={run.cell[key]}" for key in run.cell if key in keys)]
    return " ".join([*words, f"repeat={run.repeat}"] if run.repeats > 1 else words)


def by_system(plan: StudyPlan) -> Iterator[tuple[str, list[PlannedRun]]]:
    """Yield the runs of each system that has some, in the order of the study."""
    for system in plan.study.systems:
        if runs := [planned for planned in plan.runs if planned.run.system == system.name]:
            yield system.name, runs


def image_of(system: System) -> str:
    """Return the image of a system as `sifmark run` finds it in any folder; a path is no option, whatever its name."""
    file = Path(system.image)
    return str(file.absolute()) if file.is_file() else system.image


def heading(plan: StudyPlan, program: str) -> list[str]:
    """Return the first lines of an export, without what makes them comments."""
    study, count = plan.study, len(plan.runs)
    title = " ".join(study.title.split())
    return [f"Study {study.name}: {title}", f"{count} runs for {program}, written by sifmark study.export."]
