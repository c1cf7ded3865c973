"""The tables and figures of a published study, drawn from nothing but what the document prints."""

import re

from sifmark.report.charts.chart import Chart, ChartTable, Spec
from sifmark.report.charts.shared.panels import panel_chart
from sifmark.report.outputs.printed_curves import curve_specs
from sifmark.report.outputs.ratios import panels_of, ratio_spec
from sifmark.report.outputs.text_table import text_table
from sifmark.report.published import source_of
from sifmark.studies.published.figures import PublishedStudy, PublishedTable
from sifmark.studies.published.load import select_tables

_CURVES = "The numbers of the table, as printed; lines join those that differ in nothing else."
_RANGES = "Bars and marks are hollow, as all that is published; a filled part is the range that is printed."


def printed_charts(name: str) -> list[Chart]:
    """Return the pictures of NAME or NAME/TABLE: tables as printed, and ratios as bars or curves. Raises UsageError.

    Charts whose numbers the document does not print have none, but what its text says about them has.
    """
    study, tables = select_tables(name)
    return [chart for table in tables for chart in pictures_of(study, table)]


def pictures_of(study: PublishedStudy, table: PublishedTable) -> list[Chart]:
    """Return a table as a picture, and its numbers as curves if they make any; none if no numbers are printed."""
    return [chart for chart in (draw_table(study, table), draw_curves(study, table)) if chart is not None]


def draw_table(study: PublishedStudy, table: PublishedTable) -> Chart | None:
    """Return a table as a chart; None if the document prints no numbers."""
    if not table.rows:
        return None
    panels = panels_of(study, table)
    spec = _stacked([ratio_spec(panel) for panel in panels]) if panels else text_table(table.columns, table.rows)
    words = [f"{table.title}.", f"{source_of(study, table)}.", *([_RANGES] if panels else []), *_not_comparable(table)]
    return Chart(picture_name(study, table), table.title, " ".join(words), spec, _cells(table))


def draw_curves(study: PublishedStudy, table: PublishedTable) -> Chart | None:
    """Return the numbers of a table along devices or a batch size; None if they are not along these."""
    specs = curve_specs(study, table)
    if not specs:
        return None
    title = f"{table.title}: as curves"
    words = [f"{title}.", f"{source_of(study, table)}.", _CURVES, *_not_comparable(table)]
    return Chart(f"{picture_name(study, table)}-curves", title, " ".join(words), panel_chart(specs), _cells(table))


def picture_name(study: PublishedStudy, table: PublishedTable) -> str:
    """Return the name of a picture, as its files have it."""
    return re.sub(r"[^a-z0-9]+", "-", f"{study.name}-{table.name}".lower()).strip("-")


def _cells(table: PublishedTable) -> ChartTable:
    return ChartTable(table.columns, table.rows)


def _stacked(specs: list[Spec]) -> Spec:
    return specs[0] if len(specs) == 1 else {"vconcat": specs}


def _not_comparable(table: PublishedTable) -> list[str]:
    """Return why figures are never put beside results, each reason once."""
    reasons = dict.fromkeys(figure.not_comparable for figure in table.figures if figure.not_comparable)
    return [f"Not beside results: {'; '.join(reasons)}."] if reasons else []
