"""What studies look like on a terminal and to programs: their plans, states, and progress."""

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sifmark.commands.answers import Table, answer
from sifmark.core.console import counted, fold
from sifmark.core.terminal import can_draw, output, output_can_show, output_table, output_width, paint, status, step
from sifmark.engines.progress import ProgressPipe
from sifmark.results.numbers import format_seconds
from sifmark.results.summary import NO_RESULT, main_figure
from sifmark.studies.estimate import Estimates
from sifmark.studies.library import RunCommand, Watcher
from sifmark.studies.overview import (
    Labels,
    MatrixCell,
    PlanRow,
    Remark,
    cells_of_plan,
    jobs_of,
    matrices,
    remarks_of,
    rows_of,
    total,
)
from sifmark.studies.running.runner import Ended, PipeFor, Progress, no_pipe
from sifmark.studies.study import PlannedRun, RunState, StudyPlan

if TYPE_CHECKING:
    from sifmark.studies.slurm.jobs import JobArray
    from sifmark.studies.slurm.submit import SubmittedArray

_FULL, _EMPTY = "█", "░"
MOST_CELLS = 3  # of a reason
MOST_REMARKS = 20
MOST_FAILURES = 10  # listed below the tables of states
_ENDED = (RunState.DONE, RunState.FAILED, RunState.CANNOT_RUN)
_STATUS_COLUMNS = ("group", "system", "cell", "state", "done", "runs", "reason")

Show = Callable[[str, int, int, Mapping[str, str]], None]  # in words, runs done, of how many, those in progress by key


def show_plan(plan: StudyPlan, form: str) -> None:
    """Print the plan of a study."""
    rows = rows_of(plan)
    remarks = remarks_of(plan)
    table = Table(
        ["system", "runs of", "axes", "runs", *RunState, "seconds", "device_hours", "memory_gib"],
        [*map(_plan_cells, rows)],
    )
    answer(form, _plan_document(plan, rows, remarks), table, lambda: _show_rows(plan, rows, remarks))


def _plan_cells(row: PlanRow) -> list[Any]:
    states = [row.states.get(state, 0) for state in RunState]
    return [row.system, row.group, row.axes, row.runs, *states, row.seconds, row.device_hours, row.memory_gib]


def _show_rows(plan: StudyPlan, rows: list[PlanRow], remarks: list[Remark]) -> None:
    _say(plan.study.title)
    for system, identity in plan.images.items():
        _say(f"  {system}: {identity[:19] or _image_reason(plan, system)}", indent=4)
    states = [state for state in RunState if any(state in row.states for row in rows)]
    states = [] if states == [RunState.TO_DO] else states  # of a study that nobody has begun
    several = _has_several_devices(plan)
    columns = ["system", "runs of", "axes", "runs", *states, "time", *["device hours"] * several, "memory"]
    cells = []
    for row in rows:
        needs = [_time(row.seconds, row.unknown), *[_hours(row.device_hours)] * several, _memory(row.memory_gib)]
        cells.append([row.system, row.group, row.axes, row.runs, *(row.states.get(each, 0) for each in states), *needs])
    output_table(*columns, rows=cells)
    for remark in remarks[:MOST_REMARKS]:
        # Why an image is not here was shown above, once for each system.
        if remark.state is not RunState.TO_DO or remark.reason != _image_reason(plan, remark.system):
            _say(_remark(remark), indent=2)
    if len(remarks) > MOST_REMARKS:
        output(f"... and {counted(len(remarks) - MOST_REMARKS, 'more reason')}: --json has all")
    _say(_sum(plan), indent=2)


def _time(seconds: float | None, unknown: int) -> str:
    if seconds is None:
        return "unknown"
    more = f" and {unknown} unknown" if unknown else ""
    return (f"~{format_seconds(round(seconds))}" if seconds else "-") + more


def _hours(hours: float | None) -> str:
    return "" if hours is None else f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"


def _memory(memory: float | None) -> str:
    return "" if memory is None else f"{memory:.2g} GiB" if memory < 10 else f"{memory:,.0f} GiB"


def _remark(remark: Remark) -> str:
    cells = [cell for cell in remark.cells if cell]
    more = f" and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else ""
    which = f" {', '.join(cells[:MOST_CELLS])}{more}" if cells else ""
    word = paint(f"{remark.state}:", word="failed" if remark.state is RunState.FAILED else "")
    about = (f"{remark.system} {remark.group}{which}", _jobs(remark.jobs), remark.reason)
    return f"{word} {': '.join(filter(None, about))}"


