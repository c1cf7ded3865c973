"""Tokenizers: one token per character, or a trained tokenizer from its files. And the header of files of tokens."""

import json
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from tokenizers import Tokenizer as TrainedTokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_json
from sifmark.datasets.source import read_document

# The header of files of prepared text, as entrypoints/data/sequences/prepared.py reads it.
TOKENS, PASSAGES = b"SIFTOKEN", b"SIFSQUAD"
VERSION = 1
_HEADER = struct.Struct("<8sHHIIIQ32s")
LARGEST_VOCABULARY = (1 << 32) - 1  # that the header can tell
CHARACTERS = "characters.json"
BYTE_PAIRS = ("vocab.json", "merges.txt")
END_OF_TEXT = "<|endoftext|>"  # as GPT-2 has it
UNKNOWN = "[UNK]"  # WordPiece's token for a word that it cannot divide
REMEDY = f"name vocab.txt, tokenizer.json, {CHARACTERS}, or a folder with {' and '.join(BYTE_PAIRS)}"


class Tokenizer(Protocol):
    """What turns text into numbers."""

    kind: str

    @property
    def vocabulary(self) -> int:
        """The number of tokens; each token is less."""

    @property
    def sha256(self) -> str:
        """A hash over all tokens and their numbers."""

    @property
    def end(self) -> Sequence[int]:
        """The tokens that are written after a text, so that the next one does not continue it."""

    def encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """Return the tokens of each text. Raises SifmarkError for a text that the vocabulary does not cover."""


class Characters:
    """Each character is a token: its index among all characters."""

    kind = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        self.characters = list(characters)
        self.indexes = {character: index for index, character in enumerate(self.characters)}

    @property
    def vocabulary(self) -> int:
        """As `Tokenizer.vocabulary`."""
        return len(self.characters)

    @property
    def sha256(self) -> str:
        """As `Tokenizer.sha256`."""
        return sha256_json(self.characters)

    @property
    def end(self) -> Sequence[int]:
        """As `Tokenizer.end`: a newline if the vocabulary has one."""
        return [self.indexes["\n"]] if "\n" in self.indexes else []

    def encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """As `Tokenizer.encode`."""
        try:
            return [array("I", map(self.indexes.__getitem__, text)) for text in texts]
        except KeyError as error:
            raise SifmarkError(
                f"the text holds {error.args[0]!r}, and the {self.vocabulary} characters of the tokenizer do not",
                "prepare the text that has all characters first, without --tokenizer, and this one by what comes of it",
                code="tokenizer-unusable",
            ) from None


class Word(NamedTuple):
    """A token of a text, and the range of its characters in the text."""

    token: int
    begin: int
    end: int


class Subwords:
    """A trained tokenizer of the package tokenizers."""

    def __init__(self, kind: str, trained: TrainedTokenizer) -> None:
        self.kind, self.trained = kind, trained
        trained.no_truncation()
        trained.no_padding()

    @cached_property
    def tokens(self) -> dict[str, int]:
        """The number of each token."""
        return dict(self.trained.get_vocab(with_added_tokens=True))

    @property
    def vocabulary(self) -> int:
        """As `Tokenizer.vocabulary`."""
        return max(self.tokens.values()) + 1

    @cached_property
    def sha256(self) -> str:
        """As `Tokenizer.sha256`."""
        return sha256_json(sorted(self.tokens.items(), key=lambda item: (item[1], item[0])))

    @property
    def end(self) -> Sequence[int]:
        """As `Tokenizer.end`: `<|endoftext|>`, or a newline if there is no such token."""
        return [self.tokens[END_OF_TEXT]] if END_OF_TEXT in self.tokens else self.encode(["\n"])[0]

    def encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """As `Tokenizer.encode`."""
        with _explained_errors():
            return [encoded.ids for encoded in self.trained.encode_batch_fast(list(texts), add_special_tokens=False)]

    def words(self, text: str) -> list[Word]:
        """Return the tokens of a text with their characters."""
        with _explained_errors():
            encoded = self.trained.encode(text, add_special_tokens=False)
        return [Word(token, *span) for token, span in zip(encoded.ids, encoded.offsets, strict=True)]


