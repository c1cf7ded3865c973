"""The progress of a run: a line that rewrites itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from entrypoints.contract.messages import Data, Evaluated, Message, Phase, Skipped, Step
from entrypoints.planning.configuration import Configuration
from entrypoints.runs.report import duration_text, significant
from entrypoints.system.console import write_now

INTERVALS = {True: 0.2, False: 5.0}  # seconds between updates, on a terminal and elsewhere
INPUT_BOUND = 0.1  # fraction of time waiting for data from which a run is called input-bound
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
        self.steps = self.skipped = 0
        self.timed, self.units, self.seconds, self.wait = 0, 0, 0.0, 0.0  # of the timed window so far
        self.written_at = 0.0

    def follow(self, message: Message) -> None:
        """Process one message and show what changed, at limited intervals."""
        if isinstance(message, Phase):
            self.phase = message.name
            self._show(TITLES[message.name])
        elif isinstance(message, Step):
            self._count(message)
            if time.monotonic() - self.written_at >= INTERVALS[self.terminal]:
                self._show(self.line())
        elif isinstance(message, Data):
            self._tell_data(message)
        elif isinstance(message, Evaluated):
            seconds = message.ended - message.began
            scores = {"accuracy": message.accuracy, "exact match": message.exact_match, "F1": message.f1}
            more = "".join(f", {name} {value:.4f}" for name, value in scores.items() if value is not None)
            self.note(f"evaluated after {message.steps} steps: loss {message.loss:.4f}{more} ({seconds:.1f} s)")
        elif isinstance(message, Skipped):
            self.skipped += 1
            if self.skipped == 1:
                self.note(f"skipping {message.path}, it cannot be read; the result counts all that is skipped")

    def end(self) -> None:
        """Clear the line of a run that has ended."""
        self._put(self._rewind())

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self._put(f"{self._rewind()}sifmark: {text}\n")

    def line(self) -> str:
        """Return phase and step; with timed steps also throughput, time left, and whether the run waits for data."""
        total = self.configuration.steps
        number = "" if self.phase == "compile" else f"step {self.steps}{f'/{total}' if total else ''}"
        parts = [f"{TITLES[self.phase]} {self._bar()}{number}".rstrip()]
        if self.seconds:
            parts += [f"{significant(self.units / self.seconds)} {self.unit}/s", f"{duration_text(self.left())} left"]
            if self.wait > INPUT_BOUND * self.seconds:
                parts.append(f"input-bound: {self.wait / self.seconds:.0%} of the time waits for data")
        return ", ".join(parts)

    def left(self) -> float:
        """Return the seconds until the end, at the pace of the timed steps so far."""
        if self.configuration.steps is None:
            return max(0.0, (self.configuration.duration_seconds or 0.0) - self.seconds)
        return self.seconds / self.timed * (self.configuration.steps - self.steps)

    def _tell_data(self, data: Data) -> None:
        """Describe the data at a path; synthetic data need no description."""
        if self.configuration.data_path is None:
            return
        classes = "" if data.classes is None else f", {data.classes} classes" if data.classes > 1 else ", one class"
        part = f", of {data.part}" if data.part else ""
        self.note(f"data are {self.configuration.data}: {data.samples} samples{classes}{part}")
        if data.classes == 1:
            self.note("with one class, loss and accuracy mean nothing")

    def _count(self, step: Step) -> None:
        self.steps += 1
        if self.phase == "steady":
            self.timed += 1
            self.units += step.units
            self.seconds += step.seconds
            self.wait += step.wait

    def _bar(self) -> str:
        if not self.terminal:
            return ""
        steps, duration = self.configuration.steps, self.configuration.duration_seconds
        share = self.steps / steps if steps else self.seconds / (duration or 1.0)
        filled = min(BAR, int(share * BAR))
        return f"[{'#' * filled}{'.' * (BAR - filled)}] "

    def _show(self, text: str) -> None:
        self.written_at = time.monotonic()
        if self.terminal:
            self._put(self._rewind() + text[: shutil.get_terminal_size().columns - 1])
        else:
            self.note(text)

    def _rewind(self) -> str:
        return "\r\x1b[2K" if self.terminal else ""

    def _put(self, text: str) -> None:
        write_now(self.stream, text)
