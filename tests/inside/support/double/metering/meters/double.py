"""A meter that shows 40 W and can be told, by its place, to fail in one of the ways drivers do.

It stands for the vendors' meters to come: a file of its own, and nothing else.
"""

from __future__ import annotations

import time

from entrypoints.metering.meter import MeterError, MeterFacts, Reading

MEASURES = ()


class VendorError(Exception):
    """Vendor libraries have exceptions of their own."""


def find(place):
    if place == "absent":
        raise MeterError("the double's driver is not loaded")
    return Double(place)


class Double:
    facts = MeterFacts(
        source="double",
        scope="die",
        devices=("die 0", "die 1"),
        update_period=0.01,
        averaging=0.02,
        averaging_reason=None,
        has_power=True,
        has_counter=False,
        counter_ranges=(),
        simulated=True,
    )

    def __init__(self, fault):
        self.fault, self.readings = fault, 0

    def read(self):
        self.readings += 1
        if self.fault and self.readings > 10:
            if self.fault == "hang":
                time.sleep(600)
            raise VendorError("the double's bus is gone")
        return Reading([30.0, 10.0], [])
