"""Plain JSON values: numbers that are finite or null with a reason, and text that is Unicode."""

from __future__ import annotations

import math
from typing import Any, Dict

Json = Dict[str, Any]


def number(value: float | None, unit: str, reason: str | None = None) -> Json:
    """Return a number with its unit; null with the reason if there is none or it is not finite."""
    if value is not None and math.isfinite(value):
        return {"value": value, "unit": unit}
    return {"value": None, "unit": unit, "reason": reason or f"not a finite number: {value}"}


def interval(bounds: tuple[float, float] | None, unit: str, reason: str | None = None) -> Json:
    """Return an interval with its unit; null with the reason if there is none."""
    low, high = bounds or (None, None)
    return {"low": low, "high": high, "unit": unit, **({} if bounds else {"reason": reason})}


def finite(value: float | None) -> float | None:
    """Return the value, or None if JSON cannot hold it."""
    return value if value is not None and math.isfinite(value) else None


def printable(value: Any) -> Any:
    """Return a JSON value whose texts have only characters that show: others, as in foreign file names and in messages
    of libraries, become question marks, and white space becomes spaces."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {key: printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list) else value


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    return character if character.isprintable() else "?"
