"""A meter that shows 40 W and can be told, by its place, to fail in one of the ways drivers do.

It stands for the vendors' meters to come: a file of its own, and nothing else.
"""

from __future__ import annotations

import time

from entrypoints.metering.meter import HEAT, POWER, MeterError, MeterFacts, Reading, State

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
        limits={"cap": POWER, "heat": HEAT},
        watch_period=0.01,
        traffic_method="counter",
        imports_unseen=True,
    )

    def __init__(self, fault):
        self.fault, self.readings, self.watched = fault, 0, 0
        self.began = time.monotonic()

    def watch(self):
        """Its clock falls in every 20th reading because of its power limit, and of 16 s it is too hot for one."""
        self.watched += 1
        capped, passed = self.watched % 20 == 0, time.monotonic() - self.began
        state = State(
            1000.0 if capped else 1500.0, 800.0, {"cap": capped}, {"heat": passed / 256}, passed * 2e6, passed
        )
        return [state, state._replace(limiting={"cap": False}, clock=1400.0)]

    def read(self):
        self.readings += 1
        if self.fault and self.readings > 10:
            if self.fault == "hang":
                time.sleep(600)
            raise VendorError("the double's bus is gone")
        return Reading([30.0, 10.0], [])
