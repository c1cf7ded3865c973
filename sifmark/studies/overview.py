"""Tables of a plan: rows by system and group with states and times, matrices of cells, and labels of runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sifmark.studies.outcomes import OUT_OF_MEMORY
from sifmark.studies.running.budget import size_of
from sifmark.studies.study import NOTHING, Cause, Group, PlannedRun, Reason, Run, RunState, Scalar, StudyPlan

FIRST_COLUMNS = ("batch_size",)  # that are columns wherever they vary
_SHORT = {OUT_OF_MEMORY: "OOM", "time_limit": "time", Cause.TIME_LIMIT: "time", Cause.MEMORY_LIMIT: "memory"}
_CONSTANTS = ("workload", "task", "precision")  # what a table's title says of its runs


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The runs of one group on one system. Times and device hours are those of the runs to do, where known.

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
    jobs: tuple[str, ...] = ()  # in which they wait or run


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
        if each.reason or each.job:
            kind = (each.state, each.run.system, each.run.group, str(each.reason))
            heaps.setdefault(kind, _Heap()).planned.append(each)
    return [
        Remark(
            *kind,
            cells=tuple(dict.fromkeys(describe(each, axes[kind[2]]) for each in heap.planned)),
            runs=len(heap.planned),
            jobs=jobs_of(heap.planned),
        )
        for kind, heap in heaps.items()
    ]


def jobs_of(runs: Iterable[PlannedRun]) -> tuple[str, ...]:
    """Return the jobs in which some runs wait or run."""
    return tuple(dict.fromkeys(each.job.partition("_")[0] for each in runs if each.job))


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
    """Return the product of a group's axes: `2 of precision x 6 of batch_size x 3 repeats`, less what is left out."""
    sizes = [f"{len(group.axes[key])} of {key}" for key in _varying(group)]
    sizes += [f"{group.repeats} repeats"] if group.repeats > 1 else []
    product = 1
    for values in group.axes.values():
        product *= len(values)
    missing = product * group.repeats - len(planned)
    return " x ".join(sizes) + (f" - {missing}" if missing else "")


def _varying(group: Group) -> tuple[str, ...]:
    return tuple(key for key, values in group.axes.items() if len(values) > 1)


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class MatrixCell:
    """The repeats of a cell of a study on one system."""

    group: str
    system: str
    cell: Mapping[str, Scalar]
    runs: tuple[PlannedRun, ...]

    @property
    def counts(self) -> Counter[RunState]:
        """How many of the repeats are in which state."""
        return Counter(planned.state for planned in self.runs)

    @property
    def reason(self) -> Reason:
        """The first reason of a failure; else what all of them have to say."""
        failed = [planned.reason for planned in self.runs if planned.state is RunState.FAILED]
        return failed[0] if failed else next((planned.reason for planned in self.runs if planned.reason), NOTHING)

    @property
    def largest_batches(self) -> list[int]:
        """The sizes that repeats which searched for the largest came to, in their order."""
        return sorted({each.batch_size for each in self.runs if each.batch_size and each.state is RunState.DONE})

    @property
    def _largest(self) -> str:
        sizes = self.largest_batches
        return f" max={'..'.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))}" if sizes else ""

    @property
    def text(self) -> str:
        """The cell in a few characters: `3/3`, `3/3 max=64`, `OOM`, `time`, `failed(crashed)`, `1/3 running`, `-`."""
        counts = self.counts
        fraction = f"{counts[RunState.DONE]}/{len(self.runs)}"
        some = f"{fraction} " if counts[RunState.DONE] else ""
        for state in (RunState.RUNNING, RunState.QUEUED):
            if counts[state]:
                return f"{some}{state.value}"
        if counts[RunState.FAILED]:
            return some + _short(self.reason)
        if counts[RunState.DONE]:
            all_alike = {planned.reason.cause for planned in self.runs} == {OUT_OF_MEMORY}
            return _SHORT[OUT_OF_MEMORY] if all_alike else f"{fraction}{self._largest}"
        return "cannot" if counts[RunState.CANNOT_RUN] else "-"


