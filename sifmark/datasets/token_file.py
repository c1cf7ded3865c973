"""Files of prepared text. `entrypoints/data/sequences/prepared.py`, which reads them, says how they lie there."""

import struct
from typing import Any, BinaryIO

from sifmark.datasets.tokenizer import Tokenizer

TOKENS, PASSAGES = b"SIFTOKEN", b"SIFSQUAD"
VERSION = 1
_FORM = struct.Struct("<8sHHIIIQ32s")


class TokenFileHeader:
    """The first 64 bytes of a file."""

    def __init__(self, magic: bytes, tokenizer: Tokenizer, places: int) -> None:
        self.magic, self.tokenizer, self.places = magic, tokenizer, places

    def write(self, stream: BinaryIO, count: int, lines: int = 0) -> None:
        """At the front of the file: with how many tokens or rows, and how many bytes of JSON lines after them."""
        stream.seek(0)
        width, digest = token_width(self.tokenizer), bytes.fromhex(self.tokenizer.sha256.partition(":")[2])
        told = (self.magic, VERSION, width, self.tokenizer.vocabulary, self.places, lines, count, digest)
        stream.write(_FORM.pack(*told))


def token_width(tokenizer: Tokenizer) -> int:
    """Bytes of a token."""
    return 2 if tokenizer.vocabulary <= 1 << 16 else 4


def tokenizer_manifest(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a manifest says of a tokenizer."""
    return {"tokenizer": tokenizer.kind, "sha256": tokenizer.sha256, "vocabulary": tokenizer.vocabulary}
