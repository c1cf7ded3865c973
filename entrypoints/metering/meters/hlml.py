"""Intel Gaudi: HLML, the driver's management library, which hl-smi reads as well.

Calls, constants and units: hlml.h and hlml.go in https://github.com/HabanaAI/gohlml, https://github.com/HabanaAI/pyhlml.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, Sequence

from entrypoints.metering.kernel_files import kernel_text
from entrypoints.metering.meter import HEAT, POWER, MeterError, MeterFacts, Reading, State
from entrypoints.system.facts import MIB, fact

MEASURES = ("hpu",)
LIBRARIES = ("libhlml.so", "/usr/lib/habanalabs/libhlml.so")  # the second is no place where programs look for one
MODULE = "HLS_MODULE_ID"  # the card that a process acquires, by its place in the machine
MODULES = "HABANA_VISIBLE_MODULES"  # those that processes may acquire: 0,3
DRIVER = Path("/sys/module/habanalabs/version")
UPDATE_PERIOD = 0.1  # s; not documented
WATCH_PERIOD = 0.1  # s
THROTTLING = {0x1: "power", 0x2: "thermal"}  # HLML_CLOCKS_THROTTLE_REASON_...
LIMITS = {"power": POWER, "thermal": HEAT}
ALREADY_INITIALIZED, NOT_SUPPORTED = 5, 3
SOC, ON_CHIP = 0, 0  # HLML_CLOCK_SOC, the only clock of Gaudi 2 and 3; HLML_TEMPERATURE_ON_AIP
TEXT = 256  # bytes: more than any text or structure here
BUS_ID = 4  # bytes before the address in hlml_pci_info_t
NO_TRAFFIC = "HLML has rates of the bus in a unit that it does not document"
MILLI = 1e-3


class MemoryInfo(ctypes.Structure):
    """hlml_memory_t, in bytes."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("free", "total", "used"))


class GaudiCard:
    """A card, of which HLML's functions are asked."""

    def __init__(self, library: Any, call: str, *which: Any) -> None:
        """Find it by a call that gives a handle. Raises MeterError."""
        self.library, self.handle = library, ctypes.c_void_p()
        require(getattr(library, call)(*which, ctypes.byref(self.handle)), call)

    def ask(self, call: str, answer: Any, *details: Any) -> bool:
        """Have `answer` filled in. Return whether this card and library support that. Raises MeterError."""
        function = getattr(self.library, call, None)  # None: an older library
        status = NOT_SUPPORTED if function is None else function(self.handle, *details, answer)
        if status == NOT_SUPPORTED:
            return False
        require(status, call)
        return True

    def number(self, call: str, *details: Any, kind: Any = ctypes.c_uint) -> int | None:
        """Return a whole number; None if it is not supported."""
        answer = kind()
        return int(answer.value) if self.ask(call, ctypes.byref(answer), *details) else None

    def joules(self) -> float | None:
        """Return the energy since the driver was loaded; None if it is not counted."""
        millijoules = self.number("hlml_device_get_total_energy_consumption", kind=ctypes.c_ulonglong)
        return millijoules * MILLI if millijoules else None

    def watts(self) -> float | None:
        """Return the power; None if it is not reported."""
        return _thousandths(self.number("hlml_device_get_power_usage"))

    def module(self) -> int:
        """Return its place in the machine. Raises MeterError."""
        module = self.number("hlml_device_get_module_id")
        if module is None:
            raise MeterError("HLML does not say which module a card is")
        return module

    def identifier(self) -> str:
        """Return its UUID. Raises MeterError."""
        text = ctypes.create_string_buffer(TEXT)
        require(self.library.hlml_device_get_uuid(self.handle, text, ctypes.c_uint(TEXT)), "hlml_device_get_uuid")
        return text.value.decode()

    def address(self) -> str:
        """Return its PCI address, as the kernel writes it. Raises MeterError."""
        info = ctypes.create_string_buffer(TEXT)
        require(self.library.hlml_device_get_pci_info(self.handle, info), "hlml_device_get_pci_info")
        return info.raw[BUS_ID:].split(b"\0", 1)[0].decode().lower()

    def clock(self, call: str = "hlml_device_get_clock_info") -> int | None:
        """Return a clock in MHz; None if it is not reported."""
        return self.number(call, ctypes.c_int(SOC))

    def limiting(self) -> Mapping[str, bool]:
        """Return whether each reason limits the clocks now; nothing if that is not reported."""
        bits = self.number("hlml_device_get_current_clocks_throttle_reasons", kind=ctypes.c_ulonglong)
        return {} if bits is None else {reason: bool(bits & bit) for bit, reason in THROTTLING.items()}

    def memory_used(self) -> float | None:
        """Return the memory in use in MiB; None if it is not reported."""
        memory = MemoryInfo()
        return memory.used / MIB if self.ask("hlml_device_get_memory_info", ctypes.byref(memory)) else None


