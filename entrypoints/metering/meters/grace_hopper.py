"""Power of a whole Grace Hopper module, with GPU, processor and memory: NVML's counter has only the GPU's package.

Only used when named, since a GPU's power does not compare with a module's.
"""

from __future__ import annotations

import re

from entrypoints.metering.meter import MeterError
from entrypoints.metering.meters import hwmon

MEASURES = ()  # any device: both kinds of processor are in it
LABEL = re.compile(r"Module Power Socket (\d+)")


def find(place: str | None, devices: int | None = 1) -> hwmon.Hwmon:
    """Return the modules whose GPUs compute, so many (None: any number): all of the host, or that of socket `place`."""
    modules = hwmon.labelled(hwmon.HWMON, LABEL, "Grace Hopper module")
    if place is not None:
        modules = {label: folder for label, folder in modules.items() if label.endswith(f" {place}")}
    if devices is not None and len(modules) != devices:
        raise MeterError(
            f"{len(modules)} modules, and {devices} have a GPU that computes: name the socket of one, --meter "
            "grace_hopper:0; for several, use all of the node without a socket"
        )
    return hwmon.Hwmon(modules, "board")