def _jobs(jobs: Sequence[str]) -> str:
    return f"job {', '.join(jobs)}" if jobs else ""


def _image_reason(plan: StudyPlan, system: str) -> str:
    return "" if plan.images[system] else plan.image_reasons.get(system, "")


def _sum(plan: StudyPlan) -> str:
    waiting = [each for each in plan.runs if each.state is RunState.TO_DO]
    unknown = sum(each.seconds is None for each in waiting)
    time = _time(total(each.seconds for each in waiting), unknown)
    hours = _hours(total(each.device_hours for each in waiting))
    of_devices = f", {hours or 'unknown'} device hours" if _has_several_devices(plan) else ""
    rest = f"; to do: {time}{of_devices}" if waiting else ""
    several = len({key for key, _ in plan.shared})
    shared = f", {several} of them for several cells" if several else ""
    return f"in all {counted(len(plan.runs), 'run')}{shared}: {_states(plan)}{rest}"


def _has_several_devices(plan: StudyPlan) -> bool:
    """Return whether device hours say more than the time does."""
    return any(each.run.devices > 1 for each in plan.runs)


def _plan_document(plan: StudyPlan, rows: list[PlanRow], remarks: list[Remark]) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "title": plan.study.title,
        "variant": plan.study.variant,
        "folder": str(plan.folder),
        "images": {
            name: {"id": identity or None, "reason": _image_reason(plan, name) or None}
            for name, identity in plan.images.items()
        },
        "groups": [dict(zip(_NAMES, _plan_cells(row), strict=True)) for row in rows],
        "reasons": [asdict(remark) for remark in remarks],
        "runs": [_run_document(each) for each in plan.runs],
    }


_NAMES = ("system", "group", "axes", "runs", *(state.replace(" ", "_") for state in RunState))
_NAMES += ("seconds", "device_hours", "memory_gib")


def _run_document(planned: PlannedRun) -> dict[str, Any]:
    run = planned.run
    return {
        "key": planned.key,
        "system": run.system,
        "group": run.group,
        "cell": dict(run.cell),
        "devices": run.devices,
        "nodes": run.nodes,
        "repeat": run.repeat,
        "arguments": list(run.arguments),
        "result": str(planned.result),
        "state": planned.state,
        "cause": str(planned.reason.cause) or None,
        "reason": str(planned.reason),
        "job": planned.job or None,
        "seconds": planned.seconds,
        "memory_gib": planned.memory_gib,
    }


def show_status(plan: StudyPlan, form: str) -> None:
    """Print the states of a study's runs."""
    cells = cells_of_plan(plan)
    rows = []
    for cell in cells:
        values = " ".join(f"{key}={value}" for key, value in cell.cell.items())
        done = cell.counts[RunState.DONE]
        rows.append((cell.group, cell.system, values, cell.text, done, len(cell.runs), str(cell.reason)))
    answer(form, _status_document(plan, cells), Table(_STATUS_COLUMNS, rows), lambda: _show_tables(plan, cells))


def _status_document(plan: StudyPlan, cells: list[MatrixCell]) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "title": plan.study.title,
        "folder": str(plan.folder),
        "totals": {state.value: sum(each.state == state for each in plan.runs) for state in RunState},
        "seconds_left": _seconds_left(plan.runs),
        "cells": [
            {
                "group": cell.group,
                "system": cell.system,
                "cell": dict(cell.cell),
                "states": {state.value: count for state, count in cell.counts.items()},
                "cause": str(cell.reason.cause) or None,
                "reason": str(cell.reason) or None,
                "jobs": sorted({planned.job for planned in cell.runs if planned.job}),
                "largest_batches": cell.largest_batches,
                "results": [str(planned.result) for planned in cell.runs if planned.state is RunState.DONE],
            }
            for cell in cells
        ],
    }


def _show_tables(plan: StudyPlan, cells: list[MatrixCell]) -> None:
    """Print how far a study is and what is wrong, then the groups with something to do, then those that are done."""
    _say(f"{plan.study.title}: {_done(plan.runs)}")
    if bar := _bar(plan.runs):
        output(bar)
    _say("   ".join(_of_systems(plan)))
    for line in _remarks(plan):
        _say(line, indent=2)
    done = {group: runs for group, runs in _by_group(cells).items() if _count_done(runs) == len(runs)}
    for matrix in matrices([cell for cell in cells if cell.group not in done]):
        output("")
        output(matrix.title)
        output_table(*matrix.columns, rows=matrix.rows)
    if done:
        output("")
        _say(", ".join(f"{group}: {_done(runs)}" for group, runs in done.items()))


