"""Text as tokens, in its own order: plain text, or the field `text` of JSON lines."""

import codecs
import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.errors import UsageError
from sifmark.core.files import human_size, sha256_json
from sifmark.datasets.source import DamagedError, OutputFile, ReportItem
from sifmark.datasets.tokenizer import (
    CHARACTERS,
    TOKENS,
    Characters,
    TokenFileHeader,
    Tokenizer,
    characters_of,
    open_tokenizer,
    token_width,
    tokenizer_manifest,
)

# By the suffixes of files of text the bytes of their longest lines: a line of JSON takes 30 times as much memory.
LONGEST_LINES = {".txt": 128 * 1024**2, ".jsonl": 16 * 1024**2}
SUFFIXES = tuple(LONGEST_LINES)
FIELD = "text"
WANTED = f"name a file of text, or a folder of {' and '.join(f'*{suffix}' for suffix in SUFFIXES)}"
# Characters of plain text that are tokenized at once: the first number if the cut changes no token, the second after
# any line. Tokenizers are fastest with few.
PIECE, LONGEST_PIECE = 1 << 12, 1 << 16
PIECES = 256  # that the tokenizer gets together, and may tokenize in parallel


class LineRange(NamedTuple):
    """Consecutive lines of a file: their bytes, and the number of the first line, counted from 1."""

    file: Path
    begin: int
    end: int
    first: int


