"""The study.plan command: the runs of a study by system and group, what they will take, and what cannot run."""

from collections import Counter
from typing import Any

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output, output_table, paint
from sifmark.core.settings import Settings
from sifmark.results.numbers import format_seconds
from sifmark.studies.overview import PlanRow, Remark, remarks_of, rows_of, total
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.study import PlannedRun, RunState, StudyPlan

COLUMNS = ("system", "runs of", "axes", "runs", *RunState, "time", "device hours", "memory")
MOST_CELLS = 3  # of a reason
MOST_REMARKS = 20
_ALWAYS = (RunState.DONE, RunState.TO_DO)  # columns of states that people see even if no run has them


def show_plan(request: Request, settings: Settings, form: str) -> None:
    """Print the plan of a study. Raises SifmarkError."""
    plan = plan_study(request, settings)
    rows = rows_of(plan)
    remarks = remarks_of(plan)
    table = Table([*COLUMNS[:3], "runs", *RunState, "seconds", "device_hours", "memory_gib"], [*map(_cells, rows)])
    answer(form, _document(plan, rows, remarks), table, lambda: _show(plan, rows, remarks))


def _cells(row: PlanRow) -> list[Any]:
    states = [row.states.get(state, 0) for state in RunState]
    return [row.system, row.group, row.axes, row.runs, *states, row.seconds, row.device_hours, row.memory_gib]


def _show(plan: StudyPlan, rows: list[PlanRow], remarks: list[Remark]) -> None:
    output(f"{plan.study.title}{f' ({plan.study.variant})' if plan.study.variant else ''}")
    for system, identity in plan.images.items():
        output(f"  {system}: {identity[:19] or _image_reason(plan, system)}")
    states = [state for state in RunState if state in _ALWAYS or any(state in row.states for row in rows)]
    columns = ("system", "runs of", "axes", "runs", *states, "time", "device hours", "memory")
    output_table(*columns, rows=[_shown(row, states) for row in rows])
    for remark in remarks[:MOST_REMARKS]:
        if not _is_about_image(plan, remark):
            output(_remark(remark))
    if len(remarks) > MOST_REMARKS:
        output(f"... and {len(remarks) - MOST_REMARKS} more reasons: --json has all")
    output(_sum(plan))


def _shown(row: PlanRow, states: list[RunState]) -> list[Any]:
    counts = [row.states.get(state, 0) for state in states]
    return [row.system, row.group, row.axes, row.runs, *counts, *_quantities(row)]


def _quantities(row: PlanRow) -> tuple[str, str, str]:
    return _time(row.seconds, row.unknown), _hours(row.device_hours), _memory(row.memory_gib)


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
    return f"{word} {remark.system} {remark.group}{which}: {remark.reason}"


def _is_about_image(plan: StudyPlan, remark: Remark) -> bool:
    """Return whether a remark says why an image is not here, which is shown once for each system."""
    return remark.state is RunState.TO_DO and remark.reason == _image_reason(plan, remark.system)


def _image_reason(plan: StudyPlan, system: str) -> str:
    return "" if plan.images[system] else plan.image_reasons.get(system, "")


def _sum(plan: StudyPlan) -> str:
    waiting = [each for each in plan.runs if each.state is RunState.TO_DO]
    states = Counter(each.state for each in plan.runs)
    counts = ", ".join(f"{states[state]} {state}" for state in RunState if states[state])
    unknown = sum(each.seconds is None for each in waiting)
    time = _time(total(each.seconds for each in waiting), unknown)
    hours = _hours(total(each.device_hours for each in waiting))
    rest = f"; to do: {time}, {hours or 'unknown'} device hours" if waiting else ""
    several = len({key for key, _ in plan.shared})
    shared = f", {several} of them for several cells" if several else ""
    return f"in all {len(plan.runs)} runs{shared}: {counts}{rest}"


def _document(plan: StudyPlan, rows: list[PlanRow], remarks: list[Remark]) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "title": plan.study.title,
        "variant": plan.study.variant,
        "folder": str(plan.folder),
        "images": {
            name: {"id": identity or None, "reason": _image_reason(plan, name) or None}
            for name, identity in plan.images.items()
        },
        "groups": [dict(zip(_NAMES, _cells(row), strict=True)) for row in rows],
        "reasons": [
            {
                "state": remark.state,
                "system": remark.system,
                "group": remark.group,
                "reason": remark.reason,
                "cells": list(remark.cells),
                "runs": remark.runs,
            }
            for remark in remarks
        ],
        "runs": [_run(each) for each in plan.runs],
    }


_NAMES = ("system", "group", "axes", "runs", *(state.replace(" ", "_") for state in RunState))
_NAMES += ("seconds", "device_hours", "memory_gib")


def _run(planned: PlannedRun) -> dict[str, Any]:
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
        "reason": planned.reason,
        "seconds": planned.seconds,
        "memory_gib": planned.memory_gib,
    }
