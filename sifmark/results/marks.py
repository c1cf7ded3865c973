"""Marks: short reasons not to publish a number, which accompany it wherever a report shows it."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from sifmark.results.catalogue import MICROBENCHMARK
from sifmark.results.warnings import (
    AT_POWER_LIMIT,
    FAR_BELOW,
    STALLED,
    THROTTLED,
    is_at_power_limit,
    is_disturbed,
    is_far_below,
    is_stalled,
    is_throttled,
)

Document = dict[str, Any]
FEWEST_REPEATS = 3  # on each side, that an interval needs


@dataclass(frozen=True)
class Mark:
    """A reason not to publish a number."""

    code: str  # in files, and for `--allow`
    symbol: str  # a letter beside the number
    name: str  # in a legend: `test base`
    why: str  # a sentence, for the box above the numbers
    remedy: str  # sentences, with commands and options in backticks
    everywhere: bool = True  # or only in the box: what says little of the number itself


def _of_image(document: Document) -> Document:
    return document["provenance"]["image"] or {}


def _is_short(document: Document) -> bool:
    """Return whether timed steps do not show if they drift. A step of a micro-benchmark is a whole sweep over sizes."""
    steps = document["steps"]
    is_timed = steps["count"] > steps["untimed"] and document["workload"]["task"] != MICROBENCHMARK
    return is_timed and document["steadiness"]["steady"] is None


TEST_BASE = Mark(
    "test_base",
    "T",
    "test base",
    "The image has a test base, not that of the vendor.",
    "Build it on the pinned base: `sifmark build`.",
)
SIMULATED = Mark(
    "simulated",
    "S",
    "simulated",
    "The device was simulated, or its meter replayed a recorded trace.",
    "Measure on the device.",
)
UNCHECKED = Mark(
    "unchecked",
    "C",
    "correctness not shown",
    "Nothing shows that the code computes what the workload's card says.",
    "Run without `--skip-numerics`, on a workload with reference values.",
)
BUSY = Mark(
    "busy", "B", "busy host", "Other work on the host kept processors from the run.", "Measure again on an idle host."
)
STALLED_RUN = Mark(
    "stopped",
    "P",
    "stopped for a time",
    f"Outlying steps took more than {STALLED:.0%} of the timed window: something stopped the run.",
    "Find what stopped it, and measure again.",
)
THROTTLED_RUN = Mark(
    "throttled",
    "H",
    "throttled",
    f"Heat or hardware held the clocks of a device down for more than {THROTTLED:.0%} of the timed window.",
    "Mend its cooling or its supply, and measure again.",
)
UNSTEADY = Mark(
    "unsteady", "U", "not steady", "Step times changed over the timed window.", "Warm up for longer, or run for longer."
)
SHORT_WINDOW = Mark(
    "short_window",
    "D",
    "short window",
    "The timed window is too short to show whether step times change: it has few steps, or they scatter too much.",
    "Run for longer: at least 40 timed steps and 30 s, by `--duration 30` or more `--steps`.",
)
FEW_REPEATS = Mark(
    "few_repeats",
    "R",
    "few repeats",
    f"There are fewer than {FEWEST_REPEATS} repeats, so that the number has no interval.",
    f"Repeat each run at least {FEWEST_REPEATS} times, in fresh processes: `--repeat {FEWEST_REPEATS}`, or in a "
    f"study file `repeats = {FEWEST_REPEATS}`.",
)
FAR_BELOW_BOUND = Mark(
    "far_below",
    "F",
    "far below the bound",
    f"The throughput is less than {FAR_BELOW:.0%} of what the devices allow: something else limits it.",
    "Look for waits for data, tiny batches and steps without compilation: `sifmark run WORKLOAD-IMAGE --describe`.",
    everywhere=False,
)
PRELOADED = Mark(
    "preloaded",
    "L",
    "preloaded libraries",
    "Libraries were loaded before all others, where they can change what is measured.",
    "Measure without `LD_PRELOAD` and `LD_AUDIT`.",
    everywhere=False,
)
AT_LIMIT_OF_POWER = Mark(
    "power_limited",
    "W",
    "at its power limit",
    f"A power limit held the clocks of a device down for more than {AT_POWER_LIMIT:.0%} of the timed window.",
    "Publish the limit with the number: `device_conditions.power_cap`.",
    everywhere=False,
)
SOCKETS = Mark(
    "sockets",
    "N",
    "socket network",
    "The ranks exchanged data over sockets, which may be tens of times slower than RDMA.",
    "Give the container the network's devices and libraries.",
    everywhere=False,
)
UNSIGNED = Mark(
    "unsigned",
    "I",
    "unsigned image",
    "No key that the site trusts has signed the image, or the run had no image.",
    "Sign the image, or pull a signed one: `sifmark image.sign`, `sifmark registry.pull`.",
    everywhere=False,
)

# In the order in which the box and legends have them.
_APPLIES: dict[Mark, Callable[[Document], bool]] = {
    TEST_BASE: lambda document: bool(document["provenance"]["stand_in"]),
    SIMULATED: lambda document: bool(document["provenance"].get("simulated")),
    UNCHECKED: lambda document: document["numerics"]["state"] != "passed",
    BUSY: is_disturbed,
    STALLED_RUN: is_stalled,
    THROTTLED_RUN: is_throttled,
    UNSTEADY: lambda document: document["steadiness"]["steady"] is False,
    SHORT_WINDOW: _is_short,
    FAR_BELOW_BOUND: is_far_below,
    PRELOADED: lambda document: bool(document.get("environment", {}).get("preloaded")),
    AT_LIMIT_OF_POWER: is_at_power_limit,
    SOCKETS: lambda document: (document.get("transport") or {}).get("network") == "sockets",
    UNSIGNED: lambda document: _of_image(document).get("file", {}).get("signer") is None,
}
MARKS = (*list(_APPLIES)[:8], FEW_REPEATS, *list(_APPLIES)[8:])
# What kept a machine from what it can do while it was measured.
DISTURBED = (BUSY, STALLED_RUN, THROTTLED_RUN)
# With these a number is not that of the machine: neither faster nor slower follows from it, unless they are allowed.
WITHHOLDING = {mark.code: mark for mark in (BUSY, STALLED_RUN, UNSTEADY)}


def letters_of_marks(marks: Iterable[Mark]) -> str:
    """Return the letters of marks beside a number, so that they are no unit: `(T,B)`."""
    letters = ",".join(mark.symbol for mark in marks)
    return f"({letters})" if letters else ""


def unpublished(codes: Iterable[str]) -> list[Mark]:
    """Return the marks of these codes with which a number is nowhere to be published."""
    found = set(codes)
    return [mark for mark in MARKS if mark.everywhere and mark.code in found]


def meaning_of_letters(letters: Container[str]) -> str:
    """Return what letters of marks mean: `B busy host, U not steady`."""
    return ", ".join(f"{mark.symbol} {mark.name}" for mark in MARKS if mark.symbol in letters)


def marks_of_result(document: Document) -> tuple[Mark, ...]:
    """Return the marks of a result by itself."""
    return tuple(mark for mark, applies in _APPLIES.items() if applies(document))


def marks_of_number(marks_of_repeats: Iterable[Iterable[Mark]]) -> tuple[Mark, ...]:
    """Return the marks of a number whose repeats have these."""
    repeats = list(marks_of_repeats)
    marks = {mark for each in repeats for mark in each}
    if 0 < len(repeats) < FEWEST_REPEATS:
        marks.add(FEW_REPEATS)
    return tuple(mark for mark in MARKS if mark in marks)
