"""The rule about sizes, judged before all others: none of those has to guard its work against what it is given."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from entrypoints.results.result import MOST_STEPS
from entrypoints.rules.facts import Facts, is_number
from entrypoints.rules.rule import rule

LONGEST = 8192  # characters of a text: a path has at most 4096, a message 1000 and what surrounds it
LARGEST = 1e39  # of any number: a loss in single precision that has not overflowed is smaller
SMALLEST = 1e-99  # but 0: the smallest number in single precision is 1e-45, and no clock has such a resolution
MOST_DEVICES, MOST_OF_A_COUNT = 10**6, 10**12
COUNTS = (
    *("batch_size", "micro_batch_size", "gradient_accumulation", "device_iterations", "steps", "warmup_steps"),
    *("concurrency", "samples_per_epoch", "steps_per_epoch", "data_workers", "threads"),
)
MOST_ENTRIES = MOST_STEPS  # of a list or an object
MOST_VALUES = 2**20  # of a document
LONGER = {"epochs": 2**16, "ranks": 2**14, "power.devices": 2**14}  # lists of what a run may have more of
_LARGE = b"0" * 39  # how JSON writes a large number if not with an exponent, with zeros for its digits
_SMALL = (b"0e-000", b"." + b"0" * 99)
_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")


@rule(
    "texts have at most 8192 characters, lists and objects 1000 entries (epochs 65536, ranks and metered devices "
    "16384), and a document 1048576 values; numbers are 0, or 1e-99 to 1e39 and their negatives; a run has at most 1e6 "
    "devices, ranks, replicas, stages, tensor, shards and instances, and no other count of its configuration is over "
    "1e12. All other rules judge only what keeps this one",
    "No machine is larger, and what follows from such numbers is not computed.",
)
def sizes_are_possible(facts: Facts) -> Iterator[str]:
    """Check the size of everything."""
    yield from _counts(facts)
    yield from oversized(facts.document, facts.text)


def oversized(value: Any, text: str | None) -> Iterator[str]:
    """Yield what is too large or too small in a JSON value, of a result or not. Its text, if given, saves time."""
    if text is not None and text.count(",") > MOST_VALUES:
        yield f"the document: more than {MOST_VALUES} values"
    elif text is None or not _is_small(text):
        yield from _sizes(value, ())


def _counts(facts: Facts) -> Iterator[str]:
    given, device = facts.configuration, facts.document["accelerator"]
    for name in ("replicas", "stages", "instances", "tensor", "virtual_stages", "shards"):
        if (given.get(name) or 1) > MOST_DEVICES:
            yield f"configuration.{name}: {given[name]!r} are beyond any machine"
    for name in ("count", "ranks", "replicas"):
        if device.get(name, 1) > MOST_DEVICES:
            yield f"accelerator.{name}: {device[name]!r} are beyond any machine"
    for name in COUNTS:
        if (given.get(name) or 0) > MOST_OF_A_COUNT:
            yield f"configuration.{name}: {given[name]!r} is beyond any run"


def _is_small(text: str) -> bool:
    """Return whether a JSON text has surely nothing that `_sizes` would yield, at a tenth of its cost."""
    if not text.isascii() or "\\" in text or text.count(",") >= MOST_ENTRIES:
        return False
    pieces = text.split('"')  # without a backslash, every other one is a string
    numbers = "".join(pieces[::2]).encode().translate(_AS_ZEROS)
    if numbers.count(b"0e") != numbers.count(b"0e-") or _LARGE in numbers or any(each in numbers for each in _SMALL):
        return False
    return len(text) <= LONGEST or max(map(len, pieces[1::2])) <= LONGEST


def _sizes(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        if len(value) > MOST_ENTRIES and len(value) > LONGER.get(".".join(path), 0):
            yield f"{_named(path)}: {len(value)} entries"
            return
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(key, str) and len(key) > LONGEST:
                yield f"{_named(path)}: a key of {len(key)} characters"
            elif not is_number(item):
                yield from _sizes(item, (*path, str(key)))
            elif item and not SMALLEST <= abs(item) <= LARGEST:
                yield f"{_named((*path, str(key)))}: {item!r} is beyond any measurement"
    elif isinstance(value, str) and len(value) > LONGEST:
        yield f"{_named(path)}: a text of {len(value)} characters"


def _named(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the document"
