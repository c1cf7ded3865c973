"""The parts of sessions that need no framework: synchronous devices, and the host as a device."""

from __future__ import annotations

import time
from typing import Any, Iterator

from entrypoints.contract.session import Batch, DeviceConditions, DeviceFacts, Usage
from entrypoints.system import host


class SynchronousSession:
    """The timing of a session whose calls return when the device is done."""

    asynchronous = False

    def feed(self, batches: Iterator[Batch], targets: bool) -> Iterator[Batch]:  # noqa: ARG002 - GPUs leave them out
        """Return the batches: a call takes them from the host."""
        return batches

    def receive(self, fed: Batch) -> Batch:
        """Return a batch of `feed`."""
        return fed

    def mark(self) -> float:
        """Return the current time (s): the device is done by now."""
        return time.perf_counter()

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Return the seconds between two marks."""
        return later - earlier

    def wait(self, mark: Any) -> None:
        """Return at once: the device has passed every mark."""

    def synchronise(self) -> None:
        """Return at once: there is nothing to wait for."""

    def reset_peak_memory(self) -> None:
        """Do nothing: no peaks of memory are counted."""


class HostSession(SynchronousSession):
    """A session whose device is the host, without the parts that need a framework."""

    def __init__(self, framework: str, execution: str) -> None:
        self.framework = framework
        self.facts = DeviceFacts(
            kind="cpu",
            vendor=host.cpu_vendor(),
            name=host.cpu_model(),
            devices=1,
            granularity="node",
            memory_mib=host.memory_mib(),
            ranks=1,
            replicas=1,
            execution=execution,
            simulated=False,
        )

    def usage(self) -> Usage:
        """Return the reasons why no framework counts this."""
        uncounted = f"{self.framework} counts no memory on the CPU; peak_process_memory has it"
        return Usage(uncounted, uncounted, "nothing is sent: the host is the device", uncounted)

    def conditions(self) -> DeviceConditions:
        """Return that the host's conditions are elsewhere in the result."""
        return DeviceConditions.unknown("the host is the device: see conditions and conditions_after")
