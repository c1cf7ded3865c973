"""Files of text, plain or with a JSON object on each line, and their lines."""

import codecs
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sifmark.core.errors import UsageError
from sifmark.datasets.source import DamagedError

SUFFIXES = (".txt", ".jsonl")
FIELD = "text"
WANTED = f"name a file of text, or a folder of {' and '.join(f'*{suffix}' for suffix in SUFFIXES)}"


class LineRange(NamedTuple):
    """Consecutive lines of a file: their bytes, and the number of the first line, counted from 1."""

    file: Path
    begin: int
    end: int
    first: int


class TextLine(NamedTuple):
    """The bytes of a line in its file, and its name for people."""

    name: str
    content: bytes
    of_json: bool


def find_texts(source: Path) -> list[Path]:
    """Return the files of text at a path. Raises UsageError if there are none."""
    if not source.exists():
        raise UsageError(f"{source}: no such file or folder", WANTED, code="file-missing")
    if source.is_file():
        if source.suffix.lower() not in SUFFIXES:
            remedy = f"unpack it, or name it *{SUFFIXES[0]} (plain text) or *{SUFFIXES[1]} (a JSON object a line)"
            cause = f"{source}: its name does not say what kind of text it is"
            raise UsageError(cause, remedy, code="data-missing")
        return [source]
    visible = [path for path in source.iterdir() if not path.name.startswith(".")]
    files = sorted(path for path in visible if path.suffix.lower() in SUFFIXES)
    if not files:
        raise no_text(source)
    return files


def line_ranges(files: Iterable[Path], lines_per_file: int) -> Iterator[tuple[int, list[LineRange]]]:
    """Yield the number and the ranges of `lines_per_file` lines at a time, in order; fewer at the end."""
    count, ranges = 0, list[LineRange]()
    for file in files:
        begin = position = 0
        first = 1
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                position, count = position + len(line), count + 1
                if count == lines_per_file:
                    yield count, [*ranges, LineRange(file, begin, position, first)]
                    count, ranges, begin, first = 0, [], position, number + 1
        if position > begin:
            ranges.append(LineRange(file, begin, position, first))
    if count:
        yield count, ranges


def lines(line_range: LineRange) -> Iterator[TextLine]:
    """Yield the lines of a range."""
    of_json = line_range.file.suffix.lower() == ".jsonl"
    with line_range.file.open("rb") as stream:
        stream.seek(line_range.begin)
        position, number = line_range.begin, line_range.first
        while position < line_range.end and (content := stream.readline()):
            text = content if position else content.removeprefix(codecs.BOM_UTF8)
            yield TextLine(f"{line_range.file.name}:{number}", text, of_json)
            position, number = position + len(content), number + 1


def text_of(line: TextLine) -> str:
    """Return a line's text. Raises DamagedError if it has none."""
    try:
        text = line.content.decode("utf-8")
        record = json.loads(text) if line.of_json else {FIELD: text}
    except UnicodeDecodeError:
        raise DamagedError("no UTF-8") from None
    except (ValueError, RecursionError):
        raise DamagedError("no JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get(FIELD), str):
        raise DamagedError(f"no field {FIELD!r} with a text in it")
    value: str = record[FIELD]
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DamagedError("half a character") from None
    return value


def no_text(source: Path) -> UsageError:
    """Return the error for a path at which there is no text."""
    return UsageError(f"{source}: no text", WANTED, code="data-missing")
