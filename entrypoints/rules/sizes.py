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
MOST_ENTRIES = MOST_STEPS  # of a list
LONGER = {"ranks": 2**16, "epochs": 2**16, "power.devices": 2**16}  # lists of what a run may have more of
_LARGE = b"0" * 39  # how JSON writes a large number if not with an exponent, with zeros for its digits
_SMALL = (b"0e-000", b"." + b"0" * 99)
_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")


@rule(
    "texts have at most 8192 characters, lists 1000 entries (ranks, epochs and metered devices 65536); numbers are 0, "
    "or 1e-99 to 1e39 and their negatives; a run has at most 1e6 devices, ranks, replicas, stages and instances, and "
    "no other count of its configuration is over 1e12. All other rules judge only what keeps this one",
    "No machine is larger, and what follows from such numbers is not computed.",
)
def sizes_are_possible(facts: Facts) -> Iterator[str]:
    """Check the size of everything."""
    yield from _counts(facts)
    if not _is_small(facts.text):
        yield from _sizes(facts.document, ())


def _counts(facts: Facts) -> Iterator[str]:
    given, device = facts.configuration, facts.document["accelerator"]
    for name in ("replicas", "stages", "instances"):
        if given.get(name, 1) > MOST_DEVICES:
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
    """Yield what is too large or too small in a JSON value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if len(key) > LONGEST:
                yield f"{'.'.join(path)}: a key of {len(key)} characters"
            else:
                yield from _sizes(item, (*path, key))
    elif isinstance(value, list):
        name = ".".join(path)
        if len(value) > LONGER.get(name, MOST_ENTRIES):
            yield f"{name}: a list of {len(value)} entries"
            return
        for number, item in enumerate(value):
            yield from _sizes(item, (*path, str(number)))
    elif isinstance(value, str):
        if len(value) > LONGEST:
            yield f"{'.'.join(path)}: a text of {len(value)} characters"
    elif is_number(value) and value and not SMALLEST <= abs(value) <= LARGEST:
        yield f"{'.'.join(path)}: {value!r} is beyond any measurement"
