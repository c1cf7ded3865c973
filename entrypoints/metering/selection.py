"""The meter that an option selects."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Sequence

from entrypoints.metering.meter import Absence, Meter
from entrypoints.metering.names import AUTO, NONE, names


def open_meter(choice: str, device: str) -> Meter | Absence:
    """Return the meter that `choice` (auto, none, NAME[:PLACE]) selects for a kind of device, or why there is none."""
    if choice == NONE:
        return Absence("no meter was asked for (--meter none)")
    name, _, place = choice.partition(":")
    if name != AUTO:
        return _open(name, device, place or None)
    reasons = []
    for name in names():
        if device in _measures(name):
            meter = _open(name, device, None)
            if not isinstance(meter, Absence):
                return meter
            reasons.append(f"{name}: {meter.reason}")
    return Absence("; ".join(reasons) or f"no meter measures {device}")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"entrypoints.metering.meters.{name}")


def _open(name: str, device: str, place: str | None) -> Meter | Absence:
    kinds = _measures(name)
    if kinds and device not in kinds:
        return Absence(f"the meter {name} measures {', '.join(kinds)}, and this run is on {device}")
    try:
        meter: Meter = _module(name).find(place)
        meter.read()
    except Exception as error:  # vendor libraries have their own; on any of them the run goes on without power
        return Absence(str(error) or type(error).__name__)
    return meter


def _measures(name: str) -> Sequence[str]:
    kinds: Sequence[str] = _module(name).MEASURES
    return kinds
