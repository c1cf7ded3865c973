"""The page of a report as HTML: templates that escape everything, one style, and charts inside."""

import base64
import hashlib
import unicodedata
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.console import counted, printable
from sifmark.report.charts.render import is_wide, page_svg
from sifmark.report.charts.theme import SYSTEMS, page_style
from sifmark.report.content.tables import MOST_COLUMNS, judged, ratio_words
from sifmark.report.describe import mean_text
from sifmark.report.report import Report
from sifmark.results.numbers import split_interval

LONGEST_TEXT = 160  # characters of untrusted text; of a longer one the middle is left out
LONGEST_NAME = 48
MOST_LINKS = 12  # to the results of one notice
_HERE = Path(__file__).parent


def template_environment(folder: Path) -> Any:
    """Return the environment of the templates in a folder, with the filters and names that all of them have."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # an extra

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


def clip(text: Any, longest: int = LONGEST_TEXT) -> str:
    """Return untrusted text as one printable line, without its middle if it is long."""
    line = printable(unicodedata.normalize("NFC", str(text)))
    half = longest // 2
    return line if len(line) <= longest else f"{line[:half]} … {line[-half:]}"


def render_page(report: Report, files: tuple[str, ...] = ()) -> str:
    """Return the page. `files` are the names of what is written beside it, to which it links."""
    style = style_sheet()
    environment = template_environment(_HERE / "templates")
    environment.globals |= {
        "drawing": page_svg,
        "is_wide": is_wide,
        "judged": judged,
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


def style_sheet() -> str:
    """Return the style of reports and sites, with the colours of charts."""
    return (_HERE / "style.css").read_text("utf-8") + page_style()


def _policy(style: str) -> str:
    """Return what a browser may load for the page: nothing but its own style."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