@contextmanager
def _explained_errors() -> Iterator[None]:
    """Raise SifmarkError for what the library raises, for example if the vocabulary lacks a token for a text."""
    try:
        yield
    except BaseException as error:
        if not _is_of_library(error):
            raise
        cause = f"the tokenizer makes no tokens of the text: {str(error)[:200]}"
        raise SifmarkError(cause, REMEDY, code="tokenizer-unusable") from None


def _is_of_library(error: BaseException) -> bool:
    """Return whether an error may be the library's, which has no class for them, and panics."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def characters_of(lines: Iterable[str]) -> Characters:
    """Return a tokenizer with all characters of a text, in the order of their code points."""
    characters: set[str] = set()
    for line in lines:
        characters.update(line)
    return Characters(sorted(characters))


def open_tokenizer(path: Path) -> Characters | Subwords:
    """Return the tokenizer at a path. Raises UsageError if there is none, or it cannot be read."""
    if not path.exists():
        raise UsageError(f"tokenizer {path}: no such file or folder", REMEDY, code="file-missing")
    try:
        for file in (path / name for name in BYTE_PAIRS) if path.is_dir() else (path,):
            if path.is_file() or file.exists():
                read_document(file)  # the library reads whatever there is, up to the end of the memory
        tokenizer = _reader(path)(path)
    except SifmarkError:
        raise
    except BaseException as error:
        if not _is_of_library(error):
            raise
        raise _unusable(path, str(error)[:200]) from None
    if isinstance(tokenizer, Subwords) and not tokenizer.tokens:
        raise _unusable(path, "its vocabulary is empty")
    if tokenizer.vocabulary > LARGEST_VOCABULARY:
        raise _unusable(path, f"a token has the number {tokenizer.vocabulary - 1}")
    return tokenizer


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


def _unusable(path: Path, reason: str) -> UsageError:
    return UsageError(f"tokenizer {path}: {reason}", REMEDY, code="tokenizer-unusable")


def _reader(path: Path) -> Callable[[Path], Characters | Subwords]:
    if path.is_dir():
        return _byte_pairs
    if path.suffix == ".txt":
        return _word_pieces
    return _characters if path.name == CHARACTERS else _of_library


def _characters(path: Path) -> Characters:
    characters = json.loads(read_document(path))
    is_list = isinstance(characters, list) and all(isinstance(item, str) and len(item) == 1 for item in characters)
    if not is_list or not characters or len(set(characters)) < len(characters):
        raise _unusable(path, "no list of different characters")
    "".join(characters).encode()  # which halves of characters are not
    return Characters(characters)


def _byte_pairs(folder: Path) -> Subwords:
    files = [folder / name for name in BYTE_PAIRS]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise _unusable(folder, f"{' and '.join(missing)} not there")
    trained = TrainedTokenizer(BPE.from_file(*map(str, files)))
    lacking = set(ByteLevel.alphabet()) - set(trained.get_vocab())
    if lacking:  # the library would silently leave out such characters
        raise _unusable(folder, f"no byte pairs as GPT-2 has them, {len(lacking)} bytes are missing")
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return Subwords("bpe", trained)


def _word_pieces(file: Path) -> Subwords:
    """Return a tokenizer for BERT. If its vocabulary has no capitals, it puts text into lower case."""
    words = file.read_text("utf-8").split("\n")
    if UNKNOWN not in words:
        raise _unusable(file, f"it has no {UNKNOWN}")
    capitals = any(word != word.lower() for word in words if not word.startswith("["))
    trained = TrainedTokenizer(WordPiece.from_file(str(file), unk_token=UNKNOWN))
    trained.normalizer = BertNormalizer(lowercase=not capitals)
    trained.pre_tokenizer = BertPreTokenizer()
    return Subwords("wordpiece", trained)


def _of_library(file: Path) -> Subwords:
    return Subwords("tokenizers", TrainedTokenizer.from_file(str(file)))
