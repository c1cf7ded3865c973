"""The HTML page of a report: templates that escape everything, one style, and charts inside."""

import base64
import hashlib
from pathlib import Path

from sifmark.report.charts.render import is_wide, page_svg
from sifmark.report.charts.theme import SYSTEMS, page_style
from sifmark.report.content.tables import MOST_COLUMNS, mean_text, ratio_words
from sifmark.report.page.environment import template_environment
from sifmark.report.report import Report

MOST_LINKS = 12  # to the results of one notice
_HERE = Path(__file__).parent


def render_page(report: Report, files: tuple[str, ...] = ()) -> str:
    """Return the page. `files` are the names of what is written beside it, to which it links."""
    style = _style()
    environment = template_environment(_HERE / "templates")
    environment.globals |= {
        "drawing": page_svg,
        "is_wide": is_wide,
        "mean_text": mean_text,
        "ratio_words": ratio_words,
        "MOST_COLUMNS": MOST_COLUMNS,
        "MOST_LINKS": MOST_LINKS,
    }
    page: str = environment.get_template("page.html.j2").render(
        report=report,
        files=files,
        style=style,
        policy=_policy(style),
        colours={name: place % len(SYSTEMS) + 1 for place, name in enumerate(report.results.systems)},
    )
    return page


def _style() -> str:
    """Return the style of the page, with the colours of charts."""
    return (_HERE / "style.css").read_text("utf-8") + page_style()


def _policy(style: str) -> str:
    """Return what a browser may load for the page: nothing but its own style."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
