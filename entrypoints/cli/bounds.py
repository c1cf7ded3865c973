"""The highest throughput of a run on each device that it could be on."""

from __future__ import annotations

from typing import Any

from entrypoints.contract.cards import Card
from entrypoints.planning.configuration import Configuration
from entrypoints.results import peaks
from entrypoints.results.roofline import Roof, bound, work_of_step


def bounds(card: Card, resolved: Configuration) -> list[dict[str, Any]]:
    """Return the highest throughput on the devices of the table of peaks that are of the run's kind.

    Of any other device, such as a CPU, only a measured peak gives one.
    """
    work = work_of_step(card, resolved.task, resolved.as_json())
    if work is None:
        return []
    roofs = peaks.roofs(resolved.device, resolved.precision)
    measured = resolved.measured_peak
    if measured and measured["device"] not in roofs:
        roofs[measured["device"]] = Roof(measured["flops"])
    highest = {name: bound(work, roof, resolved.devices) for name, roof in roofs.items()}
    unit = f"{card.problem['unit']}/s"
    return [
        {"device": name, "count": resolved.devices, "throughput": each.throughput, "unit": unit, "limit": each.limit}
        for name, each in highest.items()
    ]
