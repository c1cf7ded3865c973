"""AMD GPUs: ROCm's management library through its Python module amdsmi, or else the older rocm_smi library.

Calls, keys by version of ROCm and units: amdsmi_interface.py of ROCm 5.7 to 7.0, rocm_smi.h. What throttles clocks:
rocm.docs.amd.com/projects/amdsmi, GPU violations.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeVar

from entrypoints.metering.kernel_files import host_pid
from entrypoints.metering.meter import (
    HARDWARE,
    HEAT,
    POWER,
    UNKNOWN,
    MeterError,
    MeterFacts,
    Reading,
    State,
    first_found,
)
from entrypoints.system.facts import fact

# ROCm's module is here, on no Python path; an installed one comes first. ROCM_PATH may be the host's.
for root in ("/opt/rocm", os.environ.get("ROCM_PATH", "")):
    shipped = Path(root) / "share" / "amd_smi"
    if shipped.is_absolute() and shipped.is_dir():
        sys.path.append(str(shipped))
try:
    # On import it looks for its library and every function it calls there, and prints what is missing.
    with contextlib.redirect_stdout(sys.stderr):
        import amdsmi
except (ImportError, OSError, KeyError, AttributeError):
    amdsmi = None

MEASURES = ("cuda",)
T = TypeVar("T")
V = TypeVar("V", bool, float)
VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
UPDATE_PERIOD = 0.1  # s; the driver's power is an average over milliseconds, its counter changes every millisecond
MICRO = 1e-6
ROCM_SMI = "librocm_smi64.so"
PCI = Path("/sys/bus/pci/drivers/amdgpu")  # a link for each GPU of the host
WHOLE = "SPX"  # a GPU that is one partition
NOT_THERE = "N/A"
NOT_THERE_RAW = 0xFFFF  # what ROCm 5.7 to 6.1.0 returned instead
# GPUs report different ones: MI300 the current, MI200 the average; ROCm 7 has one name for both.
POWERS = ("socket_power", "current_socket_power", "average_socket_power")
# What may throttle clocks, on MI200 and before: bits of `indep_throttle_status` by position (Linux, amdgpu_smu.h).
THROTTLERS = {
    **dict(enumerate(("PPT0", "PPT1", "PPT2", "PPT3", "SPL", "FPPT", "SPPT", "SPPT_APU"))),
    **dict(enumerate(("TDC_GFX", "TDC_SOC", "TDC_MEM", "TDC_VDD", "TDC_CVIP", "EDC_CPU", "EDC_GFX", "APCC"), 16)),
    **dict(enumerate(("TEMP_GPU", "TEMP_CORE", "TEMP_MEM", "TEMP_EDGE", "TEMP_HOTSPOT", "TEMP_SOC"), 32)),
    **dict(enumerate(("TEMP_VR_GFX", "TEMP_VR_SOC", "TEMP_VR_MEM0", "TEMP_VR_MEM1"), 38)),
    **dict(enumerate(("TEMP_LIQUID0", "TEMP_LIQUID1", "VRHOT0", "VRHOT1", "PROCHOT_CPU", "PROCHOT_GFX"), 42)),
    **dict(enumerate(("PPM", "FIT"), 56)),
}
THROTTLED = "throttled"  # all that ROCm 7 says of them
KIND = re.compile("[A-Z]+")  # of a throttler: its name without its number
KINDS = {
    **dict.fromkeys(("PPT", "SPL", "FPPT", "SPPT", "TDC", "EDC", "APCC", "PPM"), POWER),
    **dict.fromkeys(("TEMP", "VRHOT", "PROCHOT"), HEAT),
    "FIT": HARDWARE,
}
# What limited the clocks of MI300 and later: fields with the number of cycles of the controller in which it did, of
# those in `accumulation_counter`. The call for violations has the same, but waits for 0.1 s.
RESIDENCIES = {
    "ppt_pwr": ("ppt_residency_acc", POWER),
    "prochot_thrm": ("prochot_residency_acc", HEAT),
    "socket_thrm": ("socket_thm_residency_acc", HEAT),
    "vr_thrm": ("vr_thm_residency_acc", HEAT),
    "hbm_thrm": ("hbm_thm_residency_acc", HEAT),
}
LIMITS = {**KINDS, **{name: kind for name, (_, kind) in RESIDENCIES.items()}, THROTTLED: UNKNOWN}
WATCH_PERIOD = 0.1  # s
NO_TRAFFIC = "amdsmi counts the traffic on the bus in a unit that it does not document"
VIOLATIONS = ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm")  # the same on MI300 and later
# The second die of a module shows no power and no energy: the first one shows the module's. HPE has another name for
# MI250X.
TWO_DIES = ("MI250", "MI200 (MCM)")


class Amd:
    """One module, through whichever library is there. Energy is read of its first die, states of all `dies`."""

    def __init__(self, library: AmdSmi | RocmSmi, handle: Any, name: str, dies: Sequence[Any] = ()) -> None:
        self.library, self.handle = library, handle
        self.controllers = [Controller(library, die) for die in dies or (handle,) if isinstance(library, AmdSmi)]
        first = self.read_whole()
        if not (first.watts or first.joules):
            raise MeterError(f"{name} reports neither energy nor power")
        self.facts = MeterFacts(
            source=library.name,
            scope="package",
            devices=(name,),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="the library does not say",
            has_power=bool(first.watts),
            has_counter=bool(first.joules),
            counter_ranges=(None,) if first.joules else (),
            simulated=library.simulated,
            limits=LIMITS,
            watch_period=WATCH_PERIOD if self.controllers else None,
            why_no_traffic=NO_TRAFFIC,
        )

    def read_whole(self) -> Reading:
        """Return whatever the library reports."""
        watts, joules = self.library.watts(self.handle), self.library.joules(self.handle)
        return Reading([] if watts is None else [watts], [] if joules is None else [joules])

    def read(self) -> Reading:
        """Return power and energy. Raises MeterError if the GPU reports more or less than at the start."""
        reading = self.read_whole()
        if bool(reading.watts) != self.facts.has_power or bool(reading.joules) != self.facts.has_counter:
            raise MeterError("the GPU reported more or fewer values than before")
        return reading

    def watch(self) -> tuple[State]:
        """Return the state of the module: of its dies the slowest clock, and what limits any of them."""
        states = [controller.state() for controller in self.controllers]
        return (
            State(
                clock=min((state.clock for state in states if state.clock is not None), default=None),
                memory_clock=min((state.memory_clock for state in states if state.memory_clock), default=None),
                limiting=_of_any(state.limiting for state in states),
                limited=_of_any(state.limited for state in states),
            ),
        )


class Controller:
    """The power controller of a die."""

    def __init__(self, library: AmdSmi, die: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.library, self.die, self.clock = library, die, clock
        self.limited = dict.fromkeys(RESIDENCIES, 0.0)
        self.last: Mapping[str, Any] = {}
        self.at = clock()

    def state(self) -> State:
        """Return the state of the die."""
        metrics = self.library.metrics(self.die)
        clocks = [clock for clock in metrics.get("current_gfxclks") or () if _number_or_none(clock)]
        limited = self.limited_so_far(metrics)
        return State(
            clock=min(clocks, default=_number_or_none(metrics.get("current_gfxclk"))),
            memory_clock=_number_or_none(metrics.get("current_uclk")),
            limiting=_limiting(metrics.get("indep_throttle_status", NOT_THERE)),
            limited=limited,
        )

    def limited_so_far(self, metrics: Mapping[str, Any]) -> Mapping[str, float]:
        """Return for how many s each limit held the clocks down since the first call: its share of the controller's
        cycles, as time passed."""
        now, last = self.clock(), self.last
        cycles = _gain(last, metrics, "accumulation_counter")
        for name, (field, _) in RESIDENCIES.items():
            gain = _gain(last, metrics, field)
            if cycles and gain is not None:
                self.limited[name] += min(1.0, gain / cycles) * (now - self.at)
        self.last, self.at = metrics, now
        return {name: self.limited[name] for name, (field, _) in RESIDENCIES.items() if _is_count(metrics.get(field))}


class AmdSmi:
    """The library amdsmi."""

    name = "amdsmi"

    def __init__(self) -> None:
        if amdsmi is None:
            raise MeterError("amdsmi is not in this image, or does not find its library")
        amdsmi.amdsmi_init()
        self.simulated = bool(getattr(amdsmi, "SIMULATED", False))

    def handles(self) -> Sequence[Any]:
        """Return all GPUs sorted by PCI address, as ROCm numbers them."""
        return sorted(amdsmi.amdsmi_get_processor_handles(), key=self.address)

    def address(self, handle: Any) -> str:
        """Return the PCI address."""
        return str(amdsmi.amdsmi_get_gpu_device_bdf(handle))

    def serial(self, handle: Any) -> str:
        """Return the number in the UUID that selects visible devices, in hexadecimal; amdsmi's own UUID differs."""
        return str(amdsmi.amdsmi_get_gpu_asic_info(handle).get("asic_serial", ""))

    def market_name(self, handle: Any) -> str:
        """Return the market name, such as AMD Instinct MI250X."""
        return str(amdsmi.amdsmi_get_gpu_asic_info(handle).get("market_name", ""))

    def shared(self, handle: Any) -> str:
        """Return what else its power and energy include, to append to its name."""
        return " with all its partitions" if self.mode(handle) else ""

    def mode(self, handle: Any) -> str | None:
        """Return the partition mode; None if the GPU is not divided."""
        mode = _answer(lambda: amdsmi.amdsmi_get_gpu_compute_partition(handle), WHOLE)
        return None if mode == WHOLE else str(mode)

    def metrics(self, handle: Any) -> Mapping[str, Any]:
        """Return the table of the power controller; an empty one if it is not reported."""
        table: Mapping[str, Any] = _answer(lambda: amdsmi.amdsmi_get_gpu_metrics_info(handle), {})
        return table

    def watts(self, handle: Any) -> float | None:
        """Return the power of the socket in W; None if it is not reported."""
        power = _answer(lambda: amdsmi.amdsmi_get_power_info(handle), {})
        values = (power.get(name, NOT_THERE) for name in POWERS)
        return next((float(value) for value in values if value not in (NOT_THERE, NOT_THERE_RAW)), None)

    def joules(self, handle: Any) -> float | None:
        """Return the energy in J since the driver was loaded; None if not reported. ROCm before 6.3 calls it power."""
        energy = _answer(lambda: amdsmi.amdsmi_get_energy_count(handle), {})
        count = energy.get("energy_accumulator", energy.get("power", NOT_THERE))
        return None if count == NOT_THERE else float(count) * energy["counter_resolution"] * MICRO


