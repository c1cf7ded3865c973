"""Rules about ranks: the run is what the slowest of them took, and they did it together."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.results.ranks import bus_bandwidth, network
from entrypoints.rules.facts import Document, Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics

OF_THE_LARGEST = ("peak_process_memory", "peak_allocated_memory")
COUNTED = (*OF_THE_LARGEST, "window", "epoch_time", "steps")


def ranks_of(facts: Facts) -> list[Document]:
    """Return what is said of each rank; nothing in schema 1.0, which has no ranks."""
    return list(facts.document.get("ranks") or ())


@rule(
    "`ranks` has an entry for each of several ranks in their order, and is null for one; a completed run knows where "
    "each one ran",
    "A rank that is not there did not compute.",
)
def ranks_are_all_there(facts: Facts) -> Iterator[str]:
    """Compare the entries with the number of ranks."""
    if "ranks" not in facts.document or "count" not in facts.document["accelerator"]:
        return
    ranks, expected = ranks_of(facts), facts.ranks if facts.ranks > 1 else 0
    if len(ranks) != expected or any(rank["rank"] != number for number, rank in enumerate(ranks)):
        yield differ("ranks", len(ranks), expected, "the ranks of the run")
    for rank in ranks:
        if facts.completed and rank["host"] is None:
            yield f"ranks.{rank['rank']}.host: null, in a run that is {facts.state}"


@rule(
    "completed: each rank has timed as many steps as the run, and the longest of their windows is the run's",
    "Ranks step together, so that the run takes what its slowest rank takes.",
    ROUNDING,
)
def ranks_step_together(facts: Facts) -> Iterator[str]:
    """Compare the windows of the ranks with the run's."""
    ranks, window = ranks_of(facts), facts.window
    if not ranks or not facts.completed:
        return
    for rank in ranks:
        if rank["steps"] != facts.timed_count:
            yield differ(f"ranks.{rank['rank']}.steps", rank["steps"], facts.timed_count, "the timed steps")
    windows = [rank["window"]["value"] for rank in ranks]
    if None in windows or window is None:
        yield "ranks: a completed rank has a window"
    elif not near(max(windows), window):
        yield differ("ranks: the longest window", max(windows), window, "the timed steps")


@rule(
    "`rank_spread` = (longest - shortest window of a rank) / their mean; `rank_epoch_time_mean` = the mean of the "
    "ranks' `epoch_time`; peaks of memory are the largest of the ranks'",
    "They are the same numbers.",
    ROUNDING,
)
def metrics_of_ranks_follow_from_ranks(facts: Facts) -> Iterator[str]:
    """Compute the metrics of the ranks again."""
    ranks = ranks_of(facts)
    if not ranks:
        return
    windows = [rank["window"]["value"] for rank in ranks]
    times = [rank["epoch_time"]["value"] for rank in ranks]
    spread = None
    if None not in windows and min(windows) > 0:
        spread = (max(windows) - min(windows)) * len(windows) / math.fsum(windows)
    expected = {
        "rank_spread": spread,
        "rank_epoch_time_mean": None if None in times else math.fsum(times) / len(times),
    }
    yield from unequal_metrics(facts, expected, "ranks")
    for name in OF_THE_LARGEST:
        peaks = [rank[name]["value"] for rank in ranks if rank[name]["value"] is not None]
        if peaks and facts.metric(name) is not None:
            yield from unequal_metrics(facts, {name: max(peaks)}, "ranks")


@rule(
    "no memory, time or number of steps of a rank is negative",
    "Nothing that is counted or timed is less than nothing.",
)
def ranks_are_possible(facts: Facts) -> Iterator[str]:
    """Check the sign of what is said of each rank."""
    for rank in ranks_of(facts):
        for name in COUNTED:
            value = rank[name] if name == "steps" else rank[name]["value"]
            if value is not None and value < 0:
                yield f"ranks.{rank['rank']}.{name}: {value!r} is negative"


@rule(
    "`transport` is there exactly if several ranks computed, but not of IPUs; `network` is that of its `connections`; "
    "`bus_bandwidth` = bytes x 2 (ranks - 1) / ranks / seconds",
    "How ranks are connected explains differences of an order of magnitude.",
    ROUNDING,
)
def transport_is_that_of_the_connections(facts: Facts) -> Iterator[str]:
    """Derive network and bandwidth again."""
    transport = facts.document.get("transport")
    if transport is None:
        if ranks_of(facts) and facts.completed and facts.configuration["device"] != "ipu":
            yield "transport: null, and ranks computed together"
        return
    if facts.configuration["device"] == "ipu":
        yield "transport: IPUs are connected by links of their own, of which nobody reports"
    expected = network(transport["connections"])
    if transport["network"] != expected:
        yield differ("transport.network", transport["network"], expected, "transport.connections")
    summed = transport["all_reduce"]
    bandwidth = bus_bandwidth(summed["bytes"], summed["seconds"], facts.ranks) if summed["seconds"] else None
    given = summed["bus_bandwidth"]["value"]
    if (given is None) != (bandwidth is None) or (given is not None and not near(given, bandwidth or 0.0)):
        yield differ("transport.all_reduce.bus_bandwidth", given, bandwidth, "its bytes and seconds")


@rule(
    "devices of `power` that name a host name one of the ranks'",
    "Energy is that of the devices that computed.",
)
def metered_hosts_are_those_of_the_ranks(facts: Facts) -> Iterator[str]:
    """Look the hosts of the devices up."""
    hosts = {rank["host"] for rank in ranks_of(facts)}
    for number, device in enumerate(facts.document["power"].get("devices", ())):
        if "host" in device and device["host"] not in hosts:
            yield differ(f"power.devices.{number}.host", device["host"], ", ".join(map(str, hosts)), "ranks")
