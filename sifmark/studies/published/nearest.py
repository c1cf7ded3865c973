"""The published figures nearest to a result: of its workload, task, metric and unit, by the conditions that differ."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.core.errors import SifmarkError
from sifmark.results.catalogue import headlines, metric_label
from sifmark.results.comparison.compatibility import Excluded, exclusion_fields
from sifmark.results.documents import Document
from sifmark.results.numbers import format_number
from sifmark.studies.published.comparison import PublishedRow, UnmatchedFigure, has_value, match_figures
from sifmark.studies.published.figures import Figure, PublishedStudy
from sifmark.studies.published.listing import figure_record
from sifmark.studies.published.load import load_all_published
from sifmark.studies.published.matching import BATCHES, ConditionDifference, differences, is_candidate, not_printed
from sifmark.studies.published.measured import COMPLETED, GRANULARITY, MeasuredGroup, measured_group, observe_repeats
from sifmark.studies.published.reports import difference_record, difference_texts, published_text

COLUMNS = ("figure", "published", "measured / published", "differs", "not printed", "not divided")
CSV_COLUMNS = (
    "study", "table", "row", "column", "device", "metric", "unit", "published_low", "published_high", "bound",
    "is_counterpart", "ratio", "verdict", "differs", "not_printed", "not_divided",
)  # fmt: skip
# Conditions that keep a figure away from a result, each row once, the heaviest first. All others weigh less.
_WEIGHED = (
    ("device", GRANULARITY),
    ("devices", "nodes"),
    BATCHES,
    ("precision",),
    ("framework", "framework_version"),
)
_COMPILATION = re.compile(r"phases\..*|epochs\.1(\..*)?")  # what contains it, or says as little of a device


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NearFigure:
    """A published figure of the workload and task of a result, in a metric and unit that the result has too."""

    study: PublishedStudy
    figure: Figure
    differs: tuple[ConditionDifference, ...]
    missing: tuple[ConditionDifference, ...]  # what the document does not print
    is_counterpart: bool  # whether `compare` puts them beside each other
    row: PublishedRow | None  # with the ratio; None if it would say nothing
    obstacle: str  # why it would; empty with a row
    refused: tuple[ConditionDifference, ...]  # those of `differs` that are the obstacle

    @property
    def place(self) -> str:
        """What was measured and where it is printed: `GC200 (pearc22/3, row 5)`."""
        return f"{self.study.device_titles(self.figure)} ({self.figure.place})"

    @property
    def value(self) -> str:
        """The figure with its metric: `1,862 images/s (throughput)`."""
        return f"{published_text(self.figure)} {self.figure.unit} ({metric_label(str(self.figure.metric))})"

    @property
    def ratio_text(self) -> str:
        """What was measured over what was published, or how it lies to a range or bound; empty if it is not divided."""
        if self.row is None or self.row.ratio is None or self.row.ratio.value is None:
            return self.row.verdict if self.row else ""
        return f"{format_number(self.row.ratio.value)}x"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The published figures of the workload and task of a result, the nearest one first."""

    figures: tuple[NearFigure, ...]
    none: str  # why there are none; else empty


def nearest_figures(documents: Sequence[Document], studies: Iterable[PublishedStudy]) -> Nearest:
    """Return the published figures that are nearest to valid results, which are repeats of one run.

    Those come first that `compare` would put beside them, and of these the headlines of such a run; then those with
    fewer conditions that differ or are not printed; of as many, those whose conditions weigh less; then those with the
    nearer batch.
    """
    row = observe_repeats(documents)
    excluded = [Excluded(each, fields) for each in row.observations if (fields := exclusion_fields(each))]
    obstacle = excluded[0].reason if excluded else ""
    first = headlines(row.observations[0].kind)
    ranked: list[tuple[tuple[float | bool, ...], NearFigure]] = []
    is_known = False
    for study in studies:
        group = measured_group(row, COMPLETED, study.devices)
        for figure in study.figures:
            if not is_candidate(figure, group):
                continue
            is_known = True
            if _is_number_of_a_device(figure) and has_value(figure, group):
                near = _near(study, figure, group, obstacle)
                ranked.append((_distance(near, group, first), near))
    ranked.sort(key=lambda pair: pair[0])
    workload = documents[0]["workload"]
    missing = f"no figure of {workload['name']} {workload['task']} is published"
    without = obstacle or "those of this workload and task have other metrics or units"
    return Nearest(tuple(near for _, near in ranked), "" if ranked else without if is_known else missing)


