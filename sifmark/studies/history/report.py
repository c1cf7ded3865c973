"""Histories as tables and documents."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sifmark.core.console import printable
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compatibility import format_value
from sifmark.results.comparison.exports import field_columns, group_columns
from sifmark.results.comparison.intervals import Mean, Ratio
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.tables import ratio_text
from sifmark.results.numbers import scale_of
from sifmark.studies.history.changes import RATE, Change, History
from sifmark.studies.history.environment import EnvironmentChange
from sifmark.studies.history.series import LoadedHistory, RunSession

MOST_NAMED = 5  # changes of the environment in a cell of a table
_DIGEST = "sha256:"
_NAMED = ("site", "accelerator.name")  # what the column `system` has
Rows = tuple[list[str], list[list[Any]]]  # columns, and rows of cells


def period_records(results: Sequence[History]) -> Rows:
    """Return a row for each period as numbers, for CSV."""
    rows = [record for each in results for record in _periods_of(each)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[row.get(name) for name in names] for row in rows]


def _periods_of(history: History) -> Iterator[dict[str, Any]]:
    series = history.series
    for change, period in zip((None, *history.changes), history.periods, strict=True):
        ratio = change.ratio if change else Ratio(None)
        yield {
            "workload.title": series.title,
            **group_columns(series.group),
            "system": series.system,
            **field_columns(series.fields),
            "from": period.first.isoformat(),
            "to": period.last.isoformat(),
            "sessions": len(_sessions(period.runs, series.sessions)),
            "runs": len(period.runs),
            "metric": series.metric,
            "unit": series.unit,
            "value": period.mean.value,
            "low": period.mean.low,
            "high": period.mean.high,
            "ratio": ratio.value,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "p": change.probability if change else None,
            "gradual": change.gradual if change else None,
            "correlation": history.correlation,
            "changed": "; ".join(map(_text, (*change.differences, *change.measured))) if change else None,
        }


def period_rows(results: Sequence[History]) -> Rows:
    """Return a row for each period of each series."""
    metrics = {each.series.metric for each in results}
    rows = [RepeatGroup("results", each.series.fields, []) for each in results]
    varying = [name for name in varying_fields(rows) if name not in _NAMED]
    columns = [
        "workload",
        "task",
        "system",
        *map(column_of, varying),
        "from",
        "to",
        "sessions",
        "runs",
        *(metrics if len(metrics) == 1 else ("value",)),
        "unit",
    ]
    columns += ["change", "p", "changed with it"]
    return columns, [row for each in results for row in _rows(each, varying)]


def _rows(history: History, varying: Sequence[str]) -> Iterator[list[Any]]:
    series = history.series
    where = [series.title.partition(",")[0], series.group.task, series.system]
    where += [format_value(series.fields.get(name)) for name in varying]
    for change, period in zip((None, *history.changes), history.periods, strict=True):
        value, unit = _value(period.mean, series.unit)
        days = [f"{period.first:%Y-%m-%d}", f"{period.last:%Y-%m-%d}"]
        counts = [str(len(_sessions(period.runs, series.sessions))), str(len(period.runs))]
        yield [*map(printable, where), *days, *counts, value, unit, *_cells(change, series.unit)]


def _value(mean: Mean, unit: str) -> tuple[str, str]:
    """Return a mean with its interval, and the unit in which it is shown."""
    if mean.value is None:
        return "-", unit
    scale = scale_of(unit, [mean.value])
    return scale.text(mean.value, mean.low, mean.high), scale.unit


def _cells(change: Change | None, unit: str) -> list[str]:
    if change is None:
        return ["", "", ""]
    causes = [_text(difference) for difference in (*change.differences, *change.measured)]
    more = f" and {len(causes) - MOST_NAMED} more" if len(causes) > MOST_NAMED else ""
    shown = "; ".join(causes[:MOST_NAMED]) + more
    drift = ", drift" if change.gradual else ""
    return [_ratio_text(change.ratio, unit) + drift, f"{change.probability:.1g}", shown or "nothing that results state"]


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


def notes(results: Sequence[History]) -> Iterator[str]:
    """Yield how often such series have false changes, by how much their sessions may resemble each other."""
    if any(each.changes for each in results):
        yield "what changed with a change need not be its cause"
    if any(change.gradual for each in results for change in each.changes):
        yield "drift: a straight line fits better than a step, so that the date is that of no event"
    known = [each for each in results if each.correlation is not None]
    by_rate: dict[float | None, list[History]] = defaultdict(list)
    for each in known:
        by_rate[each.held_rate].append(each)
    for rate, those in by_rate.items():
        held = "how often such series have a false change is not known"
        if rate is not None:
            held = f"at most {rate:.0%} of such series without a change are reported to have one"
        most = max(each.correlation_at_most or 0.0 for each in those)
        yield f"{len(those)} series, correlation of a session with the one before it up to {most:.2f}: {held}"
    if few := len(results) - len(known):
        yield f"{few} series have too few sessions to estimate their correlation: independent sessions are presumed"


def history_document(loaded: LoadedHistory, results: Sequence[History], least_change: float) -> dict[str, Any]:
    """Return histories as programs read them."""
    return {
        "level": RATE,
        "least_change": least_change,
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
        "workload.title": series.title,
        **group_columns(series.group),
        "system": series.system,
        "fields": field_columns(series.fields),
        "metric": series.metric,
        "unit": series.unit,
        "basis": history.basis,
        "correlation": history.correlation,
        "correlation_at_most": history.correlation_at_most,
        "false_alarm_rate": history.held_rate,
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
        "gradual": change.gradual,
        "changed": [{"name": each.name, "before": each.before, "after": each.after} for each in differences],
    }
