"""Bandwidths of memory and of caches in results of copies. Those of schema 1.1 have them only in their points."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sifmark.core.paths import import_shared

Document = dict[str, Any]
_NEW = "memory_bandwidth"
_OF_A_SWEEP = ("achieved_flops", "utilisation", "utilisation_of_measured_peak", "fraction_of_bound")


def with_bandwidths(document: Mapping[str, Any], metrics: dict[str, Document]) -> dict[str, Document]:
    """Return the metrics of a result; of a micro-benchmark of schema 1.1 with those that follow from its points.

    Those that say something of the mean of its sweep lose their value, as in later schemas.
    """
    if not document.get("points") or _NEW in metrics:
        return metrics
    without = {name: _without(metrics[name]) for name in _OF_A_SWEEP if name in metrics}
    return {**metrics, **without, **import_shared("results.copies").metrics_of(document)}


def _without(metric: Document) -> Document:
    """Return a metric of the mean of a sweep without its value."""
    reason = import_shared("contract.points").OF_ALL_SIZES
    return metric if metric["value"] is None else {**metric, "value": None, "reason": reason}


@dataclass(frozen=True)
class Caches:
    """The last-level caches that the copies of a result go through."""

    left_from: float | None  # bytes from which on a copy is one in memory; None if they are not known
    held: float  # bytes up to which they hold both buffers

    def place(self, size: int) -> str:
        """Return where the buffers of a size are: memory or caches; empty in between, or if it is not known."""
        if self.left_from is not None and size >= self.left_from:
            return "memory"
        return "caches" if size <= self.held else ""


def caches_of(document: Mapping[str, Any]) -> Caches:
    """Return the caches of a result of copies."""
    cache = import_shared("results.copies").cache_of(document)
    return Caches(None, 0.0) if cache is None else Caches(cache.left_from, cache.held)
