"""What a person sees while the host side works: timed steps on stderr, tables on stdout."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

# Imported where there is a table or a terminal to draw on: verbs that find nothing to do should not wait for it.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_NUMBERS = ("parameters", "GFLOP/unit")  # columns that are aligned to the right
HEARTBEAT = 10.0  # seconds between two lines about the same step where there is no terminal
_outputs = 0


class Step:
    """One piece of work in progress."""

    def __init__(self, title: str, status: "Status | None") -> None:
        self.title = title
        self.started = self._spoke = time.monotonic()
        self._status = status

    def detail(self, line: str) -> None:
        """Say where the step stands: at once on a terminal, now and then in a log."""
        text = line.strip()[:100]
        if not text:
            return
        if self._status is not None:
            self._status.update(f"{_plain(self.title)} [dim]{_plain(text)}[/dim]")
        elif time.monotonic() - self._spoke >= HEARTBEAT:
            self._spoke = time.monotonic()
            status(f"  {self.title}: {self.seconds:.0f} s, {text}")

    @property
    def seconds(self) -> float:
        """Time since the step began, in seconds."""
        return time.monotonic() - self.started


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Announce a piece of work, and say how long it took; a failure is left to its error."""
    if sys.stderr.isatty():
        with _console(stderr=True).status(_plain(title)) as spinner:
            current = Step(title, spinner)
            yield current
    else:
        status(f"- {title} ...")
        current = Step(title, None)
        yield current
    status(f"- {title}: {current.seconds:.1f} s")


def status(text: str) -> None:
    """A line for people, on stderr, taken literally."""
    if sys.stderr.isatty():  # where a step may be moving
        _console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        sys.stderr.write(f"{text}\n")


def output(text: str) -> None:
    """A line of the answer itself, on stdout, taken literally and never wrapped."""
    _count_output()
    sys.stdout.write(f"{text}\n")


def output_table(*columns: str, rows: Iterable[Sequence[Any]], aside: bool = False) -> None:
    """Rows under their columns, as every verb shows them: on stdout, or `aside` on stderr.

    On a terminal they are folded to fit; in a pipe a column is as wide as its words.
    """
    cells = [[printable(_cell(value)) for value in row] for row in rows]
    right = [column in _NUMBERS for column in columns]
    stream = sys.stderr if aside else sys.stdout
    if not aside:
        _count_output()
    if stream.isatty():
        _draw(columns, cells, right, _console(stderr=aside))
    else:
        stream.writelines(f"{line}\n" for line in align_columns([columns, *cells], right))


def output_count() -> int:
    """Return how many times this process has printed something on stdout."""
    return _outputs


def align_columns(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> Iterator[str]:
    """Rows as lines whose columns stand below each other, two blanks apart; those of `right` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    just = [str.rjust if to_right else str.ljust for to_right in right] or [str.ljust] * len(widths)
    for row in rows:
        yield "  ".join(put(cell, width) for put, cell, width in zip(just, row, widths, strict=True)).rstrip()


def printable(text: str) -> str:
    """One line that any terminal takes: what others wrote may hold escape sequences, newlines or half characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _count_output() -> None:
    global _outputs
    _outputs += 1


def _draw(columns: Sequence[str], rows: list[list[str]], right: list[bool], console: "Console") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, to_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if to_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_plain, row))
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


@cache
def _console(stderr: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
