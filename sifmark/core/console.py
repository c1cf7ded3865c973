"""What a person sees on a terminal or in a log: timed steps and progress on stderr, answers and tables on stdout."""

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sifmark.core.files import human_size

# Imported where there is a table or a terminal to draw on: commands with nothing to draw should not wait for it.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

HEARTBEAT = 10.0  # seconds between two lines about the same step without a terminal
WATCHED_EVERY = 1.0  # seconds between two looks at a growing file
COLORS = ("auto", "always", "never")
# What begins links and code in Markdown, and at the beginning of a line headings, lists, quotes and fences.
_MARKDOWN = re.compile(r"[\\\[`]|^[#>|~=+*_-]")
_GREEN, _YELLOW, _RED = 32, 33, 31  # SGR codes, ECMA-48
# The colours of words that say how something is.
_STYLES = {
    **dict.fromkeys(("built", "passed", "valid", "completed", "verified", "equal", "faster"), _GREEN),
    **dict.fromkeys(("stale", "skipped", "warning", "unverified", "warning:", "missing"), _YELLOW),
    **dict.fromkeys(("failed", "invalid", "contradicted", "error:", "differs", "slower"), _RED),
}


@dataclass
class _Mode:
    """How this process writes: set once by the command line."""

    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    outputs: int = 0  # answers that have been written


_mode = _Mode()


def configure(*, quiet: bool = False, verbose: bool = False, color: str = "auto") -> None:
    """Choose how much is written, and whether in colour: auto means on a terminal, unless NO_COLOR is set."""
    _mode.quiet, _mode.verbose, _mode.color = quiet, verbose, color
    _console.cache_clear()


def is_quiet() -> bool:
    """Return whether only answers, warnings and errors are written."""
    return _mode.quiet


def can_draw() -> bool:
    """Return whether stderr is a terminal on which something may be drawn again and again."""
    return not _mode.quiet and sys.stderr.isatty() and not terminal().is_dumb_terminal


def is_verbose() -> bool:
    """Return whether details are asked for."""
    return _mode.verbose


def terminal() -> "Console":
    """Return the console of stderr. All that is drawn shares it, so that nothing is written into a drawing."""
    return _console(stderr=True)


