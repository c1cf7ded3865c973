"""The pages of a site as HTML: no scripts, relative links, and every text escaped."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sifmark.report.charts.chart import Chart
from sifmark.report.describe import quantity_text
from sifmark.report.page import style_sheet, template_environment
from sifmark.report.site.rows import MOST_ROWS, SeriesRow, marks_named
from sifmark.report.site.series import SeriesHistory, change_text, changed_with, difference_texts
from sifmark.report.site.site import Site
from sifmark.results.marks import Mark

INDEX, HISTORY, STYLE = "index.html", "history.html", "style.css"
MOST_CHANGES = 30  # on the first page
MOST_LISTED = 200  # files of a list
MOST_NAMED = 8  # systems or workloads in a cell
MOST_DRAWN = 3  # histories on the page of a device, system or workload


def site_pages(site: Site, drawn: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a site by name. `drawn` are its charts as SVG by their names."""
    environment = _environment()
    environment.globals.update(site=site, drawing=_drawing_of(drawn))

    def page(template: str, name: str, title: str, **more: Any) -> tuple[str, bytes]:
        root = "../" * name.count("/")
        text: str = environment.get_template(template).render(root=root, here=name, page_title=title, **more)
        return name, text.encode()

    yield STYLE, style_sheet().encode()
    for study in site.studies:
        yield page("study.html.j2", study.page, study.study.title, page=study)
    for kind, facets in (("workload", site.workloads), ("device", site.devices), (site.noun, site.systems)):
        for facet in facets:
            yield page("facet.html.j2", facet.page, facet.name, facet=facet, kind=kind)
    for series in site.history.with_page:
        yield page("series.html.j2", series_page(series), _series_title(series), series=series)
    yield page("history.html.j2", HISTORY, "History", changes=site.history.changes())
    yield page("index.html.j2", INDEX, site.title)


def series_page(series: SeriesHistory) -> str:
    """Return the page of a series, relative to the site."""
    return f"history/{series.page}.html"


def _series_title(series: SeriesHistory) -> str:
    return f"{series.result.workload}, {series.history.series.group.task} on {series.system}"


def _environment() -> Any:
    environment = template_environment(Path(__file__).parent / "templates")
    environment.filters |= {
        "change": change_text,
        "differences": difference_texts,
        "with_it": changed_with,
    }
    environment.globals |= {
        "marks_of_rows": _marks_of_rows,
        "quantity_text": quantity_text,
        "most_changes": MOST_CHANGES,
        "most_drawn": MOST_DRAWN,
        "most_listed": MOST_LISTED,
        "most_named": MOST_NAMED,
        "most_rows": MOST_ROWS,
        "series_page": series_page,
    }
    return environment


def _drawing_of(drawn: Mapping[str, str]) -> Callable[..., str]:
    """Return what templates draw a chart with; on another page than its own, its links lead to that page."""

    def drawing(chart: Chart, page: str = "", root: str = "") -> str:
        svg = drawn[chart.name]
        return svg.replace('href="#', f'href="{root}{page}#') if page else svg

    return drawing


def _marks_of_rows(rows: Iterable[SeriesRow]) -> tuple[Mark, ...]:
    return marks_named(mark.name for row in rows for mark in row.marks)