class Hlml:
    """One card: its energy counter and its power, its clock and what limits that."""

    def __init__(self, card: GaudiCard) -> None:
        self.card = card
        powered, counts = card.watts() is not None, card.joules() is not None
        if not (powered or counts):
            raise MeterError(f"{card.identifier()} reports neither energy nor power")
        self.facts = MeterFacts(
            source="hlml",
            scope="board",  # telemetry sums up the card's inputs, such as power.draw.54v: docs.habana.ai, hl_smi_async
            devices=(card.identifier(),),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="the library does not say",
            has_power=powered,
            has_counter=counts,
            counter_ranges=(None,) if counts else (),  # 64 bits
            simulated=bool(getattr(card.library, "SIMULATED", False)),
            limits=LIMITS,
            watch_period=WATCH_PERIOD,
            why_no_traffic=NO_TRAFFIC,
        )

    def read(self) -> Reading:
        """Return power and energy. Raises MeterError if the card no longer reports what it did."""
        watts = self.card.watts() if self.facts.has_power else 0.0
        joules = self.card.joules() if self.facts.has_counter else 0.0
        if watts is None or joules is None:
            raise MeterError("the card no longer reports its power or energy")
        return Reading([watts] if self.facts.has_power else [], [joules] if self.facts.has_counter else [])

    def watch(self) -> tuple[State]:
        """Return the clock, and what limits it."""
        return (State(clock=self.card.clock(), limiting=self.card.limiting()),)


def find(place: str | None, number: int = 0) -> Hlml:
    """Return the card of a rank's number on this host, or the one at `place`: HLML's number or a PCI address."""
    if place is None:
        return Hlml(_visible(number))
    if place.isdigit():
        return Hlml(_by_index(_library(), int(place)))
    return Hlml(GaudiCard(_library(), "hlml_device_get_handle_by_pci_bus_id", place.encode()))


def address(number: int) -> str:
    """Return the PCI address of the card of a rank's number on this host. Raises MeterError."""
    return _visible(number).address()


def modules() -> Sequence[int]:
    """Return the modules that processes may acquire, in the order of ranks. Raises MeterError."""
    for name in (MODULE, MODULES):
        chosen = os.environ.get(name)
        if chosen:
            words = chosen.split(",")
            if not all(word.strip().isdigit() for word in words):
                raise MeterError(f"{name}={chosen} lists no modules")
            return [int(word) for word in words]
    return sorted(_by_module())


def conditions() -> Mapping[str, Any]:
    """Return the conditions of the first card that this process may use (session.DEVICE_CONDITIONS)."""
    card = _visible(0)
    return {
        "driver": fact(lambda: kernel_text(DRIVER)),
        "power_cap": fact(lambda: _thousandths(card.number("hlml_device_get_power_management_limit")) or None, "W"),
        "clock": fact(card.clock, "MHz"),
        "clock_max": fact(lambda: card.clock("hlml_device_get_max_clock_info"), "MHz"),
        "temperature": fact(lambda: card.number("hlml_device_get_temperature", ctypes.c_int(ON_CHIP)), "°C"),
        "throttling": fact(lambda: _throttling(card.limiting())),
        "memory_used": fact(card.memory_used, "MiB"),
    }


def require(status: int, call: str) -> None:
    """Raise MeterError for anything but success, which is 0."""
    if status:
        raise MeterError(f"{call} fails with {status} (hlml_return_t)")


@lru_cache(maxsize=None)
def _library() -> Any:
    """Load the library, once for the process. Raises MeterError."""
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            status = library.hlml_init()
            require(0 if status == ALREADY_INITIALIZED else status, "hlml_init")
            return library
    raise MeterError(f"{LIBRARIES[0]} of Intel's driver for Gaudi is not here")


def _by_index(library: Any, index: int) -> GaudiCard:
    return GaudiCard(library, "hlml_device_get_handle_by_index", ctypes.c_uint(index))


def _by_module() -> Mapping[int, GaudiCard]:
    """Return all cards that are visible here, by module. Raises MeterError, also if there are none."""
    library, count = _library(), ctypes.c_uint()
    require(library.hlml_device_get_count(ctypes.byref(count)), "hlml_device_get_count")
    if not count.value:
        raise MeterError("HLML shows no Gaudi: are /dev/accel/* in this container?")
    cards = [_by_index(library, index) for index in range(count.value)]
    return {card.module(): card for card in cards}


def _visible(number: int) -> GaudiCard:
    """Return the card of a rank's number on this host. Raises MeterError."""
    chosen, cards = modules(), _by_module()
    if number >= len(chosen) or chosen[number] not in cards:
        raise MeterError(f"there is no Gaudi {number}: visible are the modules {', '.join(map(str, cards))}")
    return cards[chosen[number]]


def _thousandths(number: int | None) -> float | None:
    return None if number is None else number * MILLI


def _throttling(limiting: Mapping[str, bool]) -> str | None:
    active = [reason for reason, limits in limiting.items() if limits]
    return ", ".join(active) or "none" if limiting else None
