"""The progress of a run: a line that rewrites itself on a terminal, plain lines elsewhere, data where a host draws."""

from __future__ import annotations

import collections
import shutil
import time
from typing import Callable, Sequence, TextIO

from entrypoints.contract.messages import Data, Evaluated, Message, Phase, Skipped, Step, Trial
from entrypoints.planning.configuration import Configuration
from entrypoints.runs.pace import STEPPED, Pace
from entrypoints.runs.report import duration_text, significant
from entrypoints.system import memory
from entrypoints.system.console import bars, printable, write_now
from entrypoints.system.feed import Feed

INTERVALS = {True: 0.2, False: 5.0}  # seconds between updates, on a terminal and elsewhere
LIFE = {True: 1.0, False: 30.0}  # seconds between signs of life of a phase that reports nothing
FEED_INTERVAL = 1.0  # seconds between two lines for a host that draws
INPUT_BOUND = 0.1  # fraction of time waiting for data from which a run is called input-bound
BAR = 20  # characters
CURVE = 12  # characters of the curve of rates, each of a FEED_INTERVAL or more
NOT_READ = Feed(None)


class Progress:
    """Follows the messages of one run and writes to `stream`, or to `feed` if a host reads that."""

    def __init__(
        self, configuration: Configuration, unit: str, stream: TextIO, feed: Feed = NOT_READ, phase: str = ""
    ) -> None:
        self.configuration, self.stream, self.feed = configuration, stream, feed
        self.pace = Pace(configuration, unit, phase)
        self.terminal = stream.isatty()
        self.watts: Callable[[], float | None] = lambda: None  # of the devices, from their meter
        self.skipped = 0
        self.rates: collections.deque[float] = collections.deque(maxlen=CURVE)  # units per second, for a terminal
        self.written_at = self.fed_at = time.monotonic()
        self._feed(())

    def follow(self, message: Message) -> None:
        """Process one message and show what changed, at limited intervals."""
        self.pace.follow(message)
        if isinstance(message, Phase):
            self._show(self.pace.title)
        elif isinstance(message, Step):
            if time.monotonic() - self.written_at >= INTERVALS[self.terminal]:
                self._show(self.line())
        elif isinstance(message, Data):
            self._tell_data(message)
        elif isinstance(message, Evaluated):
            seconds = message.ended - message.began
            scores = {"accuracy": message.accuracy, "exact match": message.exact_match, "F1": message.f1}
            more = "".join(f", {name} {value:.4f}" for name, value in scores.items() if value is not None)
            self.note(f"evaluated after {message.steps} steps: loss {message.loss:.4f}{more} ({seconds:.1f} s)")
        elif isinstance(message, Trial):
            self.note(f"tried {significant(message.rate)} requests/s: {message.reason or 'the limits hold'}")
        elif isinstance(message, Skipped):
            self.skipped += 1
            if self.skipped == 1:
                self.note(f"skipping {message.path}, it cannot be read; the result counts all that is skipped")

    def beat(self, processes: Sequence[int]) -> None:
        """Show that a run lives, at limited intervals; `processes` do it. Called whether or not there is news."""
        now = time.monotonic()
        if now - self.fed_at >= FEED_INTERVAL:
            self._feed(processes)
        if self.pace.phase not in STEPPED and now - self.written_at >= LIFE[self.terminal]:
            self._show(self.pace.title)

    def end(self) -> None:
        """Clear the line of a run that has ended."""
        self._put(self._rewind())

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self._put(f"{self._rewind()}sifmark: {printable(text)}\n")

    def line(self) -> str:
        """Return phase and step; with timed steps also throughput and time left, and whether the run waits for data."""
        pace, total = self.pace, self.configuration.steps
        number = "" if pace.phase == "compile" else f"step {pace.steps}{f'/{total}' if total else ''}"
        parts = [f"{pace.title} {self._bar()}{number}".rstrip()]
        throughput, left = pace.throughput, pace.left()
        if throughput is not None:
            curve = bars(self.rates, self.stream) if self.terminal else ""
            parts.append(f"{significant(throughput)} {pace.unit}/s{curve and f' {curve}'}")
        if left is not None:
            parts.append(f"{duration_text(left)} left")
            if pace.wait > INPUT_BOUND * pace.seconds:
                parts.append(f"input-bound: {pace.wait / pace.seconds:.0%} of the time waits for data")
        return ", ".join(parts)

    def _feed(self, processes: Sequence[int]) -> None:
        self.fed_at = time.monotonic()
        if self.feed.is_read:
            mib = memory.resident_mib(processes) if processes else None
            self.feed.send(self.pace.as_json(watts=self.watts(), memory_mib=mib))
        elif self.terminal and (rate := self.pace.rate()) is not None:
            self.rates.append(rate)

    def _tell_data(self, data: Data) -> None:
        """Describe the data at a path; synthetic data need no description."""
        if self.configuration.data_path is None:
            return
        classes = "" if data.classes is None else f", {data.classes} classes" if data.classes > 1 else ", one class"
        part = f", of {data.part}" if data.part else ""
        self.note(f"data are {self.configuration.data}: {data.samples} samples{classes}{part}")
        if data.classes == 1:
            self.note("with one class, loss and accuracy mean nothing")

    def _bar(self) -> str:
        if not self.terminal:
            return ""
        filled = int(self.pace.share() * BAR)
        return f"[{'#' * filled}{'.' * (BAR - filled)}] "

    def _show(self, text: str) -> None:
        if self.feed.is_read:
            return
        self.written_at = time.monotonic()
        if self.terminal:
            self._put(self._rewind() + text[: shutil.get_terminal_size().columns - 1])
        else:
            self.note(text)

    def _rewind(self) -> str:
        return "\r\x1b[2K" if self.terminal else ""

    def _put(self, text: str) -> None:
        write_now(self.stream, text)
