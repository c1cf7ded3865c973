"""Bandwidth of a memory and of the caches before it, from copies of several sizes."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.contract.points import BEYOND_CACHE, MEMORY_COPY, LastLevelCache, Omitted
from entrypoints.contract.session import DeviceFacts
from entrypoints.results import peaks
from entrypoints.results.json_values import Json, number
from entrypoints.system.facts import MIB

BUS = "bus_bandwidth_gb_per_second"
NO_COPIES = f"only {MEMORY_COPY} measures it"
NO_SWEEP = "no sweep was finished"
OTHERS_IN_PLACE = f"{MEMORY_COPY} has memory_bandwidth and cached_bandwidth in its place"


class CopyRate(NamedTuple):
    """The bus bandwidth of copies of one size, in GB/s."""

    size: int  # bytes
    bandwidth: float


class Fastest(NamedTuple):
    """The fastest of some copies, or why there is none."""

    copy: CopyRate | None
    reason: str | None = None


class Bandwidths(NamedTuple):
    """The fastest copies in memory, and within the last-level caches."""

    memory: Fastest
    cached: Fastest


def bandwidths(rates: Sequence[CopyRate], omitted: Sequence[Omitted], cache: LastLevelCache | None) -> Bandwidths:
    """Return both bandwidths of a device with these last-level caches. Copies of sizes between count for neither."""
    if not rates:
        return absent(NO_SWEEP)
    if cache is None:
        return absent("the size of the last-level caches is not known: see points.measured")
    in_memory = [rate for rate in rates if rate.size >= cache.left_from]
    within = [rate for rate in rates if rate.size <= cache.held]
    return Bandwidths(
        _fastest(in_memory, _cached_only(omitted, cache)),
        _fastest(within, f"no size was so small that the last-level caches of {_mib(cache)} hold both buffers"),
    )


def absent(reason: str) -> Bandwidths:
    """Return that there is neither, for one reason."""
    return Bandwidths(Fastest(None, reason), Fastest(None, reason))


def _fastest(rates: Sequence[CopyRate], reason: str) -> Fastest:
    return Fastest(max(rates, key=lambda rate: rate.bandwidth)) if rates else Fastest(None, reason)


def _cached_only(omitted: Sequence[Omitted], cache: LastLevelCache) -> str:
    """Return why no copy left the caches, and which size would have."""
    why = f"no size is {BEYOND_CACHE} times the last-level caches of {_mib(cache)}"
    larger = min((each for each in omitted if each.size >= cache.left_from), default=None)
    return f"{why}; --largest-size {larger.size} is, and was left out: {larger.reason}" if larger else why


def _mib(cache: LastLevelCache) -> str:
    return f"{cache.bytes / MIB:.4g} MiB"


def metrics_of(document: Mapping[str, Any]) -> dict[str, Json]:
    """Return the metrics of a result that follow from copies, and why copies have no other bandwidth.

    Schema 1.1 has no caches: those are of the table of peaks then.
    """
    found, metrics = _of_points(document), {}
    for name, fastest in (("memory", found.memory), ("cached", found.cached)):
        copy = fastest.copy
        metrics[f"{name}_bandwidth"] = number(copy and copy.bandwidth, "GB/s", fastest.reason)
        metrics[f"{name}_bandwidth_size"] = number(copy and copy.size / MIB, "MiB", fastest.reason)
    if document["points"]["operation"] == MEMORY_COPY:
        metrics["peak_bandwidth"] = number(None, "GB/s", OTHERS_IN_PLACE)
    return metrics


def _of_points(document: Mapping[str, Any]) -> Bandwidths:
    points = document["points"]
    if points["operation"] != MEMORY_COPY:
        return absent(NO_COPIES)
    rates = [CopyRate(row["size"], row[BUS]) for row in points["measured"] if row[BUS] is not None]
    omitted = [Omitted(each["size"], each["reason"]) for each in points["omitted"]]
    return bandwidths(rates, omitted, cache_of(document))


def cache_of(document: Mapping[str, Any]) -> LastLevelCache | None:
    """Return the last-level caches of a result of copies; None if nobody knows them."""
    recorded = document["points"].get("last_level_cache")
    if recorded is None:
        return peaks.last_level_cache(_device(document["accelerator"]))
    value = recorded["value"]
    return None if value is None else LastLevelCache(value * MIB, recorded.get("source", ""))


def _device(accelerator: Mapping[str, Any]) -> DeviceFacts:
    name, granularity = accelerator.get("name"), accelerator.get("granularity", "")
    mib = accelerator.get("memory_mib")
    return DeviceFacts(accelerator["kind"], None, name, 1, granularity, mib, 1, 1, "", simulated=False)
