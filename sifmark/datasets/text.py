"""A text as tokens: plain, or the field `text` of JSON lines, in its own order."""

import codecs
import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.errors import UsageError
from sifmark.core.files import sha256_json
from sifmark.datasets.source import DamagedError, OutputFile, SkipSample
from sifmark.datasets.token_file import TOKENS, TokenFileHeader, token_width, tokenizer_manifest
from sifmark.datasets.tokenizer import CHARACTERS, Characters, Tokenizer, characters_of, open_tokenizer

SUFFIXES = (".txt", ".jsonl")
FIELD = "text"
WANTED = f"name a file of text, or a folder of {' and '.join(f'*{suffix}' for suffix in SUFFIXES)}"
# Characters of plain text that are made into tokens at once: from the first number on where a cut changes no token,
# from the second on after any line. Tokenizers are fastest with few.
PIECE, LONGEST_PIECE = 1 << 12, 1 << 16
PIECES = 256  # that are handed to the tokenizer together, which may work on them side by side


class LineRange(NamedTuple):
    """Lines of a file: from which byte to which, and the number of the first one, from 1."""

    file: Path
    begin: int
    end: int
    first: int


class TextLine(NamedTuple):
    """A line as it lies in its file, and its name for people."""

    name: str
    content: bytes
    of_json: bool


class TextSource:
    """Files of text, which count by name and size, and a tokenizer."""

    noun = "lines"

    def __init__(self, source: Path, tokenizer: str, samples_per_file: int) -> None:
        self.files, self.samples_per_file = find_texts(source), samples_per_file
        self.given = bool(tokenizer)
        self.tokenizer: Tokenizer = open_tokenizer(Path(tokenizer)) if tokenizer else characters_of(self.texts())
        self.stretches = list(line_ranges(self.files, samples_per_file))
        self.total = sum(lines for lines, _ in self.stretches)
        if not self.total:
            raise _no_text(source)

    def texts(self) -> Iterator[str]:
        """Every text that is whole."""
        for file in self.files:
            for line in lines(LineRange(file, 0, file.stat().st_size, 1)):
                try:
                    yield text_of(line)
                except DamagedError:
                    continue

    @property
    def plan(self) -> str:
        """As `Order.plan`."""
        files = [[ascii(file.name), file.stat().st_size] for file in self.files]
        return sha256_json(["tokens", self.samples_per_file, tokenizer_manifest(self.tokenizer), files])

    def described(self) -> dict[str, Any]:
        """As `Order.described`."""
        return {
            "format": "tokens",
            "seed": 0,
            "samples_per_file": self.samples_per_file,
            "classes": None,
            "text": {**tokenizer_manifest(self.tokenizer), "places": None, "stride": None},
        }

    def beside(self) -> dict[str, Any]:
        """The characters, for text that is to be read by the same ones."""
        return {CHARACTERS: self.tokenizer.characters} if isinstance(self.tokenizer, Characters) else {}

    def chunks(self) -> Iterator[OutputFile]:
        """As `Order.chunks`."""
        for number, (count, stretches) in enumerate(self.stretches):
            yield OutputFile(f"data-{number:06d}.tokens", count, partial(self.write, stretches))

    def write(self, stretches: Sequence[LineRange], stream: BinaryIO, skip: SkipSample) -> int:
        """The tokens of some lines."""
        width = token_width(self.tokenizer)
        header = TokenFileHeader(TOKENS, self.tokenizer, places=0)
        header.write(stream, 0)
        count = 0
        for texts in batches(pieces(stretches, skip)):
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
    """Some text, and whether it ends there."""

    text: str
    ends: bool


def find_texts(source: Path) -> list[Path]:
    """The files of text at a path. Raises UsageError where there are none."""
    if not source.exists():
        raise UsageError(f"{source}: no such file or folder", WANTED)
    if source.is_file():
        if source.suffix.lower() not in SUFFIXES:
            wanted = f"unpack it, or name it *{SUFFIXES[0]} (plain text) or *{SUFFIXES[1]} (a JSON object a line)"
            raise UsageError(f"{source}: its name does not say what kind of text it is", wanted)
        return [source]
    visible = [path for path in source.iterdir() if not path.name.startswith(".")]
    files = sorted(path for path in visible if path.suffix.lower() in SUFFIXES)
    if not files:
        raise _no_text(source)
    return files


def line_ranges(files: Iterable[Path], most: int) -> Iterator[tuple[int, list[LineRange]]]:
    """All lines in order, so many at a time, in stretches of files, with their number."""
    count, stretches = 0, list[LineRange]()
    for file in files:
        begin = at = 0
        first = 1
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                at, count = at + len(line), count + 1
                if count == most:
                    yield count, [*stretches, LineRange(file, begin, at, first)]
                    count, stretches, begin, first = 0, [], at, number + 1
        if at > begin:
            stretches.append(LineRange(file, begin, at, first))
    if count:
        yield count, stretches


def lines(stretch: LineRange) -> Iterator[TextLine]:
    """The lines of a stretch."""
    of_json = stretch.file.suffix.lower() == ".jsonl"
    with stretch.file.open("rb") as stream:
        stream.seek(stretch.begin)
        at, number = stretch.begin, stretch.first
        while at < stretch.end and (content := stream.readline()):
            text = content if at else content.removeprefix(codecs.BOM_UTF8)
            yield TextLine(f"{stretch.file.name}:{number}", text, of_json)
            at, number = at + len(content), number + 1


def text_of(line: TextLine) -> str:
    """A line's text. Raises DamagedError where it has none."""
    try:
        text = line.content.decode("utf-8")
        record = json.loads(text) if line.of_json else {FIELD: text}
    except UnicodeDecodeError:
        raise DamagedError("no UTF-8") from None
    except (ValueError, RecursionError):
        raise DamagedError("no JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get(FIELD), str):
        raise DamagedError(f"no field {FIELD!r} with a text in it")
    found: str = record[FIELD]
    try:
        found.encode("utf-8")
    except UnicodeEncodeError:
        raise DamagedError("half a character") from None
    return found


def pieces(stretches: Iterable[LineRange], skip: SkipSample) -> Iterator[Piece]:
    """The text of some lines: plain text in pieces of many lines, of JSON lines each by itself."""
    held: list[str] = []
    size = 0
    for stretch in stretches:
        for line in lines(stretch):
            try:
                text = text_of(line)
            except DamagedError as error:
                skip(line.name, str(error))
                continue
            skip()
            if line.of_json:
                yield Piece(text, ends=True)
                continue
            if size >= LONGEST_PIECE or (size >= PIECE and splits_words(held[-1], text)):
                yield Piece("".join(held), ends=False)
                held, size = [], 0
            held.append(text)
            size += len(text)
        if held:
            yield Piece("".join(held), ends=False)
            held, size = [], 0


def splits_words(line: str, following: str) -> bool:
    """Whether nothing but a line's end lies between the words of two lines, so that no token reaches over it."""
    return len(line) > 1 and not line[-2].isspace() and not following[:1].isspace()


def batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """So many at a time."""
    held: list[Piece] = []
    for piece in pieces:
        held.append(piece)
        if len(held) == PIECES:
            yield held
            held = []
    if held:
        yield held


def _no_text(source: Path) -> UsageError:
    return UsageError(f"{source}: no text", WANTED)
