"""Prepared text: files of tokens, each with a header of 64 bytes, all numbers little-endian. Standard library only.

| bytes | what |
|---|---|
| 8 | `SIFTOKEN`: one long text; `SIFSQUAD`: rows of questions and passages |
| 2 | version of this form, 1 |
| 2 | bytes of a token, 2 or 4 |
| 4 | size of the vocabulary: every token is below it |
| 4 | positions of a row; 0 if there are none |
| 4 | bytes of JSON lines at the end |
| 8 | how many tokens, or rows, follow |
| 32 | SHA-256 of the tokenizer |
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.source import Source

HEADER = struct.Struct("<8sHHIIIQ32s")
VERSION = 1
REMEDY = "prepare the data again (sifmark data.prepare)"


class TokenFileHeader(NamedTuple):
    """The header of a file."""

    magic: bytes
    version: int
    width: int  # bytes of a token
    vocabulary: int
    places: int  # of a row
    lines: int  # bytes of JSON lines at the end
    total: int  # of tokens or rows
    tokenizer: bytes

    @property
    def row(self) -> int:
        """Bytes of a row: for each position three numbers of a token's size, then four of two bytes and one of four;
        without rows, the bytes of a token."""
        return self.places * 3 * self.width + 12 if self.places else self.width


class TokenFile(NamedTuple):
    """A file and its header."""

    path: Path
    header: TokenFileHeader

    @property
    def end(self) -> int:
        """Where the JSON lines begin, in bytes."""
        return HEADER.size + self.header.total * self.header.row


class PreparedText(Source):
    """Files of one form, made with one tokenizer."""

    def __init__(self, path: Path, files: Sequence[TokenFile]) -> None:
        super().__init__(path, sum(file.header.total for file in files), None)
        self.files = files
        self.vocabulary, self.places = files[0].header.vocabulary, files[0].header.places
        self.tokenizer = files[0].header.tokenizer

    def suit(self, card: Card, where: str) -> None:
        """Check as `Source.suit` does: first the vocabulary, then the length."""
        most = card.problem["model"]["vocabulary"]
        if self.vocabulary > most:
            raise UsageError(
                f"{where}: its vocabulary has {self.vocabulary} tokens, {card.name} knows {most}",
                "give data of another --tokenizer, or a text of fewer characters",
                code="data-missing",
            )
        self.fit(card.problem, f"{where}: {card.name}")

    def fit(self, problem: Mapping[str, Any], where: str) -> None:
        """Count samples for a card's problem. Raises UsageError if its length does not match that of the data."""
        raise NotImplementedError

    def like(self, other: Source, where: str) -> None:
        """Check as `Source.like` does."""
        if isinstance(other, PreparedText) and other.tokenizer != self.tokenizer:
            raise UsageError(
                f"{where}: made by another tokenizer than {other.path}: the same number is another token there",
                "prepare both with one --tokenizer",
                code="data-missing",
            )


def token_files(path: Path, files: Sequence[Path], magic: bytes, manifest: Manifest | None) -> list[TokenFile]:
    """Return the files at a path: those that the manifest names, or those found there if there is none.

    Raises UsageError if one is incomplete or not of this form, and if they do not belong together.
    """
    named = [path / file.name for file in manifest.files] if manifest else files
    files_read = [TokenFile(file, read_header(file, magic)) for file in named]
    first = files_read[0]
    for file in files_read:
        if _form(file.header) != _form(first.header):
            raise UsageError(
                f"--data {file.path}: not of the tokenizer, vocabulary and length of {first.path.name}",
                "give files that were prepared together",
                code="data-missing",
            )
    return files_read


def unpacked(file: Path, layout: struct.Struct, magic: bytes, version: int) -> tuple[Any, ...]:
    """Return the fields of a header that begins with a magic and a version. Raises UsageError for any other."""
    try:
        with file.open("rb") as stream:
            begun = stream.read(layout.size)
    except OSError as error:
        raise UsageError(
            f"--data {file}: {error.strerror}", "make it readable for this user", code="file-unreadable"
        ) from None
    if len(begun) < layout.size:
        raise UsageError(
            f"--data {file}: cut short within its header, after {len(begun)} bytes", REMEDY, code="data-damaged"
        )
    fields = layout.unpack(begun)
    if fields[0] != magic:
        raise UsageError(
            f"--data {file}: it begins with {fields[0]!r} and not with {magic!r}", REMEDY, code="data-damaged"
        )
    if fields[1] != version:
        raise UsageError(
            f"--data {file}: of version {fields[1]}, this image reads {version}", REMEDY, code="data-missing"
        )
    return fields


def require_size(file: Path, wanted: int) -> None:
    """Raise UsageError if the size of a file is not that of its header."""
    size = file.stat().st_size
    if size != wanted:
        raise UsageError(f"--data {file}: {size} bytes, and by its header it has {wanted}", REMEDY, code="data-damaged")


def read_header(file: Path, magic: bytes) -> TokenFileHeader:
    """Return the header of a file. Raises UsageError if it is impossible, or the file has another size."""
    header = TokenFileHeader(*unpacked(file, HEADER, magic, VERSION))
    if header.width not in (2, 4) or not header.total or not header.vocabulary:
        raise UsageError(
            f"--data {file}: its header is damaged: {header.total} samples, tokens of {header.width} bytes, a "
            f"vocabulary of {header.vocabulary}",
            REMEDY,
            code="data-damaged",
        )
    require_size(file, TokenFile(file, header).end + header.lines)
    return header


def _form(header: TokenFileHeader) -> tuple[object, ...]:
    return header.width, header.vocabulary, header.places, header.tokenizer
