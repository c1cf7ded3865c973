"""What the library tells people: progress and warnings by way of a reporter, and texts that are safe to show."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import zip_longest
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import human_size

WATCHED_EVERY = 1.0  # seconds between two looks at a growing file
GAP = 2  # blanks between the columns of a table
LEAST = 3  # columns of a terminal that a column of a table gets
_WORDS = re.compile(r"\s+|\S+")  # and what is between them
_PIECES = re.compile(rf"\[[\d.,e+-]+, [\d.,e+-]+\]\S*|{_WORDS.pattern}")  # intervals are in one piece
# What begins links and code in Markdown, and at the beginning of a line headings, lists, quotes and fences.
_MARKDOWN = re.compile(r"[\\\[`]|^[#>|~=+*_-]")


class Step:
    """A piece of work in progress. A reporter that shows it overrides `show`."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()

    def show(self, text: str) -> None:
        """Show how far the step is."""

    def detail(self, line: str) -> None:
        """Report how far the step is; a line without words is left out."""
        if text := line.strip()[:100]:
            self.show(text)

    def transferred(self, size: int, total: int = 0) -> None:
        """Report how many bytes are done, of a total if that is known."""
        self.detail(human_size(size) + (f" of {human_size(total)}" if total else ""))

    @contextmanager
    def watching(self, file: Path) -> Iterator[None]:
        """Report the size of a file that another program writes meanwhile."""
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


class Reporter:
    """Takes what the library reports while it works. This one shows nothing."""

    def status(self, text: str) -> None:
        """Take a line for people."""

    def warn(self, text: str) -> None:
        """Take a warning."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Take the beginning and the end of a piece of work; a failure is reported by its error."""
        yield Step(title)


_reporter = Reporter()  # of the process: work is done in threads, which have no context of their caller


def report_to(reporter: Reporter) -> Reporter:
    """Let the library report to another reporter from now on, and return the former."""
    global _reporter
    former, _reporter = _reporter, reporter
    return former


def status(text: str) -> None:
    """Report a line for people."""
    _reporter.status(text)


def warn(text: str) -> None:
    """Report a warning."""
    _reporter.warn(text)


def step(title: str) -> AbstractContextManager[Step]:
    """Report a piece of work, and how long it took."""
    return _reporter.step(title)


