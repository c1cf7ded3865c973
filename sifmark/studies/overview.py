"""A plan in a few rows: the runs of each system and group by state, and what those to do will take."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sifmark.studies.study import Group, PlannedRun, RunState, Scalar, StudyPlan


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The runs of one group on one system. Times and device hours are those of the runs to do, as far as known.

    What several groups share is in the row of each.
    """

    system: str
    group: str
    axes: str  # the product that makes the runs
    runs: int
    states: Mapping[RunState, int]
    seconds: float | None
    device_hours: float | None
    memory_gib: float | None  # the most that one device needs, at least
    unknown: int  # runs to do whose time is unknown


@dataclass(frozen=True, slots=True)
class Remark:
    """Why runs of a group failed, cannot run, or what is to be said of those to do."""

    state: RunState
    system: str
    group: str
    reason: str
    cells: tuple[str, ...]  # what distinguishes the cells, such as `precision=fp32 batch_size=256`
    runs: int


@dataclass
class _Heap:
    planned: list[PlannedRun] = field(default_factory=list)


def rows_of(plan: StudyPlan) -> list[PlanRow]:
    """Return a row for each system and group, in the order of the plan."""
    groups = {group.name: group for group in plan.study.groups}
    heaps: dict[tuple[str, str], _Heap] = {}
    for each in plan.cells:
        heaps.setdefault((each.run.system, each.run.group), _Heap()).planned.append(each)
    systems, order = list(plan.images), list(groups)
    names = sorted(heaps, key=lambda name: (systems.index(name[0]), order.index(name[1])))
    return [_row(system, groups[group], heaps[system, group].planned) for system, group in names]


def remarks_of(plan: StudyPlan) -> list[Remark]:
    """Return the reasons of runs, equal ones together, in the order of the plan."""
    axes = {group.name: _varying(group) for group in plan.study.groups}
    heaps: dict[tuple[RunState, str, str, str], _Heap] = {}
    for each in plan.cells:
        if each.reason:
            kind = (each.state, each.run.system, each.run.group, each.reason)
            heaps.setdefault(kind, _Heap()).planned.append(each)
    return [
        Remark(*kind, tuple(dict.fromkeys(describe(each, axes[kind[2]]) for each in heap.planned)), len(heap.planned))
        for kind, heap in heaps.items()
    ]


def describe(planned: PlannedRun, keys: Iterable[str]) -> str:
    """Return what distinguishes a run by some keys of its cell: `precision=fp32 batch_size=256`."""
    cell: Mapping[str, Scalar] = planned.run.cell
    return " ".join(f"{key}={_text(cell[key])}" for key in keys if key in cell)


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if there are values and none is known."""
    listed = list(values)
    numbers = [value for value in listed if value is not None]
    return sum(numbers) if numbers or not listed else None


def _row(system: str, group: Group, planned: list[PlannedRun]) -> PlanRow:
    waiting = [each for each in planned if each.state is RunState.TO_DO]
    memory = [each.memory_gib for each in planned if each.memory_gib is not None]
    return PlanRow(
        system=system,
        group=group.name,
        axes=_axes(group, planned),
        runs=len(planned),
        states=Counter(each.state for each in planned),
        seconds=total(each.seconds for each in waiting),
        device_hours=total(each.device_hours for each in waiting),
        memory_gib=max(memory, default=None),
        unknown=sum(each.seconds is None for each in waiting),
    )


def _axes(group: Group, planned: list[PlannedRun]) -> str:
    """Return the product of a group's axes: `precision 2 x batch_size 6 x repeat 3`, and how many runs are left out."""
    sizes = [f"{key} {len(group.axes[key])}" for key in _varying(group)]
    sizes += [f"repeat {group.repeats}"] if group.repeats > 1 else []
    product = 1
    for values in group.axes.values():
        product *= len(values)
    missing = product * group.repeats - len(planned)
    return " x ".join(sizes) + (f" - {missing}" if missing else "")


def _varying(group: Group) -> tuple[str, ...]:
    return tuple(key for key, values in group.axes.items() if len(values) > 1)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
