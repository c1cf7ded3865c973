"""How far a run is and how fast, by its messages so far, and that as data for a host that draws it."""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone
from typing import Any

from entrypoints.contract.messages import Message, Phase, Step
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.planning.configuration import Configuration
from entrypoints.results.json_values import finite
from entrypoints.results.result import timestamp

TITLES = {
    "": "starting",
    "check": "checking correctness",
    "import": "importing the framework",
    "data": "preparing data",
    "model": "building the model",
    "compile": "first step",
    "warmup": "warming up",
    "steady": "measuring",
}
SILENCE = 3.0  # seconds
STEPPED = ("warmup", "steady")  # phases that report each step; of others, how long they have taken is all there is


class Pace:
    """Follows the messages of one run."""

    def __init__(self, configuration: Configuration, unit: str, phase: str = "") -> None:
        self.configuration, self.unit, self.phase = configuration, unit, phase
        self.of_sizes = configuration.task == MICROBENCHMARK
        self.started = datetime.now(timezone.utc)
        self.phase_began, self.window_seconds = time.monotonic(), 0.0  # by the clock: steps are not all that takes time
        self.steps = 0
        self.timed, self.units, self.seconds, self.wait = 0, 0, 0.0, 0.0  # of the timed window so far
        self.loss: float | None = None
        self._recent_units, self._recent_seconds = 0, 0.0  # since somebody asked for the rate

    def follow(self, message: Message) -> None:
        """Take one message into account."""
        if isinstance(message, Phase):
            self.phase, self.phase_began = message.name, time.monotonic()
        elif isinstance(message, Step):
            self.steps += 1
            self.loss = message.loss
            self._recent_units += message.units
            self._recent_seconds += message.seconds
            if self.phase == "steady":
                self.window_seconds = time.monotonic() - self.phase_began
                self.timed += 1
                self.units += message.units
                self.seconds += message.seconds
                self.wait += message.wait

    @property
    def title(self) -> str:
        """The phase in words, with its seconds so far if it has reported nothing for some."""
        seconds = time.monotonic() - self.phase_began
        is_silent = self.phase not in STEPPED and seconds >= SILENCE
        return f"{TITLES[self.phase]}, {seconds:.0f} s" if is_silent else TITLES[self.phase]

    @property
    def throughput(self) -> float | None:
        """Units per second of the timed window so far; None of a micro-benchmark, whose sweep is of all sizes."""
        return self.units / self.seconds if self.seconds and not self.of_sizes else None

    def rate(self) -> float | None:
        """Return units per second of the steps since the last call; None if there were none."""
        units, seconds = self._recent_units, self._recent_seconds
        self._recent_units, self._recent_seconds = 0, 0.0
        return units / seconds if seconds and not self.of_sizes else None

    def left(self) -> float | None:
        """Return the seconds until the end, at the pace so far of the timed window, by the clock."""
        if not self.seconds:
            return None
        if self.configuration.steps is None:
            return max(0.0, (self.configuration.duration_seconds or 0.0) - self.seconds)
        pace = max(self.seconds, self.window_seconds) / self.timed
        return pace * max(0, self.configuration.steps - self.steps)

    def share(self) -> float:
        """Return which part of the run is done: of its steps, or of the duration of the timed window."""
        steps, duration = self.configuration.steps, self.configuration.duration_seconds
        return min(1.0, self.steps / steps if steps else self.seconds / (duration or 1.0))

    def as_json(self, watts: float | None = None, memory_mib: float | None = None) -> dict[str, Any]:
        """Return a line of schemas/progress-1.0.json, with power and memory."""
        resolved = self.configuration
        return {
            "schema_version": "1.0",
            "started": timestamp(self.started),
            "workload": resolved.workload,
            "task": resolved.task,
            "device": resolved.device,
            "precision": resolved.precision,
            "batch_size": resolved.batch_size,
            "phase": self.title,
            "steps": self.steps,
            "planned_steps": resolved.steps,
            "planned_seconds": resolved.duration_seconds,
            "share": self.share(),
            "seconds_left": _plain(self.left()),
            "unit": self.unit,
            "throughput": _plain(self.throughput),
            "rate": _plain(self.rate()),
            "loss": self.loss if self.loss is None or math.isfinite(self.loss) else str(self.loss),
            "power_watts": _plain(watts),
            "memory_mib": _plain(memory_mib),
        }


def _plain(value: float | None) -> float | None:
    """Return a number that JSON has and nobody reads with more digits."""
    number = finite(value)
    return number if number is None else float(f"{number:.6g}")
