"""What a run has reported so far, and its words and graphs: for a day in as much memory as for a minute."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from sifmark.core.console import printable
from sifmark.engines.progress import RunProgress
from sifmark.live.graphs import Readings, Values
from sifmark.results.numbers import format_number, format_seconds

GAP = "  "


class Measured(NamedTuple):
    """A quantity of a run: name, values over time, latest value in words, and whether its scale begins at zero."""

    name: str
    values: Values
    text: str
    from_zero: bool = True


class ProgressHistory:
    """The runs of one image as they report: that which is in progress now, and its series."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.latest: RunProgress | None = None
        self._clock = clock
        self._reset()

    def add(self, progress: RunProgress) -> None:
        """Add what the run reports. Another run begins a new history."""
        if self.latest is None or progress.started != self.latest.started:
            self._reset()
        self.latest, self._reported_at = progress, self._clock()
        self.throughput.append(progress.rate)
        self.loss.append(progress.loss)
        self.power.append(progress.power_watts)
        self.memory.append(progress.memory_mib)

    @property
    def phase(self) -> str:
        """What the run does now, and its step."""
        run = self.latest
        if run is None:
            return "starting"
        total = "" if run.planned_steps is None else f"/{run.planned_steps}"
        return printable(f"{run.phase}, step {run.steps}{total}" if run.steps else run.phase)

    @property
    def remaining(self) -> str:
        """The time until the end in words; empty if it is not known."""
        seconds = None if self.latest is None else self.latest.seconds_left
        if seconds is None or not math.isfinite(seconds):
            return ""
        return f"{format_seconds(round(max(0.0, seconds - (self._clock() - self._reported_at))))} left"

    def measured(self) -> Iterator[Measured]:
        """Yield the quantities that the run has reported."""
        if run := self.latest:
            rate = run.rate if run.throughput is None else run.throughput
            yield from (
                Measured(name, series.values, f"{format_number(value)} {unit}".rstrip(), name != "loss")
                for name, series, value, unit in (
                    ("throughput", self.throughput, rate, f"{printable(run.unit)}/s"),
                    ("loss", self.loss, run.loss, ""),
                    ("power", self.power, run.power_watts, "W"),
                    ("memory", self.memory, run.memory_mib, "MiB"),
                )
                if value is not None
            )

    def _reset(self) -> None:
        self.throughput, self.loss, self.power, self.memory = Readings(), Readings(), Readings(), Readings()
        self._reported_at = 0.0


def title_of(progress: RunProgress) -> str:
    """Return what is run, in a line."""
    what = f"{progress.workload} {progress.task}, {progress.precision}, batch {progress.batch_size}"
    return printable(f"{what} on {progress.device}")


def fitting(parts: Sequence[str], width: int) -> str:
    """Return the first parts that fit beside each other, with a gap between them; empty ones are left out."""
    line = ""
    for part in filter(None, parts):
        longer = f"{line}{GAP}{part}" if line else part
        if line and cell_len(longer) > width:
            break
        line = longer
    return line


def cut(text: str, width: int, ascii_only: bool = False, style: str = "") -> Text:
    """Return a line of a view, shortened to a width. Nothing in a text is markup."""
    line = Text(text.rstrip(), style, no_wrap=True, overflow="crop" if ascii_only else "ellipsis", end="\n")
    line.truncate(max(1, width))
    return line