class Step:
    """One piece of work in progress."""

    def __init__(self, title: str, status: "Status | None") -> None:
        self.title = title
        self.started = self._reported = time.monotonic()
        self._status = status

    def detail(self, line: str) -> None:
        """Show how far the step is: at once on a terminal, every HEARTBEAT seconds in a log."""
        text = line.strip()[:100]
        if not text:
            return
        if self._status is not None:
            self._status.update(f"{_plain(self.title)} [dim]{_plain(text)}[/dim]")
        elif time.monotonic() - self._reported >= HEARTBEAT:
            self._reported = time.monotonic()
            status(f"  {self.title}: {self.seconds:.0f} s, {text}")

    def transferred(self, size: int, total: int = 0) -> None:
        """Show how many bytes are done, of a total if that is known."""
        self.detail(human_size(size) + (f" of {human_size(total)}" if total else ""))

    @contextmanager
    def watching(self, file: Path) -> Iterator[None]:
        """Show the size of a file that another program writes meanwhile."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(WATCHED_EVERY):
                if file.exists():
                    self.transferred(file.stat().st_size)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    @property
    def seconds(self) -> float:
        """Time since the step began, in seconds."""
        return time.monotonic() - self.started


@contextmanager
def step(title: str, drawn: bool = False) -> Iterator[Step]:
    """Announce a piece of work, and report how long it took; a failure is reported by its error.

    With `drawn` something else shows meanwhile how far it is.
    """
    if not drawn and sys.stderr.isatty() and not _mode.quiet:
        with _console(stderr=True).status(_plain(title)) as spinner:
            current = Step(title, spinner)
            yield current
    else:
        status(f"- {title} ...")
        current = Step(title, None)
        yield current
    status(f"- {title}: {current.seconds:.1f} s")


def status(text: str) -> None:
    """Write a line for people to stderr, without markup, unless this process is quiet."""
    if not _mode.quiet:
        _write_error(text)


def detail(text: str) -> None:
    """Write a line to stderr if details are asked for."""
    if _mode.verbose:
        _write_error(text)


def warn(text: str) -> None:
    """Write a warning to stderr, also if this process is quiet."""
    _write_error(f"{paint('warning:', stderr=True)} {text}")


def fail(first: str, *rest: str) -> None:
    """Write the lines of an error to stderr, also if this process is quiet."""
    head, colon, cause = first.partition(" ")
    _write_error("\n".join([f"{paint(head, stderr=True)}{colon}{cause}", *rest]))


def ask(question: str) -> bool:
    """Ask a question on the terminal and return whether the answer is yes."""
    sys.stderr.write(f"{question}[y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def paint(text: str, stderr: bool = False, word: str = "") -> str:
    """Return a text in the colour of the word that it is, or of `word`, if colours are wanted."""
    code = _STYLES.get(word or text)
    return f"\x1b[{code}m{text}\x1b[0m" if code and _colored(sys.stderr if stderr else sys.stdout) else text


def _write_error(text: str) -> None:
    if sys.stderr.isatty():  # where a spinner may be running
        from rich.text import Text

        _console(stderr=True).print(Text.from_ansi(text), highlight=False, soft_wrap=True)
    else:
        sys.stderr.write(f"{text}\n")


def _colored(stream: TextIO) -> bool:
    if _mode.color == "auto":
        return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return _mode.color == "always"


def output(text: str) -> None:
    """Write a line of the answer to stdout, without markup and never wrapped."""
    _count_output()
    sys.stdout.write(f"{text}\n")


def output_table(*columns: str, rows: Iterable[Sequence[Any]], stderr: bool = False) -> None:
    """Write rows under their columns to stdout, or to stderr unless this process is quiet. Numbers end together.

    On a terminal long cells are folded to fit; in a pipe each column is as wide as its longest cell.
    """
    if stderr and _mode.quiet:
        return
    values = [list(row) for row in rows]
    right = [bool(column) and all(map(_is_number, column)) for column in zip(*values, strict=True)]
    cells = [[printable(_cell(value)) for value in row] for row in values]
    stream = sys.stderr if stderr else sys.stdout
    if not stderr:
        _count_output()
    if stream.isatty():
        _draw(columns, cells, right, _console(stderr=stderr))
    else:
        for number, line in enumerate(align_columns([columns, *cells], right)):
            stream.write(f"{_paint_cells(line, cells[number - 1], stderr) if number else line}\n")


def output_count() -> int:
    """Return how many times this process has written an answer to stdout."""
    return _mode.outputs


def align_columns(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> Iterator[str]:
    """Yield rows as lines with aligned columns, two blanks apart; the columns that `right` marks end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    just = [str.rjust if to_right else str.ljust for to_right in right] or [str.ljust] * len(widths)
    for row in rows:
        yield "  ".join(put(cell, width) for put, cell, width in zip(just, row, widths, strict=True)).rstrip()


def markdown_lines(rows: Iterable[Sequence[str]], trusted: bool = False) -> Iterator[str]:
    """Yield a Markdown table; the first row is its header.

    Cells are texts of anybody, in which no HTML, link or image begins, unless they are `trusted` to be Markdown.
    """
    for number, row in enumerate(rows):
        yield "| " + " | ".join(_markdown_cell(cell) if trusted else _text_cell(cell) for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


def _markdown_cell(text: str) -> str:
    return printable(text).replace("|", "\\|")


def _text_cell(text: str) -> str:
    return _markdown_cell(text.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\("))


def markdown_text(text: str) -> str:
    """Return a text of anybody as a line of Markdown outside of tables: no HTML, link, image, code or heading in it."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", printable(text).lstrip())
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def printable(text: str) -> str:
    """Return one line that is safe on any terminal: escape sequences, newlines and lone surrogates are spelled out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _count_output() -> None:
    _mode.outputs += 1


def _draw(columns: Sequence[str], rows: list[list[str]], right: list[bool], console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, to_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if to_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, _rich_style(cell)) for cell in row))
    console.print(table)


def _rich_style(cell: str) -> str:
    code = _STYLES.get(cell)
    return {_GREEN: "green", _YELLOW: "yellow", _RED: "red"}.get(code or 0, "")


def _paint_cells(line: str, cells: Sequence[str], stderr: bool) -> str:
    """Return an aligned line with its states in colour."""
    for cell in cells:
        if cell in _STYLES:
            line = line.replace(cell, paint(cell, stderr), 1)
    return line


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if value is None:
        return ""
    return f"{value:,}" if _is_number(value) else str(value)


@cache
def _console(stderr: bool) -> "Console":
    from rich.console import Console

    wanted = {"auto": None, "always": True, "never": False}[_mode.color]
    return Console(stderr=stderr, force_terminal=wanted or None, no_color=None if wanted is None else not wanted)


def _plain(text: str) -> str:
    """Return text in which rich sees no markup."""
    return text.replace("[", r"\[")