class TextLine(NamedTuple):
    """A line of a file: its name for people, its bytes, and whether these are only the first of too many."""

    name: str
    content: bytes
    of_json: bool
    cut: bool = False


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
    listed = source.iterdir() if source.is_dir() else ()  # what else there may be, such as a pipe, has no end
    visible = [path for path in listed if not path.name.startswith(".")]
    files = sorted(path for path in visible if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise no_text(source)
    return files


def read_lines(stream: BinaryIO, longest: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a stream and their sizes; of a line of more than `longest` bytes only the first ones."""
    while content := stream.readline(longest + 1):
        size, part = len(content), content
        while len(part) > longest and not part.endswith(b"\n"):
            part = stream.readline(longest + 1)
            size += len(part)
        yield content, size


def line_ranges(files: Iterable[Path], lines_per_file: int) -> Iterator[tuple[int, list[LineRange]]]:
    """Yield the number and the ranges of `lines_per_file` lines at a time, in order; fewer at the end."""
    count, ranges = 0, list[LineRange]()
    for file in files:
        begin = position = 0
        first = 1
        with file.open("rb") as stream:
            for number, (_, size) in enumerate(read_lines(stream, LONGEST_LINES[file.suffix.lower()]), 1):
                position, count = position + size, count + 1
                if count == lines_per_file:
                    yield count, [*ranges, LineRange(file, begin, position, first)]
                    count, ranges, begin, first = 0, [], position, number + 1
        if position > begin:
            ranges.append(LineRange(file, begin, position, first))
    if count:
        yield count, ranges


def lines(line_range: LineRange) -> Iterator[TextLine]:
    """Yield the lines of a range."""
    suffix = line_range.file.suffix.lower()
    longest = LONGEST_LINES[suffix]
    with line_range.file.open("rb") as stream:
        position = stream.seek(line_range.begin)
        for number, (content, size) in enumerate(read_lines(stream, longest), line_range.first):
            text = content if position else content.removeprefix(codecs.BOM_UTF8)
            yield TextLine(f"{line_range.file.name}:{number}", text, suffix == ".jsonl", size > longest)
            position += size
            if position >= line_range.end:
                return


def text_of(line: TextLine) -> str:
    """Return a line's text. Raises DamagedError if it has none."""
    if line.cut:
        raise DamagedError(f"longer than {human_size(len(line.content))}")
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


class TextSource:
    """Files of text and a tokenizer. The names and sizes of the files are in the plan."""

    noun = "lines"

    def __init__(self, source: Path, tokenizer: str, samples_per_file: int) -> None:
        self.files, self.samples_per_file = find_texts(source), samples_per_file
        self.tokenizer: Tokenizer = open_tokenizer(Path(tokenizer)) if tokenizer else characters_of(self.texts())
        self.ranges = list(line_ranges(self.files, samples_per_file))
        self.total = sum(count for count, _ in self.ranges)
        if not self.total:
            raise no_text(source)

    def texts(self) -> Iterator[str]:
        """Yield every text that is not damaged."""
        for file in self.files:
            for line in lines(LineRange(file, 0, file.stat().st_size, 1)):
                try:
                    yield text_of(line)
                except DamagedError:
                    continue

    @property
    def plan(self) -> str:
        """As `DatasetSource.plan`."""
        files = [[ascii(file.name), file.stat().st_size] for file in self.files]
        return sha256_json(["tokens", self.samples_per_file, tokenizer_manifest(self.tokenizer), files])

    def manifest_fields(self) -> dict[str, Any]:
        """As `DatasetSource.manifest_fields`."""
        return {
            "format": "tokens",
            "seed": 0,
            "samples_per_file": self.samples_per_file,
            "classes": None,
            "text": {**tokenizer_manifest(self.tokenizer), "places": None, "stride": None},
        }

    def sidecar_files(self) -> dict[str, Any]:
        """Return the characters, so that other texts can be prepared with the same ones."""
        return {CHARACTERS: self.tokenizer.characters} if isinstance(self.tokenizer, Characters) else {}

    def output_files(self) -> Iterator[OutputFile]:
        """As `DatasetSource.output_files`."""
        for number, (count, ranges) in enumerate(self.ranges):
            yield OutputFile(f"data-{number:06d}.tokens", count, partial(self.write, ranges))

    def write(self, ranges: Sequence[LineRange], stream: BinaryIO, report: ReportItem) -> int:
        """Write the tokens of some lines. Return their number."""
        width = token_width(self.tokenizer)
        header = TokenFileHeader(TOKENS, self.tokenizer, row_length=0)
        header.write(stream, 0)
        count = 0
        for texts in batches(pieces(ranges, report)):
            encoded = self.tokenizer.encode([piece.text for piece in texts])
            for piece, tokens in zip(texts, encoded, strict=True):
                numbers = array("H" if width == 2 else "I", [*tokens, *(self.tokenizer.end if piece.ends else ())])
                if sys.byteorder == "big":
                    numbers.byteswap()
                stream.write(numbers)
                count += len(numbers)
        header.write(stream, count)
        return count


class Piece(NamedTuple):
    """A part of a text, and whether the text ends with it."""

    text: str
    ends: bool


def pieces(ranges: Iterable[LineRange], report: ReportItem) -> Iterator[Piece]:
    """Yield the text of some lines: plain text in pieces of many lines, each JSON line as a piece."""
    pending: list[str] = []
    size = 0
    for line_range in ranges:
        for line in lines(line_range):
            try:
                text = text_of(line)
            except DamagedError as error:
                report(line.name, str(error))
                continue
            report()
            if line.of_json:
                yield Piece(text, ends=True)
                continue
            if size >= LONGEST_PIECE or (size >= PIECE and splits_words(pending[-1], text)):
                yield Piece("".join(pending), ends=False)
                pending, size = [], 0
            pending.append(text)
            size += len(text)
        if pending:
            yield Piece("".join(pending), ends=False)
            pending, size = [], 0


def splits_words(line: str, following: str) -> bool:
    """Return whether only a newline separates the words of two lines, so that no token extends across it."""
    return len(line) > 1 and not line[-2].isspace() and not following[:1].isspace()


def batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Yield PIECES pieces at a time."""
    pending: list[Piece] = []
    for piece in pieces:
        pending.append(piece)
        if len(pending) == PIECES:
            yield pending
            pending = []
    if pending:
        yield pending
