"""What one device can do at the most, as its vendor states it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sifmark.core.errors import UsageError, unknown_name
from sifmark.core.paths import import_shared


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks of one device. What no vendor states is None, or is not in `flops`.

    `flops`: dense operations/s, without sparsity, by precision: fp64, fp32, tf32, bf16, fp16, fp8 and int8, the last of
    integers. `memory_bandwidth`: bytes/s. `memory_gib`: GiB, as vendors mean their GB; drivers report a little less.
    `cache_mib`: MiB of the caches before the memory. `rated_power`: W, of the package or the board that
    `rated_power_scope` names. `granularity`: what one device is: a die, a tile or a package.
    """

    name: str
    granularity: str
    flops: Mapping[str, float]
    source: str
    memory_bandwidth: float | None = None
    memory_gib: float | None = None
    cache_mib: float | None = None
    memory_source: str | None = None
    rated_power: float | None = None
    rated_power_scope: str | None = None
    rated_power_source: str | None = None


def peaks(name: str, *, granularity: str | None = None, memory_mib: float | None = None) -> Peaks:
    """Return the cited peaks of a device by the name that `torch.cuda.get_device_name` prints, such as NVIDIA H200.

    `granularity` is needed for a device of which the table has parts and the whole, and `memory_mib`, as the driver
    reports it, for a name that cards of several sizes have. Raises UsageError for a name that the table does not have,
    with the nearest that it has, and for one that is not enough.
    """
    table = import_shared("results.peaks")
    entries = [entry for entry in table.table() if name in entry["names"]]
    if not entries:
        known = dict.fromkeys(each for entry in table.table() for each in entry["names"])
        raise unknown_name("device in the table of peaks", name, known)
    if granularity is not None:
        entries = [entry for entry in entries if entry["granularity"] == granularity]
    if len(entries) > 1:
        parts = " or ".join(repr(entry["granularity"]) for entry in entries)
        raise UsageError(f"{name} has several entries", f"pass granularity={parts}", code="ambiguous-name")
    fitting = [entry for entry in entries if not entry.get("by_memory") or _fits(table, entry, memory_mib)]
    if not fitting:
        remedy = "pass the granularity and the memory_mib that the device has"
        raise UsageError(f"{name}: the table has another device of this name", remedy, code="ambiguous-name")
    return _peaks(name, fitting[0])


def _fits(table: Any, entry: Mapping[str, Any], memory_mib: float | None) -> bool:
    return memory_mib is not None and bool(table.fits(entry, memory_mib))


def _peaks(name: str, entry: Mapping[str, Any]) -> Peaks:
    memory, power = entry.get("memory", {}), entry.get("power", {})
    return Peaks(
        name=name,
        granularity=entry["granularity"],
        flops=MappingProxyType(dict(entry["flops"])),
        source=entry["source"],
        memory_bandwidth=memory.get("bandwidth"),
        memory_gib=memory.get("gib"),
        cache_mib=memory.get("cache_mib"),
        memory_source=memory.get("source"),
        rated_power=power.get("watts"),
        rated_power_scope=power.get("scope"),
        rated_power_source=power.get("source"),
    )
