"""Charts of several panels."""

from collections.abc import Sequence
from typing import Any

from sifmark.report.charts.chart import Spec
from sifmark.report.charts.theme import FONT_SIZE, INK

_COLUMNS, _SPACING = 2, 36  # names beside a panel may be wider in the font of a reader


def panel_chart(panels: Sequence[Spec]) -> Spec:
    """Return panels as one chart, two in a row; a single panel unchanged."""
    if len(panels) == 1:
        return panels[0]
    # Otherwise all panels have the lines of all, and colours and shapes are not those of systems.
    apart = dict.fromkeys(("color", "shape", "strokeDash"), "independent")
    return {
        "concat": list(panels),
        "columns": _COLUMNS,
        "spacing": _SPACING,
        "resolve": {"scale": apart, "legend": apart},
    }


def panel_title(text: str) -> dict[str, Any]:
    """Return the title above a panel."""
    looks = {"anchor": "start", "orient": "top", "color": INK.light, "fontSize": FONT_SIZE, "offset": 6}
    return {"text": text, **looks}