def align_columns(
    rows: Sequence[Sequence[str]],
    right: Sequence[bool] = (),
    paint: Callable[[str], str] = str,
    width: int | None = None,
) -> Iterator[str]:
    """Yield rows as lines with aligned columns, two blanks apart; the columns that `right` marks end together.

    `paint` colours the cells of all rows but the first. With a `width` no line is longer: the widest columns are folded
    to fit, between words where that suffices, and where there are more columns than that each cell has a line of its
    own behind the head of its column.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(text_width, column)) for column in columns]
    if width is not None:
        room = width - GAP * (len(widths) - 1)
        if room < LEAST * len(widths):
            yield from _records(rows, width)
            return
        words = [max(text_width(word) for cell in column for word in cell.split() or [""]) for column in columns]
        widths = _narrowed(widths, room, words if sum(words) <= room else [1] * len(words))
    to_right = right or [False] * len(widths)
    for number, row in enumerate(rows):
        pieces = [fold(cell, room) for cell, room in zip(row, widths, strict=True)]
        for cells in zip_longest(*pieces, fillvalue=""):
            padded = []
            for cell, room, ends in zip(cells, widths, to_right, strict=True):
                shown, blanks = paint(cell) if number else cell, " " * (room - text_width(cell))
                padded.append(f"{blanks}{shown}" if ends else f"{shown}{blanks}")
            yield (" " * GAP).join(padded).rstrip()


def has_room(rows: Sequence[Sequence[str]], width: int | None, besides: int = 0) -> bool:
    """Return whether no column of a table has to be folded for a terminal of this width; None is one without end.

    `besides` are columns of the terminal for something else.
    """
    if width is None:
        return True
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1) + besides <= width


def fold_first(rows: Sequence[Sequence[str]], width: int, least: int) -> list[list[str]]:
    """Return a table whose first column has what others leave of a width, at least some columns of a terminal.

    More of a cell is in rows of its own below. One that repeats that above it, below the head, is left empty.
    """
    first, *others = (max(map(text_width, column)) for column in zip(*rows, strict=True))
    room = max(min(first, width - sum(others) - GAP * len(others)), least)
    table: list[list[str]] = []
    for number, row in enumerate(rows):
        same = number > 1 and row[0] == rows[number - 1][0]
        begin, *more = [""] if same else fold(row[0], room)
        table.append([begin, *row[1:]])
        table += [[piece, *[""] * (len(row) - 1)] for piece in more]
    return table


def fold(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a text in lines of at most `width` columns of a terminal: broken at blanks, else within words.

    An interval such as `[46.5, 149.1]` is a word. All lines but the first begin with `indent` blanks.
    """
    if text_width(text) <= width:
        return [text]
    indent = min(indent, max(width - LEAST, 0))
    lines, line, gap = [], "", ""
    for piece in _pieces(text, width - indent):
        if piece.isspace():
            gap = piece
            continue
        word = piece
        while text_width(line + gap + word) > width:
            room = width - text_width(line + gap)
            if line.strip() and (text_width(word) <= width - indent or room < LEAST):
                lines.append(line)
                line, gap = " " * indent, ""
            else:
                before = line + gap if room >= LEAST else line
                head = _head(word, width - text_width(before))
                lines.append(before + head)
                line, gap, word = " " * indent, "", word[len(head) :]
        line, gap = line + gap + word, ""
    return [*lines, line] if line.strip() else lines


def _pieces(text: str, width: int) -> Iterator[str]:
    """Yield words, intervals that fit, and what is between them."""
    for piece in _PIECES.findall(text):
        yield from [piece] if text_width(piece) <= width else _WORDS.findall(piece)


def _head(word: str, width: int) -> str:
    """Return as many characters of a word as fit, at least one."""
    taken = 0
    for number, character in enumerate(word):
        taken += text_width(character)
        if taken > width:
            return word[: max(number, 1)]
    return word


def _narrowed(widths: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """Return widths with the widest cut to the same one, but none to less than its least, so that together they fit."""
    most = max(widths, default=0)
    narrowed = list(widths)
    while sum(narrowed) > room and most > 1:
        most -= 1
        narrowed = [max(min(width, most), low) for width, low in zip(widths, least, strict=True)]
    return narrowed


def _records(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield each cell of a table behind the head of its column, with a blank line between rows."""
    for number, row in enumerate(rows[1:]):
        if number:
            yield ""
        for head, cell in zip(rows[0], row, strict=True):
            yield from fold(f"{head}: {cell.strip()}", width, indent=2)


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a character that is wide in East Asian scripts."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # here: most texts need no table of widths

    return cell_len(text)


def markdown_lines(rows: Iterable[Sequence[str]], trusted: bool = False) -> Iterator[str]:
    """Yield a Markdown table; the first row is its header.

    Cells are escaped as untrusted text, unless they are `trusted` to be Markdown.
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
    """Escape untrusted text for a line of Markdown outside of tables: no HTML, link, image, code or heading."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", printable(text).lstrip())
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 run`, `3 runs`. `many` is the plural if it is not the noun with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def comma_separated(text: str) -> list[str]:
    """Return the words of a list with commas, without blanks around them; empty ones are left out."""
    return [word.strip() for word in text.split(",") if word.strip()]


def fraction(text: str, option: str) -> float:
    """Return a fraction that an option has, `2%` or `0.02`. Raises UsageError if it is no number from 0 to below 1."""
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{option} {text!r} is no fraction", "for example 2%, or 0.02", code="invalid-option")
    return value


def printable(text: str) -> str:
    """Return one line that is safe on any terminal: escape sequences, newlines and lone surrogates are spelled out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