def nearest_lines(runs: Iterable[Sequence[Document]], own: bool = True, brief: bool = False) -> Iterator[str]:
    """Yield for each run, which may have repeats, the nearest published figure in a line, or why there is none.

    With `own`, files of a site count too. One that is not valid must not hide a result: the line says how to find it.
    A `brief` line has no figure that is not divided; of a run that did not complete it is empty.
    """
    try:
        studies = load_all_published(own)
    except SifmarkError:
        yield from ("not known: a published study is not valid; sifmark published.list says why" for _ in runs)
        return
    for documents in runs:
        nearest = nearest_figures(documents, studies)
        if brief and any(each["status"]["state"] != "completed" for each in documents):
            yield ""
        elif brief and nearest.figures and not nearest.figures[0].row:
            yield "none to divide by; sifmark published.nearest FILE lists others, and what differs"
        else:
            yield _line(nearest.figures[0]) if nearest.figures else f"none: {nearest.none}"


def nearest_row(near: NearFigure) -> list[str]:
    """Return a figure as texts under COLUMNS."""
    missing = ", ".join(each.name for each in near.missing)
    return [near.place, near.value, near.ratio_text, difference_texts(near.differs), missing, near.obstacle]


def csv_row(near: NearFigure) -> list[Any]:
    """Return a figure under CSV_COLUMNS."""
    figure, row = near.figure, near.row
    place = [figure.study, figure.table, figure.row, figure.column, near.study.device_titles(figure)]
    value = [figure.metric, figure.unit, figure.low, figure.high, str(figure.bound)]
    compared = [near.is_counterpart, row.ratio.value if row and row.ratio else None, row.verdict if row else ""]
    missing = ", ".join(each.name for each in near.missing)
    return [*place, *value, *compared, difference_texts(near.differs), missing, near.obstacle]


def nearest_record(nearest: Nearest) -> Json:
    """Return the figures for JSON."""
    return {"none": nearest.none or None, "figures": [_near_record(near) for near in nearest.figures]}


def context_records(studies: Iterable[PublishedStudy]) -> list[Json]:
    """Return the tables whose figures nothing is compared with, with their sources."""
    return [
        {"table": f"{study.name}/{table.name}", "title": table.title, "source": table.place}
        for study in studies
        if study.context
        for table in study.tables
    ]


def _near_record(near: NearFigure) -> Json:
    row = near.row
    return {
        "figure": figure_record(near.figure),
        "is_counterpart": near.is_counterpart,
        "ratio": row.ratio.value if row and row.ratio else None,
        "verdict": row.verdict if row else "",
        "differs": [difference_record(each) for each in near.differs],
        "not_printed": [difference_record(each) for each in near.missing],
        "not_divided": near.obstacle or None,
    }


def _line(near: NearFigure) -> str:
    """Return a figure with its ratio, or why it has none, and all that differs or is not known."""
    lead = f"{near.value} on {near.place}, not divided: {near.obstacle}"
    if near.row:
        lead = f"{near.ratio_text}{':' if near.row.verdict else ' of'} {near.value} on {near.place}"
    differs = difference_texts(each for each in near.differs if each not in near.refused)
    missing = ", ".join(each.name for each in near.missing)
    return "; ".join(filter(None, (lead, differs and f"differs: {differs}", missing and f"not printed: {missing}")))


def _near(study: PublishedStudy, figure: Figure, group: MeasuredGroup, excluded: str) -> NearFigure:
    rates = frozenset(BATCHES if "/" in figure.unit else ())  # seconds and bytes of another batch say nothing
    counterparts, _ = match_figures(study, [figure], [group])
    rows, unmatched = match_figures(study, [figure], [group], rates)
    obstacle = excluded or "".join(map(_reason, unmatched))
    return NearFigure(
        study=study,
        figure=figure,
        differs=tuple(differences(figure, group, study.devices)),
        missing=tuple(not_printed(figure, group)),
        is_counterpart=bool(counterparts) and not excluded,
        row=None if obstacle else rows[0],
        obstacle=obstacle,
        refused=() if excluded else tuple(difference for each in unmatched for difference in each.differs),
    )


def _is_number_of_a_device(figure: Figure) -> bool:
    """Return whether a figure is one of a single result, and not of a span such as that of compilation."""
    spans = figure.metric is None or _COMPILATION.fullmatch(figure.metric)
    return not spans and figure.reference is None and not figure.state


def _reason(unmatched: UnmatchedFigure) -> str:
    return unmatched.detail or str(unmatched.reason)


def _distance(near: NearFigure, group: MeasuredGroup, headlines_: Sequence[str]) -> tuple[float, ...]:
    names = {each.name for each in (*near.differs, *near.missing)}
    weighed = [not names.isdisjoint(row) for row in _WEIGHED]
    differing = sum(weighed) + len(names.difference(*_WEIGHED))
    is_first = near.figure.metric in headlines_
    return (not near.is_counterpart, not is_first, differing, *weighed, _batch_distance(near.figure, group))


def _batch_distance(figure: Figure, group: MeasuredGroup) -> float:
    """Return the logarithm of the ratio of batches, and infinity where one is not known."""
    pairs = ((value, group.conditions.get(name)) for name in BATCHES for value in figure.conditions.get(name, ()))
    known = [abs(math.log(one / other)) for one, other in pairs if isinstance(one, int) and isinstance(other, int)]
    return min(known, default=math.inf)
