"""The threads that read a meter while the parent waits for its child."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from array import array
from typing import Any, Callable, Iterator, NamedTuple, Sequence, TypeVar

from entrypoints.metering.meter import Meter, MeterFacts, Watched
from entrypoints.metering.states import Quantity, StateRecording, quantities

R = TypeVar("R")
PATIENCE = 2.0  # seconds that a driver may take to return the last reading


class Recording(NamedTuple):
    """The raw readings of a meter over a run: counters as read, wraps included."""

    facts: MeterFacts
    period: float  # s between two readings, as configured
    times: Sequence[float]  # s of the monotonic clock, rising
    watts: Sequence[Sequence[float]]  # by device; empty if the meter has no power
    joules: Sequence[Sequence[float]]  # by device; empty if it has no counter
    idle_until: float | None  # when the rest before the run ended; None if there was none
    failures: int
    last_failure: str | None
    in_use: Sequence[tuple[int, bool]] = ()  # as in a reading; true if a process used it at any of them
    states: StateRecording | None = None  # None if the meter reads none

    def only(self, places: Sequence[int]) -> Recording:
        """Return the recording of only the devices at these places."""
        facts = self.facts._replace(
            devices=tuple(self.facts.devices[place] for place in places),
            counter_ranges=tuple(self.facts.counter_ranges[place] for place in places if self.facts.has_counter),
        )
        watts, joules = ([columns[place] for place in places if columns] for columns in (self.watts, self.joules))
        states = self.states and self.states.only(places)
        return self._replace(facts=facts, watts=watts, joules=joules, states=states)


class Periodic:
    """Takes samples of a meter at deadlines `period` apart, counted from the first: a late one does not delay the next.

    `clock` and `wait` (seconds to wait; returns whether to stop) are replaced only by tests.
    """

    name = "meter"  # of the thread

    def __init__(
        self,
        meter: Any,
        period: float,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self.meter, self.period, self.clock = meter, period, clock
        self.going = threading.Lock()  # held until sampling is to stop: an Event takes twice as long to wake up
        self.going.acquire()
        self.wait = wait or (lambda seconds: self.going.acquire(timeout=seconds))
        self.times = array("d")  # s of the monotonic clock, rising
        self.failures, self.last_failure = 0, ""
        self.prepare()

    def prepare(self) -> None:
        """Make room for what is read."""
        raise NotImplementedError

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Sample in the background as long as the context is open, and once more at its end."""
        # A daemon: a driver that hangs in a reading must not keep the result from being written.
        thread = threading.Thread(target=self.loop, name=self.name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.going.release()
            thread.join(PATIENCE)

    def loop(self) -> None:
        """Sample until asked to stop; missed deadlines are skipped."""
        due = self.clock()
        while True:
            self.sample()
            due += self.period * max(1, math.ceil((self.clock() - due) / self.period))
            if self.wait(max(0.0, due - self.clock())):
                self.sample()
                return

    def sample(self) -> None:
        """Take one sample, and date it."""
        raise NotImplementedError

    def dated(self, read: Callable[[], R]) -> tuple[float, R] | None:
        """Return what was read, and the middle of the call. None for a failure, which is counted and leaves a gap, and
        if the clock did not advance."""
        before = self.clock()
        try:
            reading = read()
        except Exception as error:  # vendor libraries raise their own exceptions
            self.failures, self.last_failure = self.failures + 1, str(error)
            return None
        at = (before + self.clock()) / 2
        return None if self.times and at <= self.times[-1] else (at, reading)


class Sampler(Periodic):
    """Reads power and energy of a meter."""

    meter: Meter

    def prepare(self) -> None:
        """Make room for the values of each device."""
        facts = self.meter.facts
        self.watts = [array("d") for _ in facts.devices] if facts.has_power else []
        self.joules = [array("d") for _ in facts.devices] if facts.has_counter else []
        self.in_use: Sequence[tuple[int, bool]] = ()
        self.idle_until: float | None = None

    def sample(self) -> None:
        """Take one reading."""
        sampled = self.dated(self.meter.read)
        if sampled is None:
            return
        at, reading = sampled
        for columns, values in ((self.watts, reading.watts), (self.joules, reading.joules)):
            for column, value in zip(columns, values):
                column.append(value)
        before_it = self.in_use or reading.in_use
        self.in_use = [(device, had or has) for (device, has), (_, had) in zip(reading.in_use, before_it)]
        self.times.append(at)  # last, so that a reader never gets a time without its values

    def recording(self, seconds: float = math.inf) -> Recording:
        """Return everything read so far, or only what was read in about the last `seconds`."""
        count = len(self.times)
        first = max(0, count - 1 - math.ceil(min(seconds / self.period, count)))
        return Recording(
            facts=self.meter.facts,
            period=self.period,
            times=self.times[first:count],
            watts=tuple(column[first:count] for column in self.watts),
            joules=tuple(column[first:count] for column in self.joules),
            idle_until=self.idle_until,
            failures=self.failures,
            last_failure=self.last_failure or None,
            in_use=tuple(self.in_use),
        )


class StateSampler(Periodic):
    """Reads the states of the devices, in a separate thread: a slow reading must not delay those of energy."""

    name = "states"
    meter: Watched

    def prepare(self) -> None:
        """Make room for the states of each device."""
        self.columns: list[dict[Quantity, array[float]]] = [{} for _ in self.meter.facts.devices]

    def sample(self) -> None:
        """Take one reading."""
        sampled = self.dated(self.meter.watch)
        if sampled is None:
            return
        at, states = sampled
        for columns, state in zip(self.columns, states):
            values = quantities(state)
            for name in {**columns, **values}:
                column = columns.get(name)
                if column is None:  # first reported now
                    column = columns[name] = array("d", [math.nan]) * len(self.times)
                column.append(values.get(name, math.nan))
        self.times.append(at)  # last, so that a reader never gets a time without its values

    def recording(self) -> StateRecording:
        """Return everything read so far."""
        count = len(self.times)
        devices = [{name: column[:count] for name, column in dict(columns).items()} for columns in self.columns]
        return StateRecording(self.period, self.times[:count], devices, self.last_failure or None)
