"""Rules about the points of a micro-benchmark: they are those of its card, and fill the steps."""

from __future__ import annotations

import math
from typing import Iterator, Sequence

from entrypoints.contract.points import (
    BEYOND_CACHE,
    CHECKPOINT,
    COLLECTIVES,
    ELEMENT_BYTES,
    EMBEDDING_BAG,
    GIGA,
    HOST_DEVICE,
    MATMUL,
    MEMORY_COPY,
    MICROBENCHMARK,
    PAGEABLE,
    PINNED,
    SAVE,
    SAVING,
    STAGE,
    TABLE_NUMBERS,
    TO_DEVICE,
    TO_HOST,
    bus_factor,
    operation_of,
    tolerance,
)
from entrypoints.contract.session import DeviceFacts
from entrypoints.results import copies, peaks
from entrypoints.results.peaks import Memory
from entrypoints.results.points import RATES
from entrypoints.rules.facts import Document, Facts, device_named, near
from entrypoints.rules.identity import card_of
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics

WAYS: dict[str, list[tuple[str | None, str | None, str | None]]] = {
    HOST_DEVICE: [(way, memory, None) for way in (TO_DEVICE, TO_HOST) for memory in (PINNED, PAGEABLE)],
    CHECKPOINT: [(None, None, mode) for mode in SAVING],
}
# Beside its calls, a sweep writes inputs that calls change, and waits for the other ranks at each point. A call may be
# as fast as writing its input, and a host that is busy may take its turns from all of these.
FILLED, OF_A_POINT = 0.3, 0.02  # of the window; s of each point in each sweep
FASTEST_LINK = 450e9  # bytes/s each way: NVLink-C2C, in the table of systems of CARAML (SC24)
ABOVE, OF_A_CACHE = 1.1, 10
# Of rows in tables that are four times the caches: a quarter of them, and all of their sums, may stay in caches.
OF_ROWS = 1 / (1 - 1 / BEYOND_CACHE) * bus_factor(EMBEDDING_BAG, 1)
OF_ANY_SIZE = ("1.0", "1.1")  # schemas without caches, whose peak of copies is that of any size
SKEW = 0.05  # s by which ranks may leave the sweep before the timed window, and this one, at different times