class RocmSmi:
    """The older library, which has no dependable Python module."""

    name = "rocm_smi"
    simulated = False

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(ROCM_SMI)
        except OSError as error:
            raise MeterError(f"{ROCM_SMI} is not visible: was the container started with --rocm?") from error
        self.require(self.library.rsmi_init(ctypes.c_uint64(0)), "rsmi_init")

    def require(self, status: int, call: str) -> None:
        """Raise MeterError for anything but success, which is 0."""
        if status:
            raise MeterError(f"{call} fails with {status}")

    def handles(self) -> Sequence[int]:
        """Return the numbers of all GPUs."""
        count = ctypes.c_uint32()
        self.require(self.library.rsmi_num_monitor_devices(ctypes.byref(count)), "rsmi_num_monitor_devices")
        return range(count.value)

    def address(self, handle: int) -> str:
        """Return the PCI address."""
        number = ctypes.c_uint64()
        self.require(self.library.rsmi_dev_pci_id_get(handle, ctypes.byref(number)), "rsmi_dev_pci_id_get")
        value = number.value
        return f"{value >> 32:04x}:{value >> 8 & 0xFF:02x}:{value >> 3 & 0x1F:02x}.{value & 7}"

    def serial(self, handle: int) -> str:
        """Return the number in the UUID that selects visible devices, in hexadecimal."""
        number = ctypes.c_uint64()
        self.require(self.library.rsmi_dev_unique_id_get(handle, ctypes.byref(number)), "rsmi_dev_unique_id_get")
        return f"{number.value:x}"

    def market_name(self, handle: int) -> str:
        """Return the driver's name for it."""
        text = ctypes.create_string_buffer(256)
        self.library.rsmi_dev_name_get(handle, text, ctypes.c_size_t(len(text)))
        return text.value.decode("utf-8", "replace")

    def shared(self, _: int) -> str:
        """Return nothing: the library does not reliably report it."""
        return ""

    def watts(self, handle: int) -> float | None:
        """Return the average power of the first sensor in W; None if it is not reported. The call writes 64 bits."""
        microwatts = ctypes.c_uint64()
        failed = self.library.rsmi_dev_power_ave_get(handle, ctypes.c_uint32(0), ctypes.byref(microwatts))
        return None if failed else microwatts.value * MICRO

    def joules(self, handle: int) -> float | None:
        """Return the energy since the driver was loaded, in J; None if it is not reported."""
        count, resolution, moment = ctypes.c_uint64(), ctypes.c_float(), ctypes.c_uint64()
        references = ctypes.byref(count), ctypes.byref(resolution), ctypes.byref(moment)
        failed = self.library.rsmi_dev_energy_count_get(handle, *references)
        return None if failed else count.value * resolution.value * MICRO


