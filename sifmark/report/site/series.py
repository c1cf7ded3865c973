"""The history of a site: each series with its change points, and the page that it has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.core.files import sha256_json
from sifmark.report.describe import configuration_text, mean_text, titled
from sifmark.report.site.folder import file_names
from sifmark.report.site.read import SiteResult
from sifmark.report.site.rows import marks_named, system_of
from sifmark.report.tables import Table, plain_table
from sifmark.results.comparison.compatibility import format_value
from sifmark.results.comparison.tables import ratio_text
from sifmark.results.marks import Mark
from sifmark.results.numbers import scale_of
from sifmark.studies.history.changes import Change, History, histories
from sifmark.studies.history.environment import EnvironmentChange
from sifmark.studies.history.series import LoadedHistory, history_of

MOST_NAMED = 5  # changed fields in a line
_LONGEST_VALUE = 40
_DIGEST = "sha256:"


@dataclass(frozen=True)
class SeriesHistory:
    """A series of a site."""

    history: History
    result: SiteResult  # its newest, which has its names and settings
    system: str
    marks: tuple[Mark, ...]  # reasons not to publish any of its results
    page: str  # the name of its page; empty with a single session, which has no history

    @property
    def settings(self) -> str:
        """What of its configuration readers look for first, in words."""
        return configuration_text(self.result.observation.fields)

    @property
    def period_table(self) -> Table:
        unit = self.history.series.unit
        means = [period.mean for period in self.history.periods]
        scale = scale_of(unit, (mean.value for mean in means if mean.value is not None))
        rows = (
            (
                f"{period.first:%Y-%m-%d}",
                f"{period.last:%Y-%m-%d}",
                str(len(period.runs)),
                mean_text(period.mean, scale),
                change_text(change, unit) if change else "",
                f"{change.probability:.1g}" if change else "",
            )
            for change, period in zip((None, *self.history.changes), self.history.periods, strict=True)
        )
        heads = ("from", "to", "runs", titled("throughput", scale.unit), "change", "p")
        return plain_table("periods", "Periods", heads, rows)

    @property
    def newest_change(self) -> Change | None:
        return self.history.changes[-1] if self.history.changes else None


@dataclass(frozen=True)
class SiteHistory:
    """All series of a site, and the files of measurements that are in none."""

    series: tuple[SeriesHistory, ...]
    undated: tuple[str, ...]

    @property
    def with_page(self) -> list[SeriesHistory]:
        """The series that have pages: first those that changed, the newest change first, then the longest."""
        paged = [each for each in self.series if each.page]
        return sorted(paged, key=_interest, reverse=True)

    @property
    def changed(self) -> int:
        return sum(bool(each.history.changes) for each in self.series)

    def changes(self) -> list[tuple[Change, SeriesHistory]]:
        every = [(change, each) for each in self.series for change in each.history.changes]
        return sorted(every, key=lambda pair: (pair[0].before, pair[1].page), reverse=True)

    def pages_by_result(self) -> dict[str, str]:
        return {run.observation.id: each.page for each in self.series if each.page for run in each.history.series.runs}


def site_history(members: Iterable[SiteResult], by: str) -> SiteHistory:
    """Return the series of the main rate of some results, with their change points. `by` is the field of systems."""
    by_id = {each.id: each for each in members}
    loaded: LoadedHistory = history_of(each.for_history() for each in by_id.values())
    results = histories(loaded.series)
    newest = [by_id[each.series.runs[-1].observation.id] for each in results]
    systems = [system_of(each, by) for each in newest]
    identities = list(map(_identity, results))
    names = file_names(
        {
            identity: f"{result.workload} {result.observation.group.task} {system}"
            for identity, result, system in zip(identities, newest, systems, strict=True)
        }
    )
    series = (
        SeriesHistory(
            history=history,
            result=result,
            system=system,
            marks=marks_named(*(by_id[run.observation.id].marks for run in history.series.runs)),
            page=names[identity] if len(history.series.sessions) > 1 else "",
        )
        for history, result, system, identity in zip(results, newest, systems, identities, strict=True)
    )
    return SiteHistory(tuple(series), tuple(loaded.undated))


def difference_texts(differences: Sequence[EnvironmentChange]) -> list[str]:
    """Return what changed with performance, in a line each: `driver 550.54 -> 560.28`."""
    return [f"{each.name} {_shortened(each.before)} → {_shortened(each.after)}" for each in differences]


def change_text(change: Change, unit: str) -> str:
    """Return what happened to performance: `1.06x slower ± 0.9 %`."""
    return ratio_text(change.ratio, unit)


def changed_with(change: Change) -> str:
    texts = difference_texts((*change.differences, *change.measured))
    more = [f"and {len(texts) - MOST_NAMED} more"] if len(texts) > MOST_NAMED else []
    return "; ".join([*texts[:MOST_NAMED], *more]) or "nothing that results state"


def _shortened(value: Any) -> str:
    text = format_value(value)
    if text.startswith(_DIGEST):
        return text[: len(_DIGEST) + 12]
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _identity(history: History) -> str:
    """Return a text that only this series has."""
    series = history.series
    return sha256_json([series.group, series.unit, sorted(map(str, series.fields.items()))])


def _interest(each: SeriesHistory) -> tuple[Any, ...]:
    change = each.newest_change
    since = change.before.timestamp() if change else 0.0
    return change is not None, since, len(each.history.series.sessions), each.page
