"""Published figures in a report: those that `compare --against published:NAME` puts beside results, and no others."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from sifmark.report.results import OverPublished, PublishedMark, ReportResults, SectionKey, section_of
from sifmark.studies.published.comparison import PublishedComparison, PublishedRow
from sifmark.studies.published.figures import Bound, Figure, PublishedStudy, PublishedTable
from sifmark.studies.published.measured import FIELD_OF
from sifmark.studies.published.reports import comparison_text, measured_text, missing_lines, published_text
from sifmark.studies.study import Scalar

BATCH, OTHER_BATCHES = "batch_size", frozenset(("batch_size_per_replica", "micro_batch_size"))
_OTHERS = " et al."
_BETWEEN_AUTHORS = re.compile(r", (?:and )?| and ")


def with_published(results: ReportResults, comparison: PublishedComparison) -> ReportResults:
    ratios = tuple(_ratios(comparison, results))
    unmatched = tuple(missing_lines(comparison))
    return replace(results, published=published_marks(comparison), over_published=ratios, unmatched=unmatched)


def published_marks(comparison: PublishedComparison) -> tuple[PublishedMark, ...]:
    """Return the figures that belong beside the points of a section, each once in a section.

    What `compare` refuses has no row in a comparison. Ratios of two results are no numbers of either of them.
    """
    rows: dict[tuple[SectionKey, str, int, str], list[PublishedRow]] = {}
    for row in comparison.rows:
        if row.figure.reference is None:
            figure = row.figure
            rows.setdefault(
                (section_of(row.group.row.observations[0]), figure.table, figure.row, figure.column), []
            ).append(row)
    return tuple(_mark(comparison, key[0], members) for key, members in rows.items())


def short_citation(study: PublishedStudy) -> str:
    """Return a study as a text cites it: `Nasari et al. 2022`."""
    named = study.authors.removesuffix(_OTHERS)
    names = [name.split()[-1] for name in _BETWEEN_AUTHORS.split(named) if name.strip()]
    several = named != study.authors or len(names) > 2
    return f"{f'{names[0]} et al.' if several and names else ' and '.join(names)} {study.year}".strip()


def source_of(study: PublishedStudy, table: PublishedTable) -> str:
    """Return where a table is, as a caption has it: `Nasari et al. 2022, table 1, section 3.1`."""
    page = f", page {table.page}" if table.page else ""
    return f"{short_citation(study)}, {table.place[:1].lower()}{table.place[1:]}{page}"


def row_words(table: PublishedTable, number: int, among: Collection[int] = ()) -> str:
    """Return the values that distinguish a row, numbered from 1, from others, by default from all: `Batch size 2`."""
    valued = {figure.column for figure in table.figures}
    named = [place for place, column in enumerate(table.columns) if column not in valued]
    rows = [row for place, row in enumerate(table.rows, start=1) if not among or place in among]
    varying = [place for place in named if len({row[place] for row in rows}) > 1] or named
    cells = [(table.columns[place], table.rows[number - 1][place]) for place in varying]
    return ", ".join(f"{column} {cell}" if cell[:1].isdigit() else cell for column, cell in cells if cell)


def _mark(comparison: PublishedComparison, key: SectionKey, rows: list[PublishedRow]) -> PublishedMark:
    figure, study = rows[0].figure, comparison.study
    return PublishedMark(
        key=key,
        source=source_of(study, _table(comparison, figure)),
        url=study.url,
        device=study.device_titles(figure),
        metric=str(figure.metric),
        unit=figure.unit,
        low=figure.low,
        high=figure.high,
        state=figure.state or "",
        conditions=_conditions(rows),
        remarks=tuple(dict.fromkeys(remark for row in rows for remark in _remarks(row))),
        table=f"{study.name}/{figure.table}",
        counterparts=frozenset(each.id for row in rows for each in row.group.row.observations),
    )


def _conditions(rows: list[PublishedRow]) -> Mapping[str, Scalar]:
    """Return the conditions of which one value is printed, by the field of a result.

    A batch size that is printed in another form is that of the results.
    """
    printed = {name: values[0] for name, values in rows[0].figure.conditions.items() if len(values) == 1}
    if printed.keys() & OTHER_BATCHES:
        measured, *others = {row.group.conditions[BATCH] for row in rows}
        printed = printed if others or measured is None else {BATCH: measured, **printed}
    return {FIELD_OF[name]: value for name, value in printed.items() if name in FIELD_OF}


def _remarks(row: PublishedRow) -> Iterator[str]:
    """Yield what readers of a figure must know: what it bounds, what differs, and what is not printed."""
    if row.figure.bound not in (Bound.EXACT, Bound.RANGE):
        yield f"printed as {row.figure.bound} this"
    yield from (f"differs: {each.text}" for each in row.differs)
    yield from (f"not printed: {each.name.replace('_', ' ')}" for each in row.missing)


def _ratios(comparison: PublishedComparison, results: ReportResults) -> Iterator[OverPublished]:
    """Yield what was measured over what was published, where both are numbers."""
    for row in comparison.rows:
        if row.ratio is None or row.ratio.value is None:
            continue
        table = _table(comparison, row.figure)
        observations = [*row.group.row.observations, *(row.divided_by.row.observations if row.divided_by else ())]
        yield OverPublished(
            table=source_of(comparison.study, table),
            label=_label(comparison, row.figure),
            metric=str(row.figure.metric),
            unit=row.figure.unit,
            url=comparison.study.url,
            ratio=row.ratio,
            published=published_text(row.figure),
            measured=measured_text(row),
            verdict=comparison_text(row),
            results=results.with_ids({each.id for each in observations}),
            remarks=tuple(_remarks(row)),
        )


def _label(comparison: PublishedComparison, figure: Figure) -> str:
    """Return the values that distinguish a figure from others of its table that have counterparts."""
    others = [row.figure for row in comparison.rows if row.figure.table == figure.table]
    words = row_words(_table(comparison, figure), figure.row, {other.row for other in others})
    column = figure.column if len({other.column for other in others}) > 1 else ""
    return ", ".join(filter(None, [words, column])) or figure.column


def _table(comparison: PublishedComparison, figure: Figure) -> PublishedTable:
    return next(table for table in comparison.tables if table.name == figure.table)
