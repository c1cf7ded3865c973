"""Peak operations, memory and rated power of devices, as stated by their vendors: `peaks.json`."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.contract.choices import FP8
from entrypoints.contract.points import LastLevelCache
from entrypoints.contract.session import DeviceFacts
from entrypoints.results.roofline import Roof
from entrypoints.system.facts import MIB

PATH = Path(__file__).resolve().parent / "peaks.json"
# Precisions by what takes the place of each: the next that a device has, and after the last the first.
PREFERENCE = ("bf16", "fp16", "tf32", "fp32")
BESIDE_FP8 = "bf16"  # the precision of what a run in FP8 computes in another one
MIB_OF_GIB = 1024
VENDORS = {"AMD": ("AMD ",), "Intel": ("Intel(R) ", "GAUDI"), "Graphcore": ("GC", "Bow")}  # by how names begin
LEAST_OF_MEMORY, MOST_OF_MEMORY = 0.88, 1.005  # of the size that a vendor states, as drivers report it


class Peak(NamedTuple):
    """Dense matrix operations of one device in FLOP/s and their source, or why there is no number."""

    flops: float | None
    source: str | None
    reason: str | None


class Memory(NamedTuple):
    """Bandwidth of a device's memory in bytes/s, the bytes of the caches before it, and their source.

    Without a bandwidth, the reason.
    """

    bandwidth: float | None
    cache: float
    source: str | None
    reason: str | None


class RatedPower(NamedTuple):
    """Rated power of a device in W, its scope and its source, or why there is no number."""

    watts: float | None
    scope: str | None  # package, or the board that holds one or several
    source: str | None
    reason: str | None


def of_device(device: DeviceFacts, precision: str | None) -> Peak:
    """Return the cited peak of one such device."""
    entry = _entry(device)
    if entry and precision in entry["flops"]:
        return Peak(entry["flops"][precision], entry["source"], None)
    return Peak(None, None, f"no cited peak for {_named(device)} in {precision}")


def memory(device: DeviceFacts) -> Memory:
    """Return the cited memory of one such device. IPUs have none outside of the processor that models need."""
    entry = _entry(device)
    cited = entry["memory"] if entry and "memory" in entry else {}
    if "bandwidth" not in cited:
        return Memory(None, 0.0, None, f"no cited memory bandwidth for {_named(device)}")
    return Memory(cited["bandwidth"], cited["cache_mib"] * MIB, cited["source"], None)


def last_level_cache(device: DeviceFacts) -> LastLevelCache | None:
    """Return the cited caches of one such device, or None if nobody cites them."""
    cited = memory(device)
    return LastLevelCache(cited.cache, cited.source) if cited.source and cited.cache else None


def roof(device: DeviceFacts, precision: str | None) -> Roof | None:
    """Return what one such device can do at the most, or None if nobody cites it."""
    entry = _entry(device)
    return roof_of(entry, precision) if entry and precision and precision in entry["flops"] else None


def roof_of(entry: Mapping[str, Any], precision: str) -> Roof:
    """Return what one device of an entry of the table can do at the most."""
    cited, flops = entry.get("memory", {}), entry["flops"]
    bandwidth, cache = cited.get("bandwidth"), 0.0
    if bandwidth is not None:
        cache = cited["cache_mib"] * MIB
    if precision == FP8:
        return Roof(flops[BESIDE_FP8], bandwidth, cache, flops[FP8])
    return Roof(flops[precision], bandwidth, cache)


def roofs(kind: str, precision: str) -> dict[str, Roof]:
    """Return what devices of a kind can do at the most in a precision, by name, with the part that is a device."""
    found: dict[str, Roof] = {}
    for entry in table():
        if entry["kind"] == kind and precision in entry["flops"]:
            found[label(entry)] = roof_of(entry, precision)
    return found


def label(entry: Mapping[str, Any]) -> str:
    """Return the first name of an entry, with what else tells it from others."""
    size = f" ({entry['memory']['gib']} GB)" if entry.get("by_memory") else ""
    part = "" if entry["granularity"] == "package" else f" ({entry['granularity']})"
    return f"{entry['names'][0]}{size}{part}"


def nearest_precision(entry: Mapping[str, Any], wanted: str) -> str:
    """Return a precision, or the first after it, in the order of PREFERENCE, with a cited peak of an entry."""
    order = PREFERENCE[PREFERENCE.index(wanted) :] + PREFERENCE[: PREFERENCE.index(wanted)]
    return next(precision for precision in order if precision in entry["flops"])


def rated_power(device: DeviceFacts) -> RatedPower:
    """Return the cited power of one such device, or of the smallest part around it for which its vendor cites one."""
    entry = _entry(device)
    if not entry or "power" not in entry:
        return RatedPower(None, None, None, f"no cited power for {_named(device)}")
    return RatedPower(**entry["power"], reason=None)


def vendor(name: str) -> str:
    """Return the vendor of a device in the table."""
    return next((vendor for vendor, firsts in VENDORS.items() if name.startswith(firsts)), "NVIDIA")


def fits(entry: Mapping[str, Any], memory_mib: float) -> bool:
    """Return whether a device with so much memory can be that of an entry.

    Drivers keep a part for themselves, and error correction in GDDR6 takes a sixteenth. Of a memory that is shared
    with a processor they may report any part.
    """
    cited = entry.get("memory", {})
    if "gib" not in cited:
        return True
    least = 0.0 if cited.get("shared") else LEAST_OF_MEMORY
    return bool(least <= memory_mib / (cited["gib"] * MIB_OF_GIB) <= MOST_OF_MEMORY)


def reported_mib(entry: Mapping[str, Any]) -> float | None:
    """Return what drivers report of the memory of an entry, at the most; None where it has none of its own."""
    size = entry.get("memory", {}).get("gib")
    return None if size is None else float(size * MIB_OF_GIB)


def named(device: DeviceFacts) -> Sequence[Mapping[str, Any]]:
    """Return the entries with the name and granularity of a device, whatever its memory.

    A name must equal the complete name that the vendor's library prints: names of halves, slices and other boards have
    the same beginning.
    """
    return [e for e in table() if device.name in e["names"] and device.granularity == e["granularity"]]


def _entry(device: DeviceFacts) -> Any:
    """Return the entry of a device, or None. Where cards of one name differ in their memory, that decides."""
    return next((entry for entry in named(device) if not entry.get("by_memory") or _is_that_size(entry, device)), None)


def _is_that_size(entry: Mapping[str, Any], device: DeviceFacts) -> bool:
    return device.memory_mib is not None and fits(entry, device.memory_mib)


def _named(device: DeviceFacts) -> str:
    return f"{device.name or device.kind} ({device.granularity})"


@lru_cache(maxsize=None)
def table() -> Sequence[Any]:
    """Return the entries, each of one device.

    `names`: as the vendor's library prints them; `by_memory` if other cards have them too, with other memory.
    `kind`, `granularity`: as in a result. `flops`: dense operations/s by precision, integer operations for int8, and
    `source`. `memory`: bandwidth in bytes/s, caches before it in MiB, size in GiB (vendors say GB), `shared` if a
    processor uses it too, source; `power` in W with its scope and source. What nobody states is not there.
    """
    entries: Sequence[Any] = json.loads(PATH.read_text("utf-8"))
    return entries
