"""Messages for people, on standard error."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Iterator, Sequence, TextIO

from entrypoints.system.feed import VARIABLE

BARS = "▁▂▃▄▅▆▇█"
NAME = "sifmark: "  # before each line for people
NARROWEST = 50  # columns of a terminal for which lines are folded


def status(text: str) -> None:
    """Write one line for people."""
    write_now(sys.stderr, f"{NAME}{printable(text)}\n")


def columns() -> int | None:
    """Return how many columns a line of `status` has on the terminal, here or of a host that draws; None elsewhere."""
    width = os.environ.get("COLUMNS", "") if VARIABLE in os.environ else ""
    if sys.stderr.isatty():
        width = str(os.get_terminal_size(sys.stderr.fileno()).columns)
    return int(width) - len(NAME) if width.isdecimal() and int(width) >= NARROWEST else None


def folded(line: str, indent: int, width: int | None) -> list[str]:
    """Return a line in pieces of at most `width` columns, broken between words; all but the first are indented."""
    if width is None:
        return [line]
    indentation = " " * indent
    return textwrap.wrap(line, width, subsequent_indent=indentation, break_long_words=False, break_on_hyphens=False)


def fail(cause: str, remedy: str, code: str) -> None:
    """Write an error in the form of the host's: cause and code, then the remedy."""
    text = f"error: {cause} [{code}]" + (f"\n  remedy: {remedy}" if remedy else "")
    write_now(sys.stderr, "".join(f"{printable(line)}\n" for line in text.split("\n")))


def printable(text: str) -> str:
    """Return one line that is safe on any terminal: what does not print, as in file names, is spelled out."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def bars(values: Sequence[float], stream: TextIO) -> str:
    """Return numbers as a curve of one character each, from zero up; nothing where a stream cannot show it."""
    try:
        BARS.encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ""
    top = max(values, default=0.0)
    return "".join(BARS[int(value / top * (len(BARS) - 1))] for value in values) if top > 0 else ""


def write_now(stream: TextIO, text: str) -> None:
    """Write at once. If the reader is gone, the run goes on, and what Python flushes at exit is discarded.

    What is no Unicode, as in foreign file names, is escaped: the stream that replaces a closed one does not do that.
    """
    try:
        stream.write(text.encode("utf-8", "backslashreplace").decode())
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