@rule(
    "a micro-benchmark, and no other task, has points: those of its card at each size, which is measured or omitted; "
    "larger ones than `configuration.largest_size` are omitted; between ranks, a size is whole elements for each rank",
    "A size that is left out without a word may be the slow one.",
)
def points_are_those_of_the_card(facts: Facts) -> Iterator[str]:
    """Compare the points with the card."""
    if (facts.points is None) != (facts.task != MICROBENCHMARK):
        if "points" in facts.document:
            yield f"points: {facts.task} and points do not go together"
        return
    card = card_of(facts)
    if facts.points is None or card is None:
        return
    if facts.points["operation"] != operation_of(card.problem):
        yield differ("points.operation", facts.points["operation"], operation_of(card.problem), f"the card {card.name}")
        return
    measured, omitted = facts.points["measured"], facts.points["omitted"]
    if not (measured or omitted) and not facts.count:
        return  # it ended before it had points
    sizes, left_out = card.problem["input"]["sizes"], [each["size"] for each in omitted]
    rest = [_cut(facts, size) for size in sizes if size not in left_out]
    expected = [(size, *way) for size in rest for way in WAYS.get(facts.points["operation"], [(None,) * 3])]
    given = [(row["size"], row["direction"], row["memory"], row.get("mode")) for row in measured]
    if given != expected or not set(left_out) <= set(sizes):
        yield f"points.measured: with points.omitted they are not the sizes of {card.name}, each once"
    largest = facts.configuration["largest_size"]
    if largest is not None and any(row["size"] > largest for row in measured):
        yield f"points.measured: a size is larger than configuration.largest_size, {largest}"
    rule_of_calls = card.problem["input"]["calls"]
    for number, (calls, work) in enumerate(facts.works):
        wanted = min(rule_of_calls["most"], max(rule_of_calls["least"], rule_of_calls["work"] // work))
        if calls != wanted:
            yield differ(f"points.measured.{number}.calls", calls, wanted, f"the card {card.name}")


def _cut(facts: Facts, size: int) -> int:
    """Return the whole elements of a size for each rank, in bytes."""
    if facts.points is None or facts.points["operation"] not in COLLECTIVES:
        return size
    for_each = int(facts.points["element_bytes"] * facts.configuration["replicas"])
    return size // for_each * for_each


@rule(
    "of each point min <= mean, p50 <= max <= mean x timed sweeps; its algorithm bandwidth = size / p50, its bus "
    "bandwidth that times the operation's factor for `accelerator.ranks`, and of matmul 2 size^3 / p50 in their place; "
    "neither of a save that is only begun",
    "A bandwidth is not measured, but divided.",
    ROUNDING,
)
def rates_follow_from_seconds(facts: Facts) -> Iterator[str]:
    """Divide again."""
    if facts.points is None:
        return
    for number, row in enumerate(facts.points["measured"]):
        field, seconds = f"points.measured.{number}", row["seconds"]
        if (seconds is None) != (facts.timed_count <= 0):
            yield f"{field}.seconds: there are seconds where there are timed sweeps"
            continue
        if seconds and not all(_within(seconds, name) for name in ("mean", "p50")):
            yield f"{field}.seconds: {seconds['mean']!r} and {seconds['p50']!r} are not between min and max"
        longest = seconds and facts.timed_count * seconds["mean"]
        if seconds and seconds["max"] > longest and not near(seconds["max"], longest):
            yield differ(f"{field}.seconds.max", seconds["max"], longest, "at most all of them together")
        for name, expected in zip(RATES, _rates(facts, row)):
            given = row[name]
            if (given is None) != (expected is None) or (expected is not None and not near(given, expected)):
                yield differ(f"{field}.{name}", given, expected, f"{field}.seconds")


def _within(seconds: Document, name: str) -> bool:
    low, value, high = seconds["min"], seconds[name], seconds["max"]
    return bool((low <= value or near(low, value)) and (value <= high or near(value, high)))


def _rates(facts: Facts, row: Document) -> tuple[float | None, float | None, float | None]:
    """Return algorithm and bus bandwidth, and operations per second, of a point."""
    typical = row["seconds"] and row["seconds"]["p50"]
    if not typical or facts.points is None or row.get("mode") == STAGE:
        return None, None, None
    operation = facts.points["operation"]
    if operation == MATMUL:
        return None, None, 2 * row["size"] ** 3 / typical
    rate = row["size"] / typical / GIGA
    return rate, rate * bus_factor(operation, int(facts.configuration["replicas"])), None


@rule(
    "on devices of the table of peaks, at each point: matmul is at most at 1.1 of the peak; the bus bandwidth at most "
    "1.1 of the memory's for buffers beyond four times the caches, 1.5 times that for rows of such tables, and ten "
    "times that for smaller ones; a copy between host and device at most that of the memory, and 450 GB/s unless host "
    "and device share one",
    "No device does more than its data sheet says, no cache is ten times as fast as its memory, and no link between a "
    "processor and an accelerator is faster than NVLink-C2C.",
    "0.1, since clocks may be above those of data sheets",
)
def points_are_possible(facts: Facts) -> Iterator[str]:
    """Compare rates with the peak and the bandwidth of the table."""
    device = device_named(facts.document["accelerator"])
    if facts.points is None or _simulated(facts):
        return
    memory, peak = peaks.memory(device), peaks.of_device(device, facts.configuration["precision"]).flops
    for number, row in enumerate(facts.points["measured"]):
        limits = {RATES[1]: _most_bandwidth(facts, row["size"], memory, device), RATES[2]: peak}
        for name, limit in limits.items():
            if limit and row[name] and row[name] > ABOVE * limit:
                yield differ(f"points.measured.{number}.{name}", row[name], limit, f"at most {device.name}")


def _most_bandwidth(facts: Facts, size: int, memory: Memory, device: DeviceFacts) -> float | None:
    """Return the highest bandwidth of a point in GB/s, None if nobody cites that of the memory."""
    if memory.bandwidth is None or facts.points is None:
        return None
    if facts.points["operation"] == HOST_DEVICE:
        shared = any(entry["memory"].get("shared") for entry in peaks.named(device))
        return memory.bandwidth / GIGA if shared else min(memory.bandwidth, FASTEST_LINK) / GIGA
    if facts.points["operation"] == EMBEDDING_BAG:
        tables = TABLE_NUMBERS * facts.points["element_bytes"]
        return memory.bandwidth / GIGA * (OF_ROWS if tables > BEYOND_CACHE * memory.cache else OF_A_CACHE)
    return memory.bandwidth / GIGA * (1 if size > BEYOND_CACHE * memory.cache else OF_A_CACHE)


@rule(
    "the calls of all points, mean seconds each, fill 0.3 of the timed window less 20 ms a point and sweep, and are no "
    "longer than it",
    "Points are parts of the steps.",
    "0.05 s + 1e-9 of the window: ranks do not end a sweep at one moment",
)
def points_fill_the_window(facts: Facts) -> Iterator[str]:
    """Add the points up."""
    window = facts.window
    if facts.points is None or window is None or facts.timed_count <= 0:
        return
    rows = [row for row in facts.points["measured"] if row["seconds"]]
    seconds = facts.timed_count * math.fsum(row["calls"] * row["seconds"]["mean"] for row in rows)
    if seconds > window + SKEW and not near(seconds, window):
        yield differ("points.measured", seconds, window, "at most the timed window")
    least = FILLED * window - OF_A_POINT * len(rows) * facts.timed_count
    if seconds < least:
        yield differ("points.measured", seconds, least, "at least a part of the timed window")


@rule(
    "a point is verified exactly if its deviation is at most `points.tolerance`, which is that of the operation in the "
    "run's precision; both checks of the run have no fault exactly if all points are verified",
    "A wrong result that is quick is no result.",
)
def points_are_verified(facts: Facts) -> Iterator[str]:
    """Compare deviations with verdicts."""
    if facts.points is None:
        return
    precision = facts.configuration["precision"]
    expected = tolerance(facts.points["operation"], precision)
    if facts.points["tolerance"] != expected:
        yield differ("points.tolerance", facts.points["tolerance"], expected, f"{precision}")
    if facts.points["element_bytes"] != ELEMENT_BYTES[precision]:
        yield differ("points.element_bytes", facts.points["element_bytes"], ELEMENT_BYTES[precision], f"{precision}")
    checks = facts.document["numerics"]["run_checks"]
    for number, row in enumerate(facts.points["measured"]):
        right = row["deviation"] is not None and row["deviation"] <= expected
        verdict = (right if row["verified"] is not None else None) if checks else None
        if row["verified"] is not verdict or (row["verified"] is None and row["deviation"] is not None):
            yield differ(f"points.measured.{number}.verified", row["verified"], verdict, "its deviation and the checks")
    verdicts = [row["verified"] for row in facts.points["measured"]]
    if checks and (None in verdicts or all(verdicts) == any(each["faults"] for each in checks)):
        yield "points.measured: they are verified where numerics.run_checks have faults, or the other way round"


@rule(
    "`peak_bandwidth` and `peak_flops` = the largest of the points; `small_message_latency` = p50 of the smallest; "
    "`memory_bandwidth` = the largest of copies of at least four times `points.last_level_cache`, and "
    "`cached_bandwidth` of those of which it holds both buffers, each with its size, and without `peak_bandwidth`; "
    "`checkpoint_blocked_fraction` = p50 of `async_blocked` over that of `save` at the largest size",
    "They are the points in one number.",
    ROUNDING,
)
def peaks_are_the_largest_points(facts: Facts) -> Iterator[str]:
    """Look for the largest points again."""
    if facts.points is None:
        return
    rows = facts.points["measured"]
    _, bus, flops = ([row[name] for row in rows if row[name] is not None] for name in RATES)
    smallest = min(rows, key=lambda row: row["size"], default=None)
    latency = (smallest["seconds"] or {}).get("p50") if smallest else None
    expected = {
        "checkpoint_blocked_fraction": _blocked(rows),
        "peak_bandwidth": max(bus, default=None),
        "peak_flops": max(flops, default=None),
        "small_message_latency": latency or None,
    }
    if facts.document["schema_version"] not in OF_ANY_SIZE:
        of_copies = copies.metrics_of(facts.document)
        expected.update({name: metric["value"] for name, metric in of_copies.items()})
    yield from unequal_metrics(facts, expected, "points.measured")


def _blocked(rows: Sequence[Document]) -> float | None:
    """Return the share of a synchronous save of the largest size for which an asynchronous one holds its caller."""
    largest = max((row["size"] for row in rows), default=None)
    seconds = {row.get("mode"): (row["seconds"] or {}).get("p50") for row in rows if row["size"] == largest}
    whole, blocked = seconds.get(SAVE), seconds.get(STAGE)
    return blocked / whole if blocked and whole else None


@rule(
    "`points.last_level_cache` is there exactly for `memory_copy`, and has a value for devices of the table of peaks; "
    "the bandwidth of memory is at most 1.1 of what the vendor states",
    "With smaller caches, a bandwidth of caches would be one of memory.",
    "0.1, since clocks may be above those of data sheets",
)
def memory_is_beyond_the_caches(facts: Facts) -> Iterator[str]:
    """Look at the caches, and compare the bandwidth of memory with the table."""
    if facts.points is None or facts.document["schema_version"] in OF_ANY_SIZE:
        return
    recorded, of_copies = facts.points["last_level_cache"], facts.points["operation"] == MEMORY_COPY
    if (recorded is not None) != of_copies:
        yield f"points.last_level_cache: {facts.points['operation']} and {recorded} do not go together"
        return
    device = device_named(facts.document["accelerator"])
    cited, rate = peaks.memory(device), facts.metric("memory_bandwidth")
    if recorded and recorded["value"] is None and cited.cache:
        yield f"points.last_level_cache: {device.name} is in the table of peaks"
    if cited.bandwidth and rate and rate > ABOVE * cited.bandwidth / GIGA and not _simulated(facts):
        yield differ("metrics.memory_bandwidth", rate, cited.bandwidth / GIGA, f"at most {device.name}")


def _simulated(facts: Facts) -> bool:
    return bool(facts.document["provenance"]["simulated"])
