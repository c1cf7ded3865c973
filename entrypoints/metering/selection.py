"""The meter that an option selects."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
from types import ModuleType
from typing import Callable, Iterator, Sequence, TypeVar

from entrypoints.metering.meter import Absence, Meter, MeterError, Several
from entrypoints.metering.meters import replay
from entrypoints.metering.names import AUTO, NONE, names

T = TypeVar("T")


def open_meter(choice: str, device: str, numbers: Sequence[int] = (0,)) -> Meter | Absence:
    """Return the meter that `choice` (auto, none, NAME[:PLACE]) selects for a kind of device, or why there is none.

    Where several GPUs compute, `numbers` are those that their framework gives them.
    """
    if choice == NONE:
        return Absence("no meter was asked for (--meter none)")
    name, _, place = choice.partition(":")
    if name != AUTO:
        return _open(name, device, place or None, numbers)
    reasons = []
    for name in names():
        if device in _measures(name):
            meter = _open(name, device, None, numbers)
            if not isinstance(meter, Absence):
                return meter
            reasons.append(f"{name}: {meter.reason}")
    return Absence("; ".join(reasons) or f"no meter measures {device}")


def each_meter(choices: Sequence[str] = ()) -> Iterator[tuple[str, Meter | Absence]]:
    """Yield by name every meter that is here, or those of these names, with all of its devices that this process may
    see; or why there is none. Meters may count the same energy: only devices of one meter add up."""
    for choice in choices or [name for name in names() if name != replay.NAME]:
        yield choice, _opened(functools.partial(_whole, choice))


def _whole(choice: str) -> Meter:
    """Return the meter NAME:PLACE, or of all devices that NAME shows. Raises MeterError without any."""
    name, _, place = choice.partition(":")
    module = _module(name)
    takes = inspect.signature(module.find).parameters
    if "number" in takes and not place:
        meters = {meter.facts.devices: meter for meter in _in_turn(module)}  # parts of a device have one together
        return Several(list(meters.values())) if len(meters) > 1 else next(iter(meters.values()))
    meter: Meter = module.find(place or None, **({"devices": None} if "devices" in takes else {}))
    return meter


def _in_turn(module: ModuleType) -> Iterator[Meter]:
    """Yield the meters of the devices 0, 1 and so on. Raises MeterError if there is no first."""
    for number in itertools.count():
        try:
            meter: Meter = module.find(None, number=number)
        except Exception:  # vendor libraries have their own
            if not number:
                raise
            return
        yield meter


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"entrypoints.metering.meters.{name}")


def addresses(device: str, number: int) -> Iterator[str]:
    """Yield the PCI address of the device of a kind and number, by each vendor's library that has one."""
    for name in names():
        module = _module(name)
        if device in module.MEASURES and hasattr(module, "address"):
            with contextlib.suppress(Exception):  # vendor libraries have their own
                yield _of_number(module.address, number)


def _open(name: str, device: str, place: str | None, numbers: Sequence[int]) -> Meter | Absence:
    kinds = _measures(name)
    if kinds and device not in kinds:
        return Absence(f"the meter {name} measures {', '.join(kinds)}, and this run is on {device}")
    return _opened(lambda: _meter_at(_module(name), place, numbers))


def _opened(find: Callable[[], Meter]) -> Meter | Absence:
    """Return a meter that was found and can be read, or why there is none."""
    try:
        meter = find()
        meter.read()
    except Exception as error:  # vendor libraries have their own; on any of them the run goes on without power
        return Absence(str(error) or type(error).__name__)
    return meter


def _meter_at(module: ModuleType, place: str | None, numbers: Sequence[int]) -> Meter:
    """Return the meter of a place, or of each device of these numbers if the module can distinguish devices.

    Raises MeterError if a place is not all of the devices: energy would be divided among units that others computed.
    """
    takes = inspect.signature(module.find).parameters
    find = functools.partial(_numbered, module)
    if place is None and "number" in takes:
        each = [_of_number(find, number) for number in numbers]
        meters = {meter.facts.devices: meter for meter in each}  # parts of a device have one together
        return Several(list(meters.values())) if len(meters) > 1 else next(iter(meters.values()))
    meter: Meter = module.find(place, **({"devices": len(numbers)} if "devices" in takes else {}))
    several = "number" in takes and len(numbers) > 1
    used = {_of_number(find, number).facts.devices for number in numbers} if several else set()
    if used - {meter.facts.devices}:
        raise MeterError(f"{place} is not all of the {len(numbers)} devices that compute: leave it out of --meter")
    return meter


def _numbered(module: ModuleType, number: int) -> Meter:
    meter: Meter = module.find(None, number=number)
    return meter


def _of_number(ask: Callable[[int], T], number: int) -> T:
    """Return what `ask` says of a device; of the first where a launcher shows each rank only its own."""
    try:
        return ask(number)
    except MeterError:
        if not number:
            raise
        return ask(0)


def _measures(name: str) -> Sequence[str]:
    kinds: Sequence[str] = _module(name).MEASURES
    return kinds
