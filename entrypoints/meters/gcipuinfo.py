"""Graphcore IPUs: `gcipuinfo` of the Poplar SDK, which shows the IPUs of this user's partition.

https://docs.graphcore.ai/projects/gcipuinfo/en/latest/
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from entrypoints.host import fact
from entrypoints.meters import MeterError, MeterFacts, Reading

try:
    import gcipuinfo
except ImportError:
    gcipuinfo = None

MEASURES = ("ipu",)
UPDATE_PERIOD = 1.0  # s; how often the hardware has a new value is not documented, and a call takes a while
POWER = "ipu power"
DRIVER, CLOCK, TEMPERATURE, BOARD = "driver version", "clock", "average die temp", "board type"


class Gcipuinfo:
    """All IPUs that this user's partition shows, each by itself."""

    def __init__(self, inventory: Any, devices: tuple[str, ...]) -> None:
        self.inventory = inventory
        self.facts = MeterFacts(
            source="gcipuinfo",
            scope="die",  # one IPU; fans and the rest of its machine are not in it
            devices=devices,
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="the library does not say",
            has_power=True,
            has_counter=False,
            counter_ranges=(),
            simulated=bool(getattr(gcipuinfo, "SIMULATED", False)),
        )

    def read(self) -> Reading:
        """Power of every IPU. Raises MeterError where one does not tell."""
        return Reading([_watts(device) for device in self.inventory.getDevices()], ())


def find(place: str | None) -> Gcipuinfo:
    """The IPUs of the partition; `place` is not used, since a partition shows no others."""
    if place is not None:
        raise MeterError("gcipuinfo shows the IPUs of one's partition: name no place")
    inventory = _inventory()
    devices = inventory.getDevices()
    if not devices:
        raise MeterError("gcipuinfo shows no IPU: is IPUOF_VIPU_API_PARTITION_ID or IPUOF_CONFIG_PATH set?")
    return Gcipuinfo(inventory, tuple(f"IPU {device.get('id', place)}" for place, device in enumerate(devices)))


def conditions() -> Mapping[str, Any]:
    """How the IPUs stand: facts by a name of session.DEVICE_CONDITIONS. Raises MeterError."""
    devices = _inventory().getDevices()
    return {
        "driver": fact(lambda: _together(devices, DRIVER)),
        "clock": fact(lambda: _together(devices, CLOCK)),
        "temperature": fact(lambda: _together(devices, TEMPERATURE)),
    }


def _inventory() -> Any:
    """The IPUs; asked anew at every call, not remembered from the first."""
    if gcipuinfo is None:
        raise MeterError("gcipuinfo is not in this image: it comes with the Poplar SDK")
    inventory = gcipuinfo.gcipuinfo()
    inventory.setUpdateMode(True)
    return inventory


def _watts(device: Mapping[str, str]) -> float:
    text = device.get(POWER, "")
    found = re.fullmatch(r"\s*([0-9.]+)\s*W?\s*", text)
    if not found:
        raise MeterError(f"an IPU tells no power: {POWER} is {text or 'not there'!r}")
    return float(found.group(1))


def _together(devices: Any, name: str) -> str | None:
    values = dict.fromkeys(device[name] for device in devices if device.get(name, "N/A") != "N/A")
    return ", ".join(values) or None
