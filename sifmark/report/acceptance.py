"""The page of an acceptance: the verdict, each clause on each node with the interval that decided it, and how."""

from pathlib import Path
from typing import Any

from sifmark.report.page import page_policy, shared_style, template_environment
from sifmark.studies.acceptance.document import COLUMNS, percent, rows_of
from sifmark.studies.acceptance.judge import Acceptance, Verdict

_HERE = Path(__file__).parent
_HEADLINES = {
    Verdict.PASS: "Accepted",
    Verdict.FAIL: "Not accepted",
    Verdict.CANNOT_TELL: "Cannot tell",
}


def acceptance_page(acceptance: Acceptance, document: dict[str, Any], signed: bool) -> str:
    """Return the page, of which `document` is the form for programs."""
    style = shared_style()
    page: str = (
        template_environment(_HERE / "templates")
        .get_template("acceptance.html.j2")
        .render(
            acceptance=acceptance,
            columns=COLUMNS[:-1],  # reasons stand above
            document=document,
            headline=_HEADLINES[acceptance.verdict],
            percent=percent,
            policy=page_policy(style),
            rows=[row[:-1] for row in rows_of(acceptance)],
            signed=signed,
            style=style,
        )
    )
    return page
