"""The highest throughput of a run, or of a workload, on each device that it could be on."""

from __future__ import annotations

from typing import Any, Mapping

from entrypoints.contract.cards import Card
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.planning.configuration import Configuration
from entrypoints.planning.device_defaults import for_memory
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


def devices(text: str) -> list[str]:
    """Return the name in the table of peaks that equals a text, in any case, or else those that contain it.

    A name that several cards have is only a part of what tells them apart.
    """
    names = {name: entry for entry in peaks.table() for name in entry["names"]}
    exact = [name for name, entry in names.items() if name.lower() == text.lower() and not entry.get("by_memory")]
    return exact or [name for name in names if text.lower() in name.lower()]


def bounds_of_workload(card: Card, device: str) -> list[dict[str, Any]]:
    """Return the highest throughput of each task on one device of a name in the table of peaks.

    It is that of the batch that a run has there by default, for the memory in the table, and in its micro-batches, in
    the card's default precision or, on a device without a cited peak in it, in the next that has one. Parts of a device
    are apart, as in the table.
    """
    entries = [entry for entry in peaks.table() if device in entry["names"]]
    each = (_bound_of_task(card, task, entry) for task in card.tasks if task != MICROBENCHMARK for entry in entries)
    return [of_task for of_task in each if of_task is not None]


def _bound_of_task(card: Card, task: str, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the bound of a task on an entry of the table of peaks; None if nobody counts its operations."""
    defaults = for_memory(card.defaults_for(entry["kind"], task), peaks.reported_mib(entry))
    batch = int(defaults["batch_size"])
    precision = peaks.nearest_precision(entry, defaults["precision"])
    configuration = {
        **dict.fromkeys(("device_iterations", "replicas"), 1),
        "gradient_accumulation": batch // int(defaults.get("micro_batch_size") or batch),
        **dict.fromkeys(("strategy", "concurrency")),
        "device": entry["kind"],
        "precision": precision,
        "batch_size": batch,
    }
    work = work_of_step(card, task, configuration)
    if work is None:
        return None
    highest = bound(work, peaks.roof_of(entry, precision), 1)
    return {
        "task": task,
        "part": entry["granularity"],
        "precision": precision,
        "batch_size": batch,
        "throughput": highest.throughput,
        "unit": f"{card.problem['unit']}/s",
        "limit": highest.limit,
    }
