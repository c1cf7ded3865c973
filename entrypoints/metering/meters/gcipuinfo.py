"""Graphcore IPUs: `gcipuinfo` of the Poplar SDK, which shows the IPUs of this user's partition.

https://docs.graphcore.ai/projects/gcipuinfo/en/latest/
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from entrypoints.metering.kernel_files import host_pid
from entrypoints.metering.meter import MeterError, MeterFacts, Reading
from entrypoints.system.facts import fact

try:
    import gcipuinfo
except ImportError:
    gcipuinfo = None

MEASURES = ("ipu",)
UPDATE_PERIOD = 1.0  # s; the hardware's update period is not documented, and a call takes a while
POWER, BOARD_POWER, BOARD = "ipu power", "total board power", "board serial number"
# Chips of the second generation differ only in their clock, as gc-info and gc-monitor print it.
CHIPS = {"1330MHz": "GC200", "1850MHz": "Bow"}
PROCESS, NOBODY = "user process id", ("", "0", "N/A")
DRIVER, CLOCK, TEMPERATURE = "driver version", "clock", "average die temp"


class Gcipuinfo:
    """Each IPU of this user's partition; if IPUs report no power, each of their boards.

    A partition may have more IPUs than the run uses: a reading says which of them a process uses.
    """

    def __init__(self, inventory: Any) -> None:
        self.inventory = inventory
        devices = _devices(inventory)
        if not devices:
            raise MeterError("gcipuinfo shows no IPU: is IPUOF_VIPU_API_PARTITION_ID or IPUOF_CONFIG_PATH set?")
        of_ipus = all(_power(device, POWER) is not None for device in devices)
        boards = {device.get(BOARD, str(place)): place for place, device in reversed(list(enumerate(devices)))}
        self.key = POWER if of_ipus else BOARD_POWER
        self.places = list(range(len(devices))) if of_ipus else sorted(boards.values())
        place_of = [place if of_ipus else boards[device.get(BOARD, str(place))] for place, device in enumerate(devices)]
        self.counted_in = [self.places.index(place) for place in place_of]  # by IPU: the device that has its energy
        names = [
            f"IPU {devices[place].get('id', place)}" if of_ipus else f"board {devices[place].get(BOARD, place)}"
            for place in self.places
        ]
        self.facts = MeterFacts(
            source="gcipuinfo",
            scope="die" if of_ipus else "board",  # one IPU, without fans and the rest of its machine
            devices=tuple(names),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="the library does not say",
            has_power=True,
            has_counter=False,
            counter_ranges=(),
            simulated=bool(getattr(gcipuinfo, "SIMULATED", False)),
        )

    def read(self) -> Reading:
        """Return the power of each device. Raises MeterError if one does not report it."""
        devices = _devices(self.inventory)
        watts = [_power(devices[place], self.key) for place in self.places]
        if None in watts:
            text = devices[self.places[watts.index(None)]].get(self.key, "not there")
            raise MeterError(f"gcipuinfo reports no power: {self.key} is {text!r}")
        in_use = [device.get(PROCESS, "").strip() not in NOBODY for device in devices]
        return Reading([value for value in watts if value is not None], (), list(zip(self.counted_in, in_use)))


def find(place: str | None) -> Gcipuinfo:
    """Return the IPUs of the partition. Raises MeterError if a `place` is given, since a partition shows no others."""
    if place is not None:
        raise MeterError("gcipuinfo shows the IPUs of one's partition: name no place")
    return Gcipuinfo(_inventory())


def conditions() -> Mapping[str, Any]:
    """Return the conditions of the IPUs (session.DEVICE_CONDITIONS). Raises MeterError."""
    devices = _devices(_inventory())
    return {
        "driver": fact(lambda: _together(devices, DRIVER)),
        "clock": fact(lambda: _together(devices, CLOCK)),
        "temperature": fact(lambda: _together(devices, TEMPERATURE)),
        "other_processes": fact(lambda: _others(devices)),
    }


def chip() -> str | None:
    """Return the name of IPUs of the second architecture; None if it cannot be determined."""
    try:
        return CHIPS.get(_together(_devices(_inventory()), CLOCK) or "")
    except Exception:  # whatever the library raises: no run should fail for a name
        return None


def _inventory() -> Any:
    """Return the inventory, set to update at every call. Raises MeterError if the library is missing."""
    if gcipuinfo is None:
        raise MeterError("gcipuinfo is not here: it comes with the Poplar SDK")
    inventory = gcipuinfo.gcipuinfo()
    inventory.setUpdateMode(True)
    return inventory


def _devices(inventory: Any) -> list[dict[str, str]]:
    """Return each IPU's attributes as a dict: the library's own objects lack some of its methods."""
    return [dict(device) for device in inventory.getDevices()]


def _power(device: Mapping[str, str], key: str) -> float | None:
    """Return the power in W; None if it is N/A or missing, which is not 0."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*W?\s*", device.get(key, ""))
    return float(match.group(1)) if match else None


def _others(devices: Any) -> int | None:
    """Count other processes that use IPUs of the partition; None if the library reports no process."""
    processes = [device[PROCESS].strip() for device in devices if PROCESS in device]
    return len({process for process in processes if process not in NOBODY} - {str(host_pid())}) if processes else None


def _together(devices: Any, name: str) -> str | None:
    values = dict.fromkeys(device[name] for device in devices if device.get(name, "N/A") != "N/A")
    return ", ".join(values) or None
