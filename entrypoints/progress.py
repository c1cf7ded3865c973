"""What a person sees while a run goes on: a line that rewrites itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

from entrypoints.configuration import Configuration
from entrypoints.messages import Message, Phase, Skipped, Step

INTERVALS = {True: 0.2, False: 5.0}  # seconds between updates, on a terminal and elsewhere
INPUT_BOUND = 0.1  # share of time spent waiting for data from which a run is called so
BAR = 20  # characters
TITLES = {
    "import": "importing the framework",
    "data": "preparing data",
    "model": "building the model",
    "compile": "first step",
    "warmup": "warming up",
    "steady": "measuring",
}


class Progress:
    """Follows the messages of one run and writes to `stream`."""

    def __init__(self, configuration: Configuration, unit: str, stream: TextIO) -> None:
        self.configuration, self.unit, self.stream = configuration, unit, stream
        self.terminal = stream.isatty()
        self.phase = ""
        self.steps = 0
        self.timed_units, self.timed_seconds, self.timed_wait = 0, 0.0, 0.0
        self.written = 0.0
        self.skips = 0

    def follow(self, message: Message) -> None:
        """Take one message in and show what changed, not too often."""
        if isinstance(message, Phase):
            self.phase = message.name
            self._write(TITLES[message.name], always=not self.terminal)
        elif isinstance(message, Step):
            self._count(message)
            self._write(self.line())
        elif isinstance(message, Skipped):
            self.skips += 1
            if self.skips == 1:
                self.note(f"cannot read {message.path}: skipped, as all others like it; the result counts them")

    def note(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self.stream.write(f"sifmark: {text}\n")
        self.stream.flush()

    def finish(self, text: str) -> None:
        """The last line."""
        self.note(text)

    def line(self) -> str:
        """Phase, steps, throughput, time left, and whether data hold the run up."""
        parts = [f"{TITLES[self.phase]} {self._bar()}step {self._of_steps()}"]
        if self.timed_seconds:
            parts.append(f"{self.timed_units / self.timed_seconds:.1f} {self.unit}/s")
            parts.append(f"{self.left():.0f} s left")
            waiting = self.timed_wait / self.timed_seconds
            if waiting > INPUT_BOUND:
                parts.append(f"input-bound: {waiting:.0%} of the time waits for data")
        return ", ".join(parts)

    def left(self) -> float:
        """Seconds until the end at the pace of the timed steps so far."""
        steps, duration = self.configuration.steps, self.configuration.duration_seconds
        if duration is not None:
            return max(0.0, duration - self.timed_seconds)
        timed = self.steps - self.configuration.warmup_steps
        return self.timed_seconds / timed * ((steps or 0) - self.steps)

    def _count(self, step: Step) -> None:
        self.steps += 1
        if self.phase == "steady":
            self.timed_units += step.units
            self.timed_seconds += step.seconds
            self.timed_wait += step.wait

    def _of_steps(self) -> str:
        total = self.configuration.steps
        return f"{self.steps}/{total}" if total else str(self.steps)

    def _bar(self) -> str:
        steps, duration = self.configuration.steps, self.configuration.duration_seconds
        share = self.steps / steps if steps else self.timed_seconds / (duration or 1.0)
        filled = min(BAR, int(share * BAR))
        return f"[{'#' * filled}{'.' * (BAR - filled)}] " if self.terminal else ""

    def _write(self, text: str, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self.written < INTERVALS[self.terminal]:
            return
        self.written = now
        self._clear()
        self.stream.write(text if self.terminal else f"sifmark: {text}\n")
        self.stream.flush()

    def _clear(self) -> None:
        if self.terminal:
            self.stream.write("\r\x1b[2K")
