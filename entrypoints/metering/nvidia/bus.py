"""The traffic on the bus of a GPU of NVIDIA."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Mapping

from entrypoints.metering.meter import MeterError
from entrypoints.metering.nvidia.library import OF_32_BITS, fields, pynvml, supported_answer

SENT, RECEIVED = 197, 198  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES, ..._RX_BYTES: bytes; since driver 565
DIRECTIONS = {SENT: 0, RECEIVED: 1}  # the same of nvmlDeviceGetPcieThroughput
RANGE = 2.0**32  # at which a counter of 32 bits starts again
LANE = (0.25e9, 0.5e9, 0.985e9, 1.97e9, 3.94e9, 7.56e9, 15.1e9)  # bytes/s of a lane of PCIe, by generation from 1 on
KILOBYTE = 1000.0


class BusCounters:
    """The bytes that crossed the bus. Some drivers count in 32 bits: then it must be read before 4 GiB have passed."""

    method = "counter"

    def __init__(self, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.handle, self.clock = handle, clock
        self.total = {RECEIVED: 0.0, SENT: 0.0}
        self.last: Mapping[int, float] = {}
        self.at = clock()
        wraps = any(kind == OF_32_BITS for _, kind in fields(handle, self.total).values())
        self.longest_gap = RANGE / _link(handle) if wraps else math.inf

    def bytes(self) -> tuple[float, float]:
        """Return the bytes to and from the GPU since the first call; 0 again where some may have been missed."""
        values, now = fields(self.handle, self.total), self.clock()
        if len(values) < len(self.total):
            raise MeterError("the GPU no longer counts the traffic on its bus")
        for field, (value, kind) in values.items():
            gain = value - self.last.get(field, value)
            self.total[field] += gain + (RANGE if gain < 0 and kind == OF_32_BITS else 0.0)
        if self.last and now - self.at > self.longest_gap:
            self.total = dict.fromkeys(self.total, 0.0)
        self.last, self.at = {field: value for field, (value, _) in values.items()}, now
        return self.total[RECEIVED], self.total[SENT]


class BusRates:
    """The same by the rates over the last 20 ms, for which each call waits: a sample of a fifth of the time."""

    method, longest_gap = "samples", math.inf

    def __init__(self, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.handle, self.clock = handle, clock
        self.total = {RECEIVED: 0.0, SENT: 0.0}
        self.at = clock()

    def bytes(self) -> tuple[float, float]:
        """Return the bytes to and from the GPU since this began."""
        rates = {
            field: pynvml.nvmlDeviceGetPcieThroughput(self.handle, direction) * KILOBYTE
            for field, direction in DIRECTIONS.items()
        }
        now = self.clock()
        for field, rate in rates.items():
            self.total[field] += rate * (now - self.at)
        self.at = now
        return self.total[RECEIVED], self.total[SENT]


def bus(handle: Any) -> BusCounters | BusRates | None:
    """Return what counts the traffic on the bus; None if nothing does."""
    if len(fields(handle, DIRECTIONS)) == len(DIRECTIONS):
        return BusCounters(handle)
    rate = supported_answer(pynvml.nvmlDeviceGetPcieThroughput, handle, DIRECTIONS[SENT])
    return None if rate is None else BusRates(handle)


def _link(handle: Any) -> float:
    """Return the most bytes that the bus moves in a second, one way; those of the newest if it does not say."""
    generation = supported_answer(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle) or len(LANE)
    lanes = supported_answer(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle) or 16
    return LANE[min(int(generation), len(LANE)) - 1] * float(lanes)
