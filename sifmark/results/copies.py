"""Bandwidths of memory and of caches in results of schema 1.1, which have them only in their points."""

from collections.abc import Mapping
from typing import Any

from sifmark.core.paths import import_shared

Document = dict[str, Any]
_NEW = "memory_bandwidth"


def with_bandwidths(document: Mapping[str, Any], metrics: dict[str, Document]) -> dict[str, Document]:
    """Return the metrics of a result; of a micro-benchmark of schema 1.1 with those that follow from its points."""
    if not document.get("points") or _NEW in metrics:
        return metrics
    return {**metrics, **import_shared("results.copies").metrics_of(document)}
