"""Expansion of a study into runs: the product of a group's axes gives its cells, each with several repeats."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from sifmark.core.errors import UsageError
from sifmark.studies.image_options import arguments_of, division_of
from sifmark.studies.study import Group, Run, Scalar, Study, System

MOST_RUNS = 100_000
Values = Mapping[str, tuple[Scalar, ...]]


def expand(study: Study, systems: Sequence[System]) -> tuple[Run, ...]:
    """Return the runs of a study on some of its systems, repeats outermost, so that drift affects all alike.

    Raises UsageError if they are too many.
    """
    first = [run for group in study.groups for run in _first_repeats(group, systems)]
    total = sum(run.repeats for run in first)
    if total > MOST_RUNS:
        cause = f"{study.file}: {total:,} runs on {len(systems)} systems, and a study has at most {MOST_RUNS:,}"
        raise UsageError(cause, "choose fewer systems: --system NAME", code="study-invalid")
    most = max((run.repeats for run in first), default=0)
    later = (_repeated(run, repeat) for repeat in range(2, most + 1) for run in first if repeat <= run.repeats)
    return (*first, *later)


def cells_of(group: Group) -> Iterator[dict[str, Scalar]]:
    """Yield the cells of a group: the product of its axes, as `except` and `only` leave it; the first axis slowest."""
    more: dict[str, Scalar] = {"scaling": group.scaling} if group.scaling else {}
    for values in product(*group.axes.values()):
        cell = dict(zip(group.axes, values, strict=True))
        if not (group.only and not _matches_any(cell, group.only)) and not _matches_any(cell, group.except_):
            yield cell | more


def _first_repeats(group: Group, systems: Sequence[System]) -> Iterator[Run]:
    chosen = [system for system in systems if not group.systems or system.name in group.systems]
    cells = list(cells_of(group)) if chosen else []
    for system in chosen:
        for cell in cells:
            division = division_of(cell, system)
            arguments = arguments_of(cell, division, system.arguments)
            yield Run(system.name, group.name, cell, arguments, division.devices, division.nodes, 1, group.repeats)


def _repeated(run: Run, repeat: int) -> Run:
    """Return the same run as another repeat; both share their cell and arguments."""
    return Run(run.system, run.group, run.cell, run.arguments, run.devices, run.nodes, repeat, run.repeats)


def _matches_any(cell: Mapping[str, Scalar], conditions: Sequence[Values]) -> bool:
    return any(all(cell.get(key) in values for key, values in each.items()) for each in conditions)
