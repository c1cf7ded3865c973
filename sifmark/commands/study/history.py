"""The study.history command: series of results by date, their change points, and what else changed there."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sifmark.commands.answers import CSV, Table, answer, list_left_out, report_copies
from sifmark.commands.compare import GateError, full_name
from sifmark.core.console import output_table, printable, status, warn
from sifmark.core.errors import UsageError, unknown_name
from sifmark.results.comparison.compatibility import format_value
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.tables import ratio_text, short_name
from sifmark.results.numbers import format_interval
from sifmark.studies.history.changes import RATE, RUNS, Change, History, histories
from sifmark.studies.history.environment import EnvironmentChange
from sifmark.studies.history.series import LoadedHistory, RunSession, load_history

MOST_NAMED = 5  # changes of the environment in a cell of a table
_DAYS = re.compile(r"(\d{1,5})d")
_DIGEST = "sha256:"
_NAMED = ("site", "accelerator.name")  # what the column `system` has


@dataclass(frozen=True)
class HistoryOptions:
    """The options of the command line."""

    paths: tuple[str, ...]
    metric: str = "throughput"
    by: str = ""
    since: str = ""
    least_change: float = 0.0
    fail_on_change: bool = False
    format: str = "table"

    def first_day(self) -> datetime | None:
        """Return from when on changes count; None if all do. Raises UsageError."""
        if not self.since:
            return None
        if days := _DAYS.fullmatch(self.since):
            return datetime.now(UTC) - timedelta(days=int(days[1]))
        try:
            day = datetime.fromisoformat(self.since)
        except ValueError as error:
            cause = f"--since {self.since!r} is neither a date nor a number of days"
            raise UsageError(cause, "for example 2026-11-01 or 14d", code="invalid-option") from error
        return day if day.tzinfo else day.replace(tzinfo=UTC)


def show_history(options: HistoryOptions) -> None:
    """Print the history of results. Raises GateError if there are changes that count as a failure."""
    since = options.first_day()
    if not 0 < options.least_change < 1:
        cause = f"--least-change {options.least_change:g} is not between 0 and 1"
        raise UsageError(cause, "for example 0.02 for 2 %", code="invalid-option")
    fields = tuple(full_name(word.strip()) for word in options.by.split(",") if word.strip())
    loaded = load_history(options.paths, options.metric, fields)
    if not loaded.series and loaded.metrics and options.metric not in loaded.metrics:
        raise unknown_name("metric", options.metric, loaded.metrics)
    results = histories(loaded.series, options.least_change)
    table = _records(results, options.metric) if options.format == CSV else _table(results, options.metric)
    answer(options.format, _document(options, loaded, results), table, lambda: _show(table, results), "History")
    _report_left_out(loaded)
    _conclude(results, since, options.fail_on_change)


def _conclude(results: Sequence[History], since: datetime | None, fails: bool) -> None:
    changes = [change for each in results for change in each.changes if since is None or change.before >= since]
    when = f" since {since:%Y-%m-%d}" if since else ""
    if changes and fails:
        series = sum(any(change in changes for change in each.changes) for each in results)
        cause = f"{_count(len(changes), 'change')} in {series} of {len(results)} series{when}"
        raise GateError(cause, "the table names them, and what changed with them", code="performance-changed")
    status(f"{_count(len(changes), 'change')} in {len(results)} series{when}")


def _show(table: Table, results: Sequence[History]) -> None:
    if not results:
        return
    output_table(*table.columns, rows=table.rows)
    if any(each.changes for each in results):
        status(f"about {RATE:.0%} of such changes are chance; what changed with one need not be its cause")
    for each in results:
        if hosts := each.series.alternating_hosts:
            where = f"{each.series.system}, {each.series.title.partition(',')[0]}"
            status(f"{printable(where)}: {hosts} hosts take turns; --by host.hostname.value separates them")
    if few := sum(each.basis == RUNS for each in results):
        status(f"{few} series have few sessions, so that how much days differ is unknown")
    if unchanged := sum(len(each.unchanged) for each in results):
        times = _count(unchanged, "time")
        status(f"{times} something else changed, such as the image, and performance did not: --format json has them")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _records(results: Sequence[History], metric: str) -> Table:
    """Return a row for each period as numbers, for CSV."""
    rows = [record for each in results for record in _periods_of(each, metric)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(names, [[row.get(name) for name in names] for row in rows])


def _periods_of(history: History, metric: str) -> Iterator[dict[str, Any]]:
    series = history.series
    for change, period in zip((None, *history.changes), history.periods, strict=True):
        ratio = change.ratio if change else Ratio(None)
        yield {
            "title": series.title,
            **series.group._asdict(),
            "system": series.system,
            **series.fields,
            "from": period.first.isoformat(),
            "to": period.last.isoformat(),
            "sessions": len(_sessions(period.runs, series.sessions)),
            "runs": len(period.runs),
            "metric": metric,
            "unit": series.unit,
            "value": period.mean.value,
            "low": period.mean.low,
            "high": period.mean.high,
            "ratio": ratio.value,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "p": change.probability if change else None,
            "changed": "; ".join(map(_text, (*change.differences, *change.measured))) if change else None,
        }


def _table(results: Sequence[History], metric: str) -> Table:
    """Return a row for each period of each series."""
    rows = [RepeatGroup("results", each.series.fields, []) for each in results]
    varying = [name for name in varying_fields(rows) if name not in _NAMED]
    columns = [
        "workload",
        "task",
        "system",
        *map(short_name, varying),
        "from",
        "to",
        "sessions",
        "runs",
        metric,
        "unit",
    ]
    columns += ["change", "p", "changed with it"]
    return Table(columns, [row for each in results for row in _rows(each, varying)])


def _rows(history: History, varying: Sequence[str]) -> Iterator[list[Any]]:
    series = history.series
    where = [series.title.partition(",")[0], series.group.task, series.system]
    where += [format_value(series.fields.get(name)) for name in varying]
    for change, period in zip((None, *history.changes), history.periods, strict=True):
        mean = period.mean
        value = "-" if mean.value is None else format_interval(mean.value, mean.low, mean.high)
        days = [f"{period.first:%Y-%m-%d}", f"{period.last:%Y-%m-%d}"]
        counts = [str(len(_sessions(period.runs, series.sessions))), str(len(period.runs))]
        yield [*map(printable, where), *days, *counts, value, series.unit, *_cells(change, series.unit)]


def _cells(change: Change | None, unit: str) -> list[str]:
    if change is None:
        return ["", "", ""]
    causes = [_text(difference) for difference in (*change.differences, *change.measured)]
    more = f" and {len(causes) - MOST_NAMED} more" if len(causes) > MOST_NAMED else ""
    shown = "; ".join(causes[:MOST_NAMED]) + more
    return [_ratio_text(change.ratio, unit), f"{change.probability:.1g}", shown or "nothing that results state"]


def _ratio_text(ratio: Ratio, unit: str) -> str:
    return ratio_text(ratio, unit).removesuffix(", cannot tell")


def _text(difference: EnvironmentChange) -> str:
    return printable(f"{difference.name} {_shorten(difference.before)} -> {_shorten(difference.after)}")


def _shorten(value: Any) -> str:
    text = format_value(value)
    return text[:19] if text.startswith(_DIGEST) else text if len(text) <= 40 else f"{text[:37]}..."


def _sessions(runs: Sequence[Any], sessions: Sequence[RunSession]) -> list[RunSession]:
    """Return the sessions that have a part in some runs."""
    chosen = set(map(id, runs))
    return [session for session in sessions if any(id(run) in chosen for run in session.runs)]


def _report_left_out(loaded: LoadedHistory) -> None:
    reasons = {
        "not valid": loaded.invalid,
        "not completed, or not correct": loaded.excluded,
        "no value above 0": loaded.without_value,
        "a date that cannot be true": loaded.undated,
    }
    for reason, files in reasons.items():
        list_left_out(f"left out, {reason}", list(map(printable, files)))
    if loaded.invalid:
        warn(f"{len(loaded.invalid)} documents are not valid")
    report_copies(loaded.duplicates)


def _document(options: HistoryOptions, loaded: LoadedHistory, results: Sequence[History]) -> dict[str, Any]:
    return {
        "metric": options.metric,
        "false_discovery_rate": RATE,
        "least_change": options.least_change,
        "series": [_series(each) for each in results],
        "left_out": {
            "invalid": loaded.invalid,
            "excluded": loaded.excluded,
            "without_value": loaded.without_value,
            "undated": loaded.undated,
            "duplicates": loaded.duplicates,
        },
    }


def _series(history: History) -> dict[str, Any]:
    series = history.series
    return {
        "title": series.title,
        "group": series.group._asdict(),
        "system": series.system,
        "fields": series.fields,
        "unit": series.unit,
        "basis": history.basis,
        "runs": [
            {
                "id": run.observation.id,
                "file": run.observation.file,
                "started": run.started.isoformat(),
                "session": number,
                "value": run.value,
                "circumstances": dict(run.environment),
            }
            for number, session in enumerate(series.sessions, start=1)
            for run in session.runs
        ],
        "periods": [
            {
                "from": period.first.isoformat(),
                "to": period.last.isoformat(),
                "runs": len(period.runs),
                "value": period.mean.value,
                "low": period.mean.low,
                "high": period.mean.high,
            }
            for period in history.periods
        ],
        "changes": list(map(_change, history.changes)),
        "unchanged": list(map(_change, history.unchanged)),
    }


def _change(change: Change) -> dict[str, Any]:
    differences = (*change.differences, *change.measured)
    return {
        "after": change.after.isoformat(),
        "before": change.before.isoformat(),
        "ratio": change.ratio.value,
        "ratio_low": change.ratio.low,
        "ratio_high": change.ratio.high,
        "p": change.probability,
        "changed": [{"name": each.name, "before": each.before, "after": each.after} for each in differences],
    }
