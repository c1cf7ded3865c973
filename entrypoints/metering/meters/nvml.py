"""NVIDIA GPUs, by the driver's management library."""

from __future__ import annotations

from typing import Any

from entrypoints.metering.meter import MeterError, MeterFacts, Reading, State
from entrypoints.metering.nvidia import gpus
from entrypoints.metering.nvidia.bus import bus
from entrypoints.metering.nvidia.library import fields, opened, pynvml, supported_answer, text
from entrypoints.metering.nvidia.limits import LIMITS, THROTTLING, limited

MEASURES = ("cuda",)
POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, mW; since driver 525
UPDATE_PERIOD = 0.1  # s; the counter changes every 20 to 100 ms, by model
MILLI = 1e-3
WATCH_PERIOD = 0.1  # s; the driver advances its counters of time in such steps
UNCOUNTED = "the driver does not count the traffic on the bus"


class Nvml:
    """One GPU: its energy counter if it has one (Volta and newer), and its power."""

    def __init__(self, handle: Any, name: str) -> None:
        self.handle = handle
        self.instant = _instant_power(handle) is not None
        counts = supported_answer(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle) is not None
        powered = self.instant or supported_answer(pynvml.nvmlDeviceGetPowerUsage, handle) is not None
        if not (counts or powered):
            raise MeterError(f"{name} reports neither energy nor power")
        averaged = "the library does not say: 1 s on most GPUs from Ampere on, none before"
        self.facts = MeterFacts(
            source="nvml",
            scope="package",
            devices=(name,),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="an instant value, as the library calls it" if self.instant else averaged,
            has_power=powered,
            has_counter=counts,
            counter_ranges=(None,) if counts else (),
            simulated=bool(getattr(pynvml, "SIMULATED", False)),
            limits=LIMITS,
            watch_period=WATCH_PERIOD,
            imports_unseen=True,  # PyTorch and TensorFlow open a GPU when they first compute on it
        )
        self.bus = bus(handle)
        if self.bus is not None:
            period = min(WATCH_PERIOD, self.bus.longest_gap / 2)
            self.facts = self.facts._replace(watch_period=period, traffic_method=self.bus.method)
        else:
            self.facts = self.facts._replace(why_no_traffic=UNCOUNTED)

    def read(self) -> Reading:
        """Return the power, and the energy since the driver was loaded."""
        joules = [pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) * MILLI] if self.facts.has_counter else []
        return Reading([self.watts()] if self.facts.has_power else [], joules)

    def watts(self) -> float:
        """Return the latest power in W. Raises MeterError if the GPU stopped reporting it."""
        milliwatts = _instant_power(self.handle) if self.instant else pynvml.nvmlDeviceGetPowerUsage(self.handle)
        if milliwatts is None:
            raise MeterError("the GPU no longer reports its power")
        return float(milliwatts * MILLI)

    def watch(self) -> tuple[State]:
        """Return clocks, what limits them, for how long it did, and the traffic on the bus."""
        reasons = supported_answer(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle)
        received, sent = (None, None) if self.bus is None else self.bus.bytes()
        return (
            State(
                clock=supported_answer(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM),
                memory_clock=supported_answer(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_MEM),
                limiting={} if reasons is None else {name: bool(reasons & bit) for bit, name in THROTTLING.items()},
                limited=limited(self.handle),
                received=received,
                sent=sent,
            ),
        )


def find(place: str | None, number: int = 0) -> Nvml:
    """Return the GPU that CUDA numbers so, or the one at `place`: a UUID, a PCI address or NVML's number."""
    with opened():
        handle = gpus.at(place) if place else gpus.visible(number)
        return Nvml(*gpus.whole(handle))


def address(number: int) -> str:
    """Return the PCI address of the GPU that CUDA numbers so, as the kernel writes it. Raises MeterError."""
    with opened():
        info = pynvml.nvmlDeviceGetPciInfo(gpus.whole(gpus.visible(number))[0])
        domain, _, rest = text(info.busId).lower().partition(":")
        return f"{int(domain, 16):04x}:{rest}"


def _instant_power(handle: Any) -> int | None:
    """Return instant power in mW; None if driver or GPU do not report it."""
    value = fields(handle, [POWER_INSTANT]).get(POWER_INSTANT)
    return None if value is None else int(value[0])
