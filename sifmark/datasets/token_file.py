"""The header of files of prepared text. `entrypoints/data/sequences/prepared.py` reads them and has their format."""

import struct
from typing import Any, BinaryIO

from sifmark.datasets.tokenizer import Tokenizer

TOKENS, PASSAGES = b"SIFTOKEN", b"SIFSQUAD"
VERSION = 1
_HEADER = struct.Struct("<8sHHIIIQ32s")


class TokenFileHeader:
    """The header, the first 64 bytes of a file."""

    def __init__(self, magic: bytes, tokenizer: Tokenizer, row_length: int) -> None:
        self.magic, self.tokenizer, self.row_length = magic, tokenizer, row_length

    def write(self, stream: BinaryIO, count: int, lines: int = 0) -> None:
        """Write it at the front of the file. `count` is of tokens or rows, `lines` the bytes of JSON after them."""
        stream.seek(0)
        width, digest = token_width(self.tokenizer), bytes.fromhex(self.tokenizer.sha256.partition(":")[2])
        fields = (self.magic, VERSION, width, self.tokenizer.vocabulary, self.row_length, lines, count, digest)
        stream.write(_HEADER.pack(*fields))


def token_width(tokenizer: Tokenizer) -> int:
    """Return the bytes of a token."""
    return 2 if tokenizer.vocabulary <= 1 << 16 else 4


def tokenizer_manifest(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the fields of a manifest that describe a tokenizer."""
    return {"tokenizer": tokenizer.kind, "sha256": tokenizer.sha256, "vocabulary": tokenizer.vocabulary}
