"""What sessions on the processors of the host have in common, whatever the framework."""

from __future__ import annotations

import time

from entrypoints.contract.session import DeviceConditions, DeviceFacts, Usage
from entrypoints.system import host


class SynchronousSession:
    """The part of a session whose calls return when the device is done."""

    asynchronous = False

    def mark(self) -> float:
        """Now: what was given to the device is done."""
        return time.perf_counter()

    def seconds_between(self, earlier: float, later: float) -> float:
        """Seconds of the monotonic clock."""
        return later - earlier

    def synchronise(self) -> None:
        """Nothing to wait for."""


class HostSession(SynchronousSession):
    """The part of a session that needs no framework: the device is the host."""

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
        """Nothing that the framework counts."""
        uncounted = f"{self.framework} counts no memory on the CPU; peak_process_memory has it"
        return Usage(uncounted, uncounted, "nothing is sent: the host is the device")

    def conditions(self) -> DeviceConditions:
        """Those of the host."""
        return DeviceConditions.unknown("the host is the device: conditions and conditions_after tell how it stood")
