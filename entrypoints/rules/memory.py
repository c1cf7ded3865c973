"""Rules about memory: it holds the weights, and is held by host and device."""

from __future__ import annotations

from typing import Iterator

from entrypoints.rules.facts import Facts, is_number, near
from entrypoints.rules.rule import ROUNDING, differ, rule

MIB = 2**20
LEAST_BYTES = 2  # of a weight: no precision of a run has a smaller one
LEAST_MIB = 4.0  # of a process that has started Python
HOST, GPUS = "cpu", ("cuda", "xpu", "hpu")
OF_ALLOCATORS = ("peak_allocated_memory", "peak_reserved_memory", "peak_allocated_memory_of_window")
TRAFFIC = "host_device_traffic"
COUNTED = (*OF_ALLOCATORS, TRAFFIC)
UNCOUNTED = {  # what no framework counts on a kind of device
    HOST: COUNTED,
    "cuda": (TRAFFIC,),
    "xpu": (TRAFFIC,),
    "hpu": (TRAFFIC,),
    "ipu": COUNTED,
}


@rule(
    "`peak_process_memory` is at most the host's memory; `peak_allocated_memory_of_window` at most "
    "`peak_allocated_memory`, that at most `peak_reserved_memory`, and all of them at most `accelerator.memory_mib`",
    "No process has more memory than its host.",
    "1 % of a device's memory",
)
def memory_fits(facts: Facts) -> Iterator[str]:
    """Compare peaks of memory with what holds them."""
    process, host = facts.metric("peak_process_memory"), facts.document["host"]["memory"]["value"]
    if process is not None and is_number(host) and process > host and not near(process, host):
        yield differ("metrics.peak_process_memory", process, host, "at most host.memory")
    for name, larger in (OF_ALLOCATORS[:2], ("peak_allocated_memory_of_window", "peak_allocated_memory")):
        part, whole = facts.metric(name), facts.metric(larger)
        if part is not None and whole is not None and part > 1.01 * whole:
            yield differ(f"metrics.{name}", part, whole, f"at most {larger}")
    device = facts.document["accelerator"].get("memory_mib")
    for name in OF_ALLOCATORS:
        value = facts.metric(name)
        if value is not None and device and value > 1.01 * device:
            yield differ(f"metrics.{name}", value, device, "at most accelerator.memory_mib")


@rule(
    "after a step, but of an engine, `peak_process_memory` on the host, and `peak_allocated_memory` on a GPU, hold 2 "
    "bytes of each parameter, and a process has 4 MiB",
    "Weights are somewhere.",
    ROUNDING,
)
def memory_holds_the_weights(facts: Facts) -> Iterator[str]:
    """Compare peaks of memory with the weights."""
    if facts.served:  # whose engine may have processes of its own
        return
    device = facts.configuration["device"]
    least = LEAST_BYTES * (facts.document["workload"]["parameters"] or 0) / MIB
    process, allocated = facts.metric("peak_process_memory"), facts.metric("peak_allocated_memory")
    if facts.count and process is not None and process < max(LEAST_MIB, least if device == HOST else 0.0):
        yield differ("metrics.peak_process_memory", process, least, "at least the weights")
    if facts.count and allocated is not None and device in GPUS and allocated < least:
        yield differ("metrics.peak_allocated_memory", allocated, least, "at least the weights")


@rule(
    "there are no numbers that nobody counts: allocations on the host and on IPUs, and transfers where no meter counts "
    "the traffic of buses",
    "Frameworks count the memory of GPUs.",
)
def memory_is_counted(facts: Facts) -> Iterator[str]:
    """Look for numbers of what this kind of device does not count."""
    device = facts.configuration["device"]
    counted = device in GPUS and any(load["traffic"]["value"] is not None for load in facts.loads)
    by_meter = {TRAFFIC} if counted else set()
    for name in UNCOUNTED.get(device, ()):
        if facts.metric(name) is not None and name not in by_meter:
            yield f"metrics.{name}: it is not counted on {device}"
