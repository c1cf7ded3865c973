"""The page of a report as HTML: templates that escape everything, one style, and charts inside."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.console import counted
from sifmark.report.content.appendix import groups_of
from sifmark.report.content.tables import MOST_COLUMNS, all_marks, basis_of, notes_of_ratios, ratio_words
from sifmark.report.describe import mean_text
from sifmark.report.palette import FONT, filter_rules, system_class
from sifmark.report.palette import style_sheet as colours_and_marks
from sifmark.report.report import Report
from sifmark.report.scorecard import MOST_SYSTEMS, axis_plot, cell_plot, heat_of
from sifmark.report.svg import fluid_style
from sifmark.report.texts import clip
from sifmark.report.workloads import judged
from sifmark.results.numbers import split_interval

LONGEST_NAME = 48
_HERE = Path(__file__).parent
_NAMES: dict[str, Any] = {
    "axis_plot": axis_plot,
    "cell_plot": cell_plot,
    "judged": judged,
    "mean_text": mean_text,
    "ratio_words": ratio_words,
    "MOST_CARDS": 8,
    "MOST_COLUMNS": MOST_COLUMNS,
    "MOST_EXAMPLES": 3,  # results of a notice
    "MOST_FAILURES": 12,  # of a workload
    "MOST_FILTERED": 12,  # systems with a box that hides them
    "MOST_LINKED": 6,
}


def template_environment(folder: Path) -> Any:
    """Return the environment of the templates in a folder, with the filters and names that all of them have."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # here: it loads slowly

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "clip": clip,
        "name": lambda text: clip(text, LONGEST_NAME),
        "plural": counted,
        "split": split_interval,
    }
    environment.globals["version"] = __version__
    return environment


def render_page(report: Report, files: tuple[str, ...] = (), paper: bool = False) -> str:
    """Return the page. `files` are the names of what is written beside it, to which it links; `paper` says whether
    there are files for papers among them.
    """
    style = page_style(report)
    environment = template_environment(_HERE / "templates")
    environment.globals |= _NAMES | {
        "looks": {name: system_class(place) for place, name in enumerate(report.results.systems)},
        "paper": paper,
    }
    numbers = [point for table in report.numbers for point in table.points]
    page: str = environment.get_template("page.html.j2").render(
        report=report,
        files=files,
        style=style,
        policy=page_policy(style),
        heat=heat_of(report.scorecard) if report.scorecard and len(report.results.systems) > MOST_SYSTEMS else None,
        notes=tuple(dict.fromkeys(_notes(report))),
        number_basis=basis_of(numbers) if numbers else "",
        number_marks=all_marks(numbers),
        groups=groups_of(report.appendix),
    )
    return page


def _notes(report: Report) -> Iterator[str]:
    """Yield what the ratios of the scorecard are of, and what their verdicts allow for."""
    for metric in dict.fromkeys(point.metric for point in report.scorecard.points) if report.scorecard else ():
        rows = [point.row for point in report.scorecard.points if point.metric == metric] if report.scorecard else []
        yield from notes_of_ratios(rows, report.results.compare(metric).query)


def page_style(report: Report) -> str:
    """Return the style of a report: of its page, its charts, and the boxes that hide systems."""
    return f"{shared_style()}\n{filter_rules(len(report.results.systems))}"


def shared_style() -> str:
    """Return the style that pages of reports and of sites have in common, with that of charts."""
    own = (_HERE / "page.css").read_text("utf-8").replace("FONT", FONT)
    return "\n".join((colours_and_marks(), fluid_style(), own))


def page_policy(style: str) -> str:
    """Return what a browser may load for the page: nothing but its own style."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
