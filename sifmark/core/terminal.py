"""What commands write to a terminal or a log: answers on stdout; progress, warnings and errors on stderr."""

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TextIO

from sifmark.core.console import Reporter, Step, align_columns, printable, report_to

# Imported where there is a table or a terminal to draw on: commands with nothing to draw should not wait for it.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

HEARTBEAT = 10.0  # seconds between two lines about the same step without a terminal
COLORS = ("auto", "always", "never")
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
    """Choose how much is written, and whether in colour: auto means on a terminal, unless NO_COLOR is set.

    What the library reports is written too from then on.
    """
    _mode.quiet, _mode.verbose, _mode.color = quiet, verbose, color
    _console.cache_clear()
    report_to(TerminalReporter())


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


class ShownStep(Step):
    """A step that is shown: at once on a terminal, every HEARTBEAT seconds in a log."""

    def __init__(self, title: str, spinner: "Status | None") -> None:
        super().__init__(title)
        self._reported = self.started
        self._spinner = spinner

    def show(self, text: str) -> None:
        """Show how far the step is."""
        if self._spinner is not None:
            self._spinner.update(f"{_plain(self.title)} [dim]{_plain(text)}[/dim]")
        elif time.monotonic() - self._reported >= HEARTBEAT:
            self._reported = time.monotonic()
            status(f"  {self.title}: {self.seconds:.0f} s, {text}")


@contextmanager
def step(title: str, drawn: bool = False) -> Iterator[Step]:
    """Announce a piece of work, and report how long it took; a failure is reported by its error.

    With `drawn` something else shows meanwhile how far it is.
    """
    if not drawn and sys.stderr.isatty() and not _mode.quiet:
        with _console(stderr=True).status(_plain(title)) as spinner:
            current = ShownStep(title, spinner)
            yield current
    else:
        status(f"- {title} ...")
        current = ShownStep(title, None)
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
    """Write a warning to stderr, also if this process is quiet; on a terminal it is folded between words."""
    word, lines = "warning:", f"warning: {text}".splitlines()
    if width := _width(sys.stderr):
        folded = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        lines = [piece for line in lines for piece in folded.wrap(line)]
    _write_error("\n".join(lines).replace(word, paint(word, stderr=True), 1))


def fail(first: str, *rest: str) -> None:
    """Write the lines of an error to stderr, also if this process is quiet."""
    head, colon, cause = first.partition(" ")
    _write_error("\n".join([f"{paint(head, stderr=True)}{colon}{cause}", *rest]))


class TerminalReporter(Reporter):
    """Writes what the library reports."""

    def status(self, text: str) -> None:
        """Write a line to stderr, unless this process is quiet."""
        status(text)

    def warn(self, text: str) -> None:
        """Write a warning to stderr."""
        warn(text)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Announce a piece of work, and write how long it took."""
        with step(title) as current:
            yield current


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
    for line in align_columns([columns, *cells], right, partial(paint, stderr=stderr), _width(stream)):
        stream.write(f"{line}\n")


def output_width() -> int | None:
    """Return how many columns the terminal of stdout has, or None if stdout is no terminal."""
    return _width(sys.stdout)


def _width(stream: TextIO) -> int | None:
    return shutil.get_terminal_size().columns if stream.isatty() else None


def output_can_show(text: str) -> bool:
    """Return whether the encoding of stdout has the characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def output_count() -> int:
    """Return how many times this process has written an answer to stdout."""
    return _mode.outputs


def _count_output() -> None:
    _mode.outputs += 1


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
