"""A fact: a value, or the reason why there is none."""

from __future__ import annotations

from typing import Any, Callable, Dict, Union

MIB = 2**20  # bytes; memory is reported in MiB
Value = Union[str, int, float]
Fact = Dict[str, Any]  # value, unit, reason, as in the result's schema


class FactError(Exception):
    """A value is not available; the text is the reason."""


def fact(read: Callable[[], Value | None], unit: str | None = None) -> Fact:
    """Return what `read` returns, as a fact; null and the reason if it fails or returns None."""
    extra = {"unit": unit} if unit else {}
    try:
        value = read()
    except (OSError, LookupError, ValueError, FactError) as error:
        return {"value": None, **extra, "reason": str(error)}
    if value is None or value == "":
        return {"value": None, **extra, "reason": "the system does not say"}
    return {"value": value, **extra}