@dataclass(frozen=True)
class Matrix:
    """The cells of a group of runs, laid out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def cells_of_plan(plan: StudyPlan) -> list[MatrixCell]:
    """Return the cells of a plan in its order, groups in that of the study."""
    order = {group.name: number for number, group in enumerate(plan.study.groups)}
    cells: dict[tuple[object, ...], list[PlannedRun]] = {}
    for planned in sorted(plan.cells, key=lambda planned: order.get(planned.run.group, len(order))):
        run = planned.run
        cells.setdefault((run.group, run.system, *run.cell.items()), []).append(planned)
    return [MatrixCell(_run(each).group, _run(each).system, _run(each).cell, tuple(each)) for each in cells.values()]


def matrices(cells: Sequence[MatrixCell]) -> list[Matrix]:
    """Return the cells as one table for each group, in the order of the groups."""
    return [
        _matrix(group, [cell for cell in cells if cell.group == group])
        for group in dict.fromkeys(cell.group for cell in cells)
    ]


def varying(cells: Iterable[Mapping[str, Scalar]]) -> dict[str, list[Scalar]]:
    """Return the keys that have several values, with these in their order: numbers by size, others as they come."""
    values: dict[str, dict[Scalar, None]] = {}
    for cell in cells:
        for key, value in cell.items():
            values.setdefault(key, {})[value] = None
    return {key: _in_order(list(each)) for key, each in values.items() if len(each) > 1}


def varying_by_group(runs: Iterable[PlannedRun]) -> dict[str, dict[str, list[Scalar]]]:
    """Return by group the keys that have several values among its runs."""
    cells: dict[str, list[Mapping[str, Scalar]]] = {}
    for planned in runs:
        cells.setdefault(planned.run.group, []).append(planned.run.cell)
    return {group: varying(each) for group, each in cells.items()}


class Labels:
    """Labels of the runs of a plan."""

    def __init__(self, plan: StudyPlan) -> None:
        self._keys = varying_by_group(plan.cells)

    def of(self, planned: PlannedRun) -> str:
        """Return the label of a run: its system, its workload, and what distinguishes it in its group."""
        run = planned.run
        named = ("workload", "task", *(key for key in self._keys[run.group] if key not in ("workload", "task")))
        words = [_worded(key, run.cell[key]) for key in named if key in run.cell]
        repeat = f" ({run.repeat}/{run.repeats})" if run.repeats > 1 else ""
        return f"{run.system}: {' '.join(words)}{repeat}"


def _matrix(group: str, cells: Sequence[MatrixCell]) -> Matrix:
    axes = varying(cell.cell for cell in cells)
    across = _columns_axis(axes)
    series = [key for key in axes if key != across]
    values = axes.get(across, [""])
    rows: dict[tuple[str, ...], dict[Scalar, str]] = {}
    for cell in cells:
        row = (cell.system, *(str(cell.cell.get(key, "")) for key in series))
        rows.setdefault(row, {})[cell.cell.get(across, "")] = cell.text
    constants = [_worded(key, cells[0].cell[key]) for key in _CONSTANTS if key in cells[0].cell and key not in axes]
    title = f"{group}: {' '.join(constants)}" + (f", by {across.replace('_', ' ')}" if across else "")
    columns = ("system", *(key.replace("_", " ") for key in series), *map(str, values if across else ["runs"]))
    return Matrix(
        title, columns, tuple((*row, *(texts.get(value, "") for value in values)) for row, texts in rows.items())
    )


def _columns_axis(axes: Mapping[str, Sequence[Scalar]]) -> str:
    first = next((key for key in FIRST_COLUMNS if key in axes), "")
    return first or max(axes, key=lambda key: len(axes[key]), default="")


def _in_order(values: list[Scalar]) -> list[Scalar]:
    sizes = {value: size for value in values if (size := size_of(value)) is not None}
    return sorted(values, key=sizes.__getitem__) if len(sizes) == len(values) else values


def _worded(key: str, value: Scalar) -> str:
    """Return a value with the name of its key where the value alone does not say what it is."""
    is_clear = isinstance(value, str) and key in (*_CONSTANTS, "strategy")
    return str(value) if is_clear else f"{key.replace('_', ' ')} {value}"


def _short(reason: Reason) -> str:
    """Return how runs failed, in a word."""
    return _SHORT.get(reason.cause, f"failed({reason.cause})")


def _run(runs: Sequence[PlannedRun]) -> Run:
    return runs[0].run
