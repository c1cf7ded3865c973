"""What devices can compute at the most, as their vendors say it: `peaks.json`."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Sequence

from entrypoints.session import DeviceFacts

PATH = Path(__file__).resolve().parent / "peaks.json"


class Peak(NamedTuple):
    """Dense matrix operations of one device in FLOP/s and who says so, or why there is no number."""

    flops: float | None
    source: str | None
    reason: str | None


def of_device(device: DeviceFacts, precision: str | None) -> Peak:
    """The cited peak of one such device.

    A name has to be equal to the whole of what the vendor's library prints: names of halves, slices and other boards
    begin alike.
    """
    for entry in table():
        known = device.name in entry["names"] and device.granularity == entry["granularity"]
        if known and precision in entry["flops"]:
            return Peak(entry["flops"][precision], entry["source"], None)
    return Peak(None, None, f"no cited peak for {device.name or device.kind} ({device.granularity}) in {precision}")


@lru_cache(maxsize=None)
def table() -> Sequence[Any]:
    """The entries: names, granularity, FLOP/s by precision, source."""
    entries: Sequence[Any] = json.loads(PATH.read_text("utf-8"))
    return entries
