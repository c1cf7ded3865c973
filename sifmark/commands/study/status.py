"""The study.status command: a matrix of what is done, running, failed and missing."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.console import output, output_table
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.results.numbers import format_seconds
from sifmark.studies.overview import Labels, MatrixCell, cells_of_plan, matrices
from sifmark.studies.plan import Request
from sifmark.studies.running.states import read_states
from sifmark.studies.study import RunState, StudyPlan

INTERVAL = 5.0  # seconds between two looks
MOST_FAILURES = 10  # listed below the tables
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # ECMA-48: cursor to the top, erase the screen and what was above
_ENDED = (RunState.DONE, RunState.FAILED, RunState.CANNOT_RUN)
_COLUMNS = ("group", "system", "cell", "state", "done", "runs", "reason")


def show_status(request: Request, settings: Settings, form: str, watch: bool = False) -> None:
    """Print the states of a study's runs; with `watch` again and again, until all have ended or Ctrl-C is pressed."""
    if not watch:
        _show(read_states(request, settings).plan, form)
        return
    if form != TABLE:
        cause = f"--watch shows tables, not {form}"
        raise UsageError(cause, "leave out --watch or --format", code="invalid-option")
    try:
        while True:
            plan = read_states(request, settings).plan
            if sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            _show(plan, form)
            sys.stdout.flush()
            if all(planned.state in _ENDED for planned in plan.runs):
                return
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        return


def _show(plan: StudyPlan, form: str) -> None:
    cells = cells_of_plan(plan)
    rows = [_row(cell) for cell in cells]
    answer(form, _document(plan, cells), Table(_COLUMNS, rows), lambda: _show_tables(plan, cells))


def _row(cell: MatrixCell) -> tuple[Any, ...]:
    values = " ".join(f"{key}={value}" for key, value in cell.cell.items())
    return (cell.group, cell.system, values, cell.text, cell.counts[RunState.DONE], len(cell.runs), cell.reason)


def _document(plan: StudyPlan, cells: list[MatrixCell]) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "title": plan.study.title,
        "folder": str(plan.folder),
        "totals": {state.value: count for state, count in totals_of(plan).items()},
        "seconds_left": seconds_left(plan),
        "cells": [
            {
                "group": cell.group,
                "system": cell.system,
                "cell": dict(cell.cell),
                "states": {state.value: count for state, count in cell.counts.items()},
                "reason": cell.reason or None,
                "largest_batches": cell.largest_batches,
                "results": [str(planned.result) for planned in cell.runs if planned.state is RunState.DONE],
            }
            for cell in cells
        ],
    }


def _show_tables(plan: StudyPlan, cells: list[MatrixCell]) -> None:
    for matrix in matrices(cells):
        output(matrix.title)
        output_table(*matrix.columns, rows=matrix.rows)
        output("")
    for line in (*_failures(plan), _total(plan)):
        output(line)


def _failures(plan: StudyPlan) -> Iterator[str]:
    """Yield the runs that failed, each with its cause; of those with the same cause only the first."""
    causes: dict[str, list[str]] = {}
    labels = Labels(plan)
    for planned in plan.runs:
        if planned.state in (RunState.FAILED, RunState.CANNOT_RUN):
            causes.setdefault(f"{planned.state}: {planned.reason}", []).append(labels.of(planned))
    for cause, runs in list(causes.items())[:MOST_FAILURES]:
        state, _, reason = cause.partition(": ")
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        yield f"{state}: {runs[0]}{more}: {reason}"
    if len(causes) > MOST_FAILURES:
        yield f"and {len(causes) - MOST_FAILURES} other causes: --format json has all"


def _total(plan: StudyPlan) -> str:
    totals = totals_of(plan)
    parts = [f"{count} {state.value}" for state, count in totals.items() if count]
    left = seconds_left(plan)
    time_left = f"; about {format_seconds(left)} of runs left" if left else ""
    return f"{len(plan.runs)} runs: {', '.join(parts)}{time_left}"


def totals_of(plan: StudyPlan) -> dict[RunState, int]:
    """Return how many runs are in each state."""
    counts = Counter(planned.state for planned in plan.runs)
    return {state: counts[state] for state in RunState}


def seconds_left(plan: StudyPlan) -> float | None:
    """Return the estimated time of the runs that have not ended, one after the other; None if it is unknown of one."""
    each = [planned.seconds for planned in plan.runs if planned.state not in _ENDED]
    return None if None in each else sum(filter(None, each))
