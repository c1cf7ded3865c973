"""Power of a whole Grace Hopper module, with GPU, processor and memory: NVML's counter has only the GPU's package.

Only used when named, since a GPU's power does not compare with a module's.
"""

from __future__ import annotations

import re

from entrypoints.metering.meter import MeterError
from entrypoints.metering.meters import hwmon

MEASURES = ()  # any device: both kinds of processor are in it
LABEL = re.compile(r"Module Power Socket (\d+)")


def find(place: str | None) -> hwmon.Hwmon:
    """Return the host's only module, or that of socket `place`, which holds the GPU that computes."""
    modules = hwmon.labelled(hwmon.HWMON, LABEL, "Grace Hopper module")
    if place is not None:
        modules = {label: folder for label, folder in modules.items() if label.endswith(f" {place}")}
    if len(modules) != 1:
        raise MeterError(
            f"{len(modules)} modules, and one has the GPU that computes: name its socket, --meter grace_hopper:0"
        )
    return hwmon.Hwmon(modules, "board")
