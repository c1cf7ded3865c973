"""What the layers of charts are made of: rows of data, a mark, and the channels that every mark has."""

from collections.abc import Iterable
from typing import Any

Layer = dict[str, Any]
Row = dict[str, Any]

# Rows have colours, words and links of their own.
COLOUR: dict[str, Any] = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
WORDS: dict[str, Any] = {
    "href": {"field": "href", "type": "nominal"},
    "description": {"field": "description", "type": "nominal"},
}


def layer(rows: Iterable[Row], mark: dict[str, Any], **encoding: Any) -> Layer:
    """Return rows drawn as marks."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}