def _say(text: str, indent: int = 0) -> None:
    """Print a text in lines that fit the terminal; as one line where it is piped."""
    width = output_width()
    for line in [text] if width is None else fold(text, width, indent):
        output(line)


def _bar(runs: Sequence[PlannedRun]) -> str:
    """Return a bar of the terminal's width for the share of runs that are done; nothing where it cannot be shown."""
    width = output_width()
    if width is None or not runs or not output_can_show(_FULL + _EMPTY):
        return ""
    done = width * _count_done(runs) // len(runs)
    return _FULL * done + _EMPTY * (width - done)


def _by_group(cells: Iterable[MatrixCell]) -> dict[str, list[PlannedRun]]:
    groups: dict[str, list[PlannedRun]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).extend(cell.runs)
    return groups


def _done(runs: Sequence[PlannedRun]) -> str:
    """Return how many of some runs are done: `241 of 327 runs, 73 %`."""
    done = _count_done(runs)
    share = f", {100 * done // len(runs)} %" if done < len(runs) else ""
    return f"{done} of {counted(len(runs), 'run')}{share}"


def _count_done(runs: Iterable[PlannedRun]) -> int:
    return sum(planned.state is RunState.DONE for planned in runs)


def _of_systems(plan: StudyPlan) -> Iterator[str]:
    """Yield how far each system is: `beta 98/109, 11 min left`."""
    for system in plan.images:
        runs = [planned for planned in plan.runs if planned.run.system == system]
        if runs:
            left = _seconds_left(runs)
            time_left = f", {format_seconds(left)} left" if left else ""
            yield f"{system} {_count_done(runs)}/{len(runs)}{time_left}"


def _remarks(plan: StudyPlan) -> Iterator[str]:
    """Yield what is to be said of runs that are not done: of those with the same reason only the first is named."""
    kinds: dict[tuple[RunState, str], list[PlannedRun]] = {}
    for planned in plan.runs:
        if planned.state is not RunState.DONE and (planned.reason or planned.job):
            kinds.setdefault((planned.state, str(planned.reason)), []).append(planned)
    labels, order = Labels(plan), list(RunState)
    listed = sorted(kinds.items(), key=lambda kind: order.index(kind[0][0]))
    for (state, reason), runs in listed[:MOST_FAILURES]:
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        yield ": ".join(filter(None, (state, f"{labels.of(runs[0])}{more}", _jobs(jobs_of(runs)), reason)))
    if len(listed) > MOST_FAILURES:
        yield f"and {len(listed) - MOST_FAILURES} other reasons: --format json has all"


def _states(plan: StudyPlan) -> str:
    """Return in words how many runs are in which state."""
    counts = Counter(planned.state for planned in plan.runs)
    return ", ".join(f"{counts[state]} {state}" for state in RunState if counts[state])


def _seconds_left(runs: Iterable[PlannedRun]) -> float | None:
    """Return the estimated time of the runs that have not ended, one after the other; None if it is unknown of one."""
    each = [planned.seconds for planned in runs if planned.state not in _ENDED]
    return None if None in each else sum(filter(None, each))


def has_ended(plan: StudyPlan) -> bool:
    """Return whether no run is to do or in progress."""
    return all(planned.state in _ENDED for planned in plan.runs)


