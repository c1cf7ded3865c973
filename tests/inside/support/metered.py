"""Recordings of made-up meters, by the real sampler on a clock that costs no time."""

from __future__ import annotations

import math

from entrypoints.metering.meter import Absence, Meter, MeterFacts, Reading
from entrypoints.metering.sampling import Sampler
from entrypoints.metering.selection import open_meter


def meter_of(choice: str, device: str) -> Meter:
    """The meter that a choice opens."""
    meter = open_meter(choice, device)
    assert not isinstance(meter, Absence), meter.reason
    return meter


def why_no_meter(choice: str, device: str) -> str:
    """The reason why a choice opens none."""
    absence = open_meter(choice, device)
    assert isinstance(absence, Absence)
    return absence.reason


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


class Made:
    """A meter of one device: functions of the clock's time in W and J, the latter wrapping at `top`."""

    def __init__(self, clock, watts=None, joules=None, update_period=0.001, top=None):
        self.clock, self.watts, self.joules, self.top = clock, watts, joules, top
        self.facts = MeterFacts(
            source="made up",
            scope="board",
            devices=("board 0",),
            update_period=update_period,
            averaging=None,
            averaging_reason="nobody made that up",
            has_power=watts is not None,
            has_counter=joules is not None,
            counter_ranges=(top,) if joules else (),
            simulated=True,
        )

    def read(self):
        now = self.clock()
        counter = [self.joules(now)] if self.joules else []
        return Reading([self.watts(now)] if self.watts else [], [math.fmod(c, self.top or math.inf) for c in counter])


def sampled(meter, clock, seconds, period=0.1, late=lambda: 0.0):
    """What the sampler records in so many seconds, each time woken up `late()` seconds after the deadline."""
    end = clock.now + seconds

    def wait(timeout):
        clock.now = min(clock.now + timeout + late(), end)
        return clock.now >= end

    sampler = Sampler(meter, period, clock, wait)
    sampler.loop()
    return sampler.recording()


def recorded(seconds, began=0.0, period=0.1, late=lambda: 0.0, **signals):
    """The recording of a meter of these signals."""
    clock = Clock(began)
    return sampled(Made(clock, **signals), clock, seconds, period, late)


class Square:
    """A square wave of power: `high` for the first half of each period, then `low`; its exact integral is known."""

    def __init__(self, period, low, high, phase=0.0):
        self.period, self.low, self.high, self.phase = period, low, high, phase

    def watts(self, at):
        return self.high if (at + self.phase) % self.period < self.period / 2 else self.low

    def joules(self, at):
        whole, rest = divmod(at + self.phase, self.period)
        half = self.period / 2
        return whole * half * (self.high + self.low) + min(rest, half) * self.high + max(0.0, rest - half) * self.low

    def between(self, window):
        return self.joules(window[1]) - self.joules(window[0])
