"""The page of a report as HTML: templates that escape everything, one style, and charts inside."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.console import counted
from sifmark.report.describe import all_marks, clip, legend_of, state_text
from sifmark.report.palette import FONT, filter_rules, system_class
from sifmark.report.palette import style_sheet as colours_and_marks
from sifmark.report.report import Report
from sifmark.report.runs import groups_of
from sifmark.report.scorecard import MOST_SYSTEMS, axis_plot, cell_plot, heat_of
from sifmark.report.svg import fluid_style
from sifmark.report.tables import notes_of_ratios
from sifmark.results.numbers import split_interval

LONGEST_NAME = 48
_HERE = Path(__file__).parent
_TEMPLATES = _HERE / "templates"
_NAMES: dict[str, Any] = {
    "axis_plot": axis_plot,
    "cell_plot": cell_plot,
    "MOST_CARDS": 8,
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
        loader=FileSystemLoader([folder, _TEMPLATES]),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "clip": clip,
        "name": lambda text: clip(text, LONGEST_NAME),
        "plural": counted,
        "split": split_interval,
        "state": state_text,
    }
    environment.globals |= {"version": __version__, "legend_of": legend_of, "all_marks": all_marks, "looks": {}}
    return environment


def render_page(report: Report, files: tuple[str, ...] = (), paper: bool = False) -> str:
    """Return the page. `files` are the names of what is written beside it, to which it links; `paper` says whether
    there are files for papers among them.
    """
    style = page_style(report)
    environment = template_environment(_TEMPLATES)
    environment.globals |= _NAMES | {
        "files": files,
        "looks": {name: system_class(place) for place, name in enumerate(report.results.systems)},
        "paper": paper,
    }
    page: str = environment.get_template("page.html.j2").render(
        report=report,
        style=style,
        policy=page_policy(style),
        heat=heat_of(report.scorecard) if report.scorecard and len(report.results.systems) > MOST_SYSTEMS else None,
        notes=tuple(dict.fromkeys(_notes(report))),
        groups=groups_of(report.runs),
        hosts=len({each.observation.host for each in report.results.members}),
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