class StudyDisplay(Watcher):
    """Shows the progress of the whole study: as graphs on a terminal, unless they are to be `plain` lines."""

    def __init__(self, plain: bool) -> None:
        self._plain, self._count = plain, 0  # of runs that have ended
        self._begun: dict[str, float] = {}  # when runs were first seen in progress, by key
        self._pipe_for: PipeFor = no_pipe

    @contextmanager
    def watching(
        self, plan: StudyPlan, runs: Sequence[PlannedRun], side_by_side: int, estimates: Estimates
    ) -> Iterator[None]:
        """Show the progress of runs while they are done, and say how many of them are when they are stopped."""
        self._labels, self._total = Labels(plan), len(runs)
        self._side_by_side, self._estimates = side_by_side, estimates
        with _shown_progress(f"run {plan.study.name}", self._plain) as (self._show, self._pipe_for):
            try:
                yield
            except (KeyboardInterrupt, SystemExit):
                done = f"{self._count} of {counted(self._total, 'run')}"
                status(f"  stopped after {done}; the same command goes on with the others")
                raise

    def pipe_for(self, planned: PlannedRun) -> ProgressPipe | None:
        """Return the pipe by which a run reports what is drawn of it."""
        return self._pipe_for(planned)

    def report(self, ended: Ended, progress: Progress) -> None:
        """Write a line about a run that has ended."""
        outcome = ended.outcome
        self._count += outcome.state is not RunState.TO_DO  # one that was stopped is not done
        words = [str(outcome.reason) or "completed"]
        if ended.elsewhere:
            words.append("done by another process")
        else:
            figure = main_figure(dict(outcome.document)) if outcome.document else NO_RESULT
            if figure != NO_RESULT:
                words.append(figure.partition("   ")[0])
            words.append(format_seconds(ended.seconds))
        number = f"[{self._count:>{len(str(self._total))}}/{self._total}]"
        status(f"{number} {self._labels.of(ended.planned)}: {', '.join(words)}{self._left(progress)}")

    def watch(self, progress: Progress) -> None:
        """Show what is in progress."""
        waiting = "" if progress.active else f"; waiting {progress.reason.value}"
        headline = f"{self._count} of {self._total} done{self._left(progress)}{waiting}"
        labels = {key: self._labels.of(planned) for key, planned in progress.active.items()}
        self._show(headline, self._count, self._total, labels)

    def _left(self, progress: Progress) -> str:
        now = time.monotonic()
        self._begun = {key: self._begun.get(key, now) for key in progress.active}
        seconds = {each.key: self._estimates.seconds(each.run, each.seconds) for each in progress.remaining}
        left = [
            max(0.0, each - (now - self._begun.get(key, now)))  # a run that takes longer is still to end
            for key, each in seconds.items()
            if each is not None
        ]
        if not left or len(left) < len(seconds):
            return ""
        longest = max(sum(left) / self._side_by_side, *left[: len(progress.active)], 0.0)
        return f"; about {format_seconds(longest)} left" if longest >= 1 else ""


@contextmanager
def _shown_progress(title: str, plain: bool) -> Iterator[tuple[Show, PipeFor]]:
    """Yield what shows how far the study is, as graphs or in a line, and what its runs report by."""
    if plain or not can_draw():
        with step(title) as current:
            yield (
                lambda headline, _done, _total, labels: current.detail("; ".join([headline, *labels.values()])),
                no_pipe,
            )
        return
    from sifmark.live.study import drawn_study  # here: without a terminal nothing should wait for it

    with step(title, drawn=True), drawn_study(title) as view:
        yield view.show, view.pipe_for


def show_commands(commands: Iterable[RunCommand], form: str) -> None:
    """Print the runs that would be done, in their order, with their commands."""
    columns = ("key", "run", "estimate", "command")
    rows = [(each.planned.key, each.label, each.planned.seconds, shlex.join(each.argv)) for each in commands]

    def show() -> None:
        for key, label, _, command in rows:
            output(f"# {label}, {key}\n{command}")
        status(counted(len(rows), "run"))

    answer(form, [dict(zip(columns, row, strict=True)) for row in rows], Table(columns, rows), show)


def show_arrays(arrays: "Sequence[SubmittedArray]", dry_run: bool, form: str) -> None:
    """Print job arrays that were submitted, or with `dry_run` their scripts."""
    columns = ("job", "system", "runs", "nodes", "devices", "minutes", "script")
    rows = [(each.job or None, *_shape(each.array), str(each.array.script)) for each in arrays]
    documents = [dict(zip(columns, row, strict=True)) for row in rows]
    scripts = [each.script for each in arrays]
    if dry_run:
        documents = [{**document, "text": text} for document, text in zip(documents, scripts, strict=True)]

    def show() -> None:
        if dry_run:
            output("\n".join(scripts))
        elif rows:
            output_table(*columns, rows=rows)

    answer(form, documents, Table(columns, rows), show)


def _shape(array: "JobArray") -> tuple[str, int, int, int, int]:
    shape = array.shape
    return shape.system, len(array.tasks), shape.nodes, shape.devices, shape.seconds // 60
