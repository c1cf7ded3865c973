"""The words and numbers of a view: what a run is, what it does, how much it does, needs and has left."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from sifmark.core.console import printable
from sifmark.engines.progress import RunProgress
from sifmark.live.course import Course
from sifmark.live.graphs import Values
from sifmark.results.numbers import format_number, format_seconds

GAP = "  "


class Measured(NamedTuple):
    """A quantity of a run: its name, its course, its latest value in words, and whether its scale begins at zero."""

    name: str
    values: Values
    text: str
    from_zero: bool = True


def title_of(progress: RunProgress) -> str:
    """Return what is run, in a line."""
    text = (
        f"{progress.workload} {progress.task}, {progress.precision}, batch {progress.batch_size} on {progress.device}"
    )
    return printable(text)


def phase_of(progress: RunProgress) -> str:
    """Return what a run does now, and its step."""
    total = "" if progress.planned_steps is None else f"/{progress.planned_steps}"
    return printable(f"{progress.phase}, step {progress.steps}{total}" if progress.steps else progress.phase)


def left_of(course: Course) -> str:
    """Return the time until the end in words; nothing if it is not known."""
    seconds = course.seconds_left()
    return "" if seconds is None or not math.isfinite(seconds) else f"{format_seconds(round(seconds))} left"


def measured_in(course: Course) -> Iterator[Measured]:
    """Yield what a run has measured so far."""
    progress = course.latest
    if progress is None:
        return
    now = progress.throughput if progress.throughput is not None else progress.rate
    yield Measured("throughput", course.throughput.values, _amount(now, f"{printable(progress.unit)}/s"))
    yield Measured("loss", course.loss.values, _amount(progress.loss, ""), from_zero=False)
    yield Measured("power", course.power.values, _amount(progress.power_watts, "W"))
    yield Measured("memory", course.memory.values, _amount(progress.memory_mib, "MiB"))


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


def padded(text: str, width: int, ascii_only: bool = False) -> str:
    """Return a text that takes exactly so many columns."""
    line = cut(text, width, ascii_only)
    line.pad_right(width - line.cell_len)
    return line.plain


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{format_number(value)} {unit}".rstrip()
