"""The rules of results, which hosts and images share: they are part of the entrypoints that this sifmark ships."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from sifmark.core.paths import import_shared

Document = dict[str, Any]
Violations = Callable[[Document, str | None], Sequence[str]]
Oversized = Callable[[Any, str | None], Iterator[str]]


@cache
def violations_of() -> Violations:
    """Return the function that returns what in a document that fits its schema contradicts itself or its card."""
    violations: Violations = import_shared("rules.check").violations
    return violations


@cache
def oversized_of() -> Oversized:
    """Return the function that yields what in a JSON value is larger than anything in a result."""
    oversized: Oversized = import_shared("rules.sizes").oversized
    return oversized
