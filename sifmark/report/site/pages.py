"""The pages of a site as HTML: relative links, every text escaped, and one script, which sorts the list of results."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.report.describe import quantity_text
from sifmark.report.page import shared_style, template_environment
from sifmark.report.scorecard import MOST_SYSTEMS
from sifmark.report.site.rows import MOST_ROWS, SeriesRow, marks_named
from sifmark.report.site.series import SeriesHistory, change_text, changed_with, difference_texts
from sifmark.report.site.site import Site
from sifmark.results.marks import Mark

INDEX, HISTORY, RANKING, RESULTS, STYLE = "index.html", "history.html", "ranking.html", "results.html", "style.css"
MOST_CHANGES = 10  # on the first page
MOST_LISTED = 200  # files of a list
MOST_IN_LIST = 5000  # rows of the list of all results
MOST_NAMED = 8  # systems or workloads in a cell
MOST_DRAWN = 3  # histories on the page of a device, system or workload
_HERE = Path(__file__).parent


def site_pages(site: Site) -> Iterator[tuple[str, bytes]]:
    environment = _environment()
    environment.globals.update(site=site)

    def page(template: str, name: str, title: str, **more: Any) -> tuple[str, bytes]:
        root = "../" * name.count("/")
        text: str = environment.get_template(template).render(root=root, here=name, page_title=title, **more)
        return name, text.encode()

    yield STYLE, f"{shared_style()}\n{(_HERE / 'site.css').read_text('utf-8')}".encode()
    for study in site.studies:
        yield page("study.html.j2", study.page, study.study.title, page=study)
    for kind, facets in (("workload", site.workloads), ("device", site.devices), (site.noun, site.systems)):
        for facet in facets:
            yield page("facet.html.j2", facet.page, facet.name, facet=facet, kind=kind)
    for series in site.history.with_page:
        yield page("series.html.j2", series_page(series), _series_title(series), series=series)
    yield page("history.html.j2", HISTORY, "History", changes=site.history.changes())
    if site.results.signed:
        yield page("ranking.html.j2", RANKING, "Rankings")
    yield page("results.html.j2", RESULTS, "All results", script=script(), script_hash=script_hash())
    yield page("index.html.j2", INDEX, site.title)


@cache
def script() -> str:
    return (_HERE / "results.js").read_text("utf-8").strip()


def script_hash() -> str:
    """Return what the policy of a page says of the script: it alone may run."""
    return base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()


def series_page(series: SeriesHistory) -> str:
    return f"history/{series.page}.html"


def _series_title(series: SeriesHistory) -> str:
    return f"{series.result.workload}, {series.history.series.group.task} on {series.system}"


def _environment() -> Any:
    environment = template_environment(_HERE / "templates")
    environment.filters |= {
        "change": change_text,
        "differences": difference_texts,
        "number": lambda value: "" if value is None else f"{value:.9g}",
        "with_it": changed_with,
    }
    environment.globals |= {
        "marks_of_rows": _marks_of_rows,
        "quantity_text": quantity_text,
        "most_changes": MOST_CHANGES,
        "most_columns": MOST_SYSTEMS,
        "most_drawn": MOST_DRAWN,
        "most_in_list": MOST_IN_LIST,
        "most_listed": MOST_LISTED,
        "most_named": MOST_NAMED,
        "most_rows": MOST_ROWS,
        "series_page": series_page,
    }
    return environment


def _marks_of_rows(rows: Iterable[SeriesRow]) -> tuple[Mark, ...]:
    return marks_named(mark.name for row in rows for mark in row.marks)
