"""Text as tokens, in its own order: plain text, or the field `text` of JSON lines."""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.files import sha256_json
from sifmark.datasets.source import DamagedError, OutputFile, ReportItem
from sifmark.datasets.text_files import LineRange, find_texts, line_ranges, lines, no_text, text_of
from sifmark.datasets.token_file import TOKENS, TokenFileHeader, token_width, tokenizer_manifest
from sifmark.datasets.tokenizer import CHARACTERS, Characters, Tokenizer, characters_of, open_tokenizer

# Characters of plain text that are tokenized at once: the first number if the cut changes no token, the second after
# any line. Tokenizers are fastest with few.
PIECE, LONGEST_PIECE = 1 << 12, 1 << 16
PIECES = 256  # that the tokenizer gets together, and may tokenize in parallel


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