def find(place: str | None, number: int = 0) -> Amd:
    """Return the module of the GPU that ROCm numbers so among those it may use, or the one numbered `place`."""
    return first_found({library.name: partial(_find, library, place, number) for library in (AmdSmi, RocmSmi)})


def address(number: int) -> str:
    """Return the PCI address of the GPU that ROCm numbers so. Raises MeterError."""

    def ask(make: type[AmdSmi] | type[RocmSmi]) -> str:
        library = make()
        return library.address(_chosen(library, library.handles(), None, number))

    return first_found({library.name: partial(_translated, ask, library) for library in (AmdSmi, RocmSmi)})


def conditions(_: str | None) -> Mapping[str, Any]:
    """Return the conditions of the first GPU that ROCm may use (session.DEVICE_CONDITIONS). Raises MeterError."""
    library = AmdSmi()
    handle = _chosen(library, library.handles(), None)
    clock = _answer(lambda: amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX), {})
    memory_clock = _answer(lambda: amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.MEM), {})
    metrics = _answer(lambda: amdsmi.amdsmi_get_gpu_metrics_info(handle), {})
    asked: Mapping[str, tuple[Callable[[], Any], str | None]] = {
        "driver": (lambda: amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"], None),
        "power_cap": (lambda: amdsmi.amdsmi_get_power_cap_info(handle)["power_cap"] * MICRO, "W"),
        "clock": (lambda: clock.get("clk"), "MHz"),
        "clock_max": (lambda: clock.get("max_clk"), "MHz"),
        "memory_clock": (lambda: memory_clock.get("clk"), "MHz"),
        "temperature": (lambda: _number_or_none(metrics.get("temperature_hotspot")), "°C"),
        "throttling": (lambda: _throttling(handle, metrics), None),
        "partitioning": (lambda: amdsmi.amdsmi_get_gpu_compute_partition(handle), None),
        "memory_used": (lambda: amdsmi.amdsmi_get_gpu_vram_usage(handle)["vram_used"], "MiB"),
        "other_processes": (lambda: _others(amdsmi.amdsmi_get_gpu_process_list(handle)), None),
    }
    return {name: fact(partial(_answer, ask, None), unit) for name, (ask, unit) in asked.items()}


def partition() -> str | None:
    """Return the partition mode of the first GPU that ROCm may use, such as CPX; None if undivided or unknown."""
    try:
        library = AmdSmi()
        return library.mode(_chosen(library, library.handles(), None))
    except Exception:  # whatever the library raises: no run should fail for a name
        return None


def _number_or_none(number: Any) -> Any:
    return None if number in (NOT_THERE, NOT_THERE_RAW) else number


def _throttling(handle: Any, metrics: Mapping[str, Any]) -> str | None:
    """Return what throttles the clocks, in the vendor's words; `none` for nothing, None if it is not reported."""
    status = metrics.get("indep_throttle_status", NOT_THERE)
    if status is True:  # ROCm 7 says no more
        return "throttled"
    if status != NOT_THERE and status < 2**64 - 1:
        return ", ".join(name for place, name in THROTTLERS.items() if status >> place & 1) or "none"
    violations = amdsmi.amdsmi_get_violation_status(handle)
    states = {name: violations.get(f"active_{name}", NOT_THERE) for name in VIOLATIONS}
    if set(states.values()) == {NOT_THERE}:
        return None
    return ", ".join(name for name, active in states.items() if active is True or active == 1) or "none"


def _limiting(status: Any) -> Mapping[str, bool]:
    """Return whether each kind of throttler limits the clocks, by `indep_throttle_status`; nothing if it is none."""
    if isinstance(status, bool):
        return {THROTTLED: status}
    if not _is_count(status) or status >= 2**64 - 1:
        return {}
    active = {KIND.match(name)[0] for place, name in THROTTLERS.items() if status >> place & 1}  # type: ignore[index]
    return {kind: kind in active for kind in KINDS}


def _of_any(dies: Iterable[Mapping[str, V]]) -> Mapping[str, V]:
    """Return the largest value of each name on any die."""
    largest: dict[str, V] = {}
    for values in dies:
        for name, value in values.items():
            largest[name] = max(value, largest.get(name, value))
    return largest


def _gain(before: Mapping[str, Any], after: Mapping[str, Any], field: str) -> int | None:
    """Return by how much a count rose; None if it was not reported, or began again."""
    first, second = before.get(field), after.get(field)
    if first is None or second is None or not (_is_count(first) and _is_count(second)):
        return None
    return int(second - first) if second >= first else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _find(make: type[AmdSmi] | type[RocmSmi], place: str | None, number: int) -> Amd:
    return _translated(lambda: _opened(make(), place, number))


def _translated(ask: Callable[..., T], *arguments: Any) -> T:
    """Return what a call returns. Raises MeterError in place of the library's errors."""
    try:
        return ask(*arguments)
    except _errors() as error:
        raise MeterError(f"{type(error).__name__}: {error}") from error


def _opened(library: AmdSmi | RocmSmi, place: str | None, number: int) -> Amd:
    handles = library.handles()
    chosen = _chosen(library, handles, place, number)
    if not any(module in library.market_name(chosen) for module in TWO_DIES):
        return Amd(library, chosen, f"{library.address(chosen)}{library.shared(chosen)}")
    dies = _dies(library, handles, chosen)
    names = [library.address(die) for die in dies]
    whole = f"{' and '.join(names)}, the dies of a module"
    return Amd(library, dies[0], whole if len(names) > 1 else f"{names[0]} with the other die of its module", dies)


def _dies(library: AmdSmi | RocmSmi, handles: Sequence[Any], chosen: Any) -> Sequence[Any]:
    """Return the dies of a module, that first which reports its power and energy; only this one if the job may not use
    the other.

    Raises MeterError if a scheduler hides the first: the libraries leave out hidden dies, and the entry before the
    second die then belongs to another module.
    """
    at, on_host = list(handles).index(chosen), len(list(PCI.glob("*:*:*.*")))
    whole = len(handles) == on_host  # then modules have an even number and the next
    if whole and len(handles) % 2 == 0:
        return sorted(handles[at - at % 2 : at - at % 2 + 2], key=lambda die: not _reports(library, die))
    if _reports(library, chosen):
        return [chosen]
    raise MeterError(f"{library.address(chosen)} is the second die of a module, whose first one is hidden here")


def _reports(library: AmdSmi | RocmSmi, die: Any) -> bool:
    return bool(library.watts(die) or library.joules(die))


def _chosen(library: AmdSmi | RocmSmi, handles: Sequence[Any], place: str | None, number: int = 0) -> Any:
    """Return the GPU of a number or UUID, or else the one of a `number` among those that the environment allows.

    The variables apply in turn: the numbers in a later one count the GPUs that the earlier ones leave.
    """
    left = list(handles)
    if place is not None:
        return _numbered(left, place)
    for variable in VISIBLE:
        named = os.environ.get(variable)
        if named is not None:
            left = [_named(library, left, word.strip()) for word in named.split(",") if word.strip()]
            if variable != VISIBLE[0]:
                break  # HIP reads only one of the two
    if number >= len(left):
        which = f"GPU {number}" if number else "GPU"
        raise MeterError(f"no {which} is left: " + ", ".join(f"{name}={os.environ.get(name)}" for name in VISIBLE))
    return left[number]


def _named(library: AmdSmi | RocmSmi, handles: Sequence[Any], word: str) -> Any:
    if not word.startswith("GPU-"):
        return _numbered(handles, word)
    serial = _number(word[len("GPU-") :])
    matching = [handle for handle in handles if serial is not None and _number(library.serial(handle)) == serial]
    if len(matching) != 1:
        raise MeterError(f"{len(matching)} GPUs have the UUID {word}")
    return matching[0]


def _number(text: str) -> int | None:
    """Return the value of hexadecimal digits, with or without 0x; None for other text, such as N/A."""
    try:
        return int(text, 16)
    except ValueError:
        return None


def _numbered(handles: Sequence[Any], word: str) -> Any:
    if not word.isdigit() or int(word) >= len(handles):
        raise MeterError(f"there is no GPU {word}: {len(handles)} are visible")
    return handles[int(word)]


def _answer(ask: Callable[[], Any], otherwise: Any) -> Any:
    """Return the answer to a call, or `otherwise` if the GPU or this version of the library has none."""
    with contextlib.suppress(*_errors(), LookupError, TypeError):
        value = ask()
        return otherwise if value == NOT_THERE else value
    return otherwise


def _others(processes: Any) -> int:
    own = host_pid()
    return sum(process["pid"] != own for process in processes)


def _errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of amdsmi, if it is there."""
    return (AttributeError,) if amdsmi is None else (AttributeError, amdsmi.AmdSmiException)
