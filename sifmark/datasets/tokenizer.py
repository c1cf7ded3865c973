"""Text to tokens: each character one, or by the files of a tokenizer that somebody trained."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from tokenizers import Tokenizer as Trained
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_json

CHARACTERS = "characters.json"
BYTE_PAIRS = ("vocab.json", "merges.txt")
END_OF_TEXT = "<|endoftext|>"  # as GPT-2 has it
UNKNOWN = "[UNK]"  # what WordPiece takes for a word that it cannot make
REMEDY = f"name vocab.txt, tokenizer.json, {CHARACTERS}, or a folder with {' and '.join(BYTE_PAIRS)}"


class Tokenizer(Protocol):
    """Makes numbers of text."""

    kind: str

    @property
    def vocabulary(self) -> int:
        """Every token lies below it."""

    @property
    def sha256(self) -> str:
        """Of which number is which token."""

    @property
    def end(self) -> Sequence[int]:
        """What follows a text, so that the next one does not continue it."""

    def encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """Tokens of each text. Raises SifmarkError where it holds what the vocabulary does not."""


class Characters:
    """Each character is a token: its place among all."""

    kind = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        self.characters = list(characters)
        self.places = {character: place for place, character in enumerate(self.characters)}

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
        """As `Tokenizer.end`: a line's end, where there is one."""
        return [self.places["\n"]] if "\n" in self.places else []

    def encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """As `Tokenizer.encode`."""
        try:
            return [array("I", map(self.places.__getitem__, text)) for text in texts]
        except KeyError as error:
            raise SifmarkError(
                f"the text holds {error.args[0]!r}, and the {self.vocabulary} characters of --tokenizer do not",
                "prepare the text that has all characters first, without --tokenizer, and this one by what comes of it",
            ) from None


class Word(NamedTuple):
    """A token of a text, and from which character to which it stands there."""

    token: int
    begin: int
    end: int


class Subwords:
    """A tokenizer of the library tokenizers."""

    def __init__(self, kind: str, trained: Trained) -> None:
        self.kind, self.trained = kind, trained
        trained.no_truncation()
        trained.no_padding()

    @cached_property
    def tokens(self) -> dict[str, int]:
        """Number of each token."""
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
        """As `Tokenizer.end`: `<|endoftext|>`, or a line's end where there is no such token."""
        return [self.tokens[END_OF_TEXT]] if END_OF_TEXT in self.tokens else self.encode(["\n"])[0]

    def encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """As `Tokenizer.encode`."""
        with _explained():
            return [encoded.ids for encoded in self.trained.encode_batch_fast(list(texts), add_special_tokens=False)]

    def words(self, text: str) -> list[Word]:
        """Tokens of a text and where they stand."""
        with _explained():
            encoded = self.trained.encode(text, add_special_tokens=False)
        return [Word(token, *place) for token, place in zip(encoded.ids, encoded.offsets, strict=True)]


@contextmanager
def _explained() -> Iterator[None]:
    """Raise SifmarkError for what the library raises: of a text that the vocabulary lacks a token for."""
    try:
        yield
    except Exception as error:  # the library raises nothing more special
        raise SifmarkError(f"--tokenizer makes no tokens of the text: {str(error)[:200]}", REMEDY) from None


def characters_of(lines: Iterable[str]) -> Characters:
    """All characters of a text, in the order of their code points."""
    found: set[str] = set()
    for line in lines:
        found.update(line)
    return Characters(sorted(found))


def open_tokenizer(path: Path) -> Characters | Subwords:
    """The tokenizer at a path. Raises UsageError where there is none, or one that cannot be read."""
    if not path.exists():
        raise UsageError(f"--tokenizer {path}: no such file or folder", REMEDY)
    try:
        opened = _reader(path)(path)
    except UsageError:
        raise
    except Exception as error:  # the library raises nothing more special
        raise UsageError(f"--tokenizer {path}: {str(error)[:200]}", REMEDY) from None
    if isinstance(opened, Subwords) and not opened.tokens:
        raise UsageError(f"--tokenizer {path}: its vocabulary is empty", REMEDY)
    return opened


def _reader(path: Path) -> Callable[[Path], Characters | Subwords]:
    if path.is_dir():
        return _byte_pairs
    if path.suffix == ".txt":
        return _word_pieces
    return _characters if path.name == CHARACTERS else _of_library


def _characters(path: Path) -> Characters:
    listed = json.loads(path.read_text("utf-8"))
    single = isinstance(listed, list) and all(isinstance(one, str) and len(one) == 1 for one in listed)
    if not single or not listed or len(set(listed)) < len(listed):
        raise UsageError(f"--tokenizer {path}: no list of different characters", REMEDY)
    return Characters(listed)


def _byte_pairs(folder: Path) -> Subwords:
    files = [folder / name for name in BYTE_PAIRS]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"--tokenizer {folder}: {' and '.join(missing)} not there", REMEDY)
    trained = Trained(BPE.from_file(*map(str, files)))
    lacking = set(ByteLevel.alphabet()) - set(trained.get_vocab())
    if lacking:  # the library would leave such characters out without a word
        raise UsageError(
            f"--tokenizer {folder}: no byte pairs as GPT-2 has them, {len(lacking)} bytes are missing", REMEDY
        )
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return Subwords("bpe", trained)


def _word_pieces(file: Path) -> Subwords:
    """BERT's. A vocabulary without capitals is of text in lower case."""
    words = file.read_text("utf-8").split("\n")
    if UNKNOWN not in words:
        raise UsageError(f"--tokenizer {file}: it has no {UNKNOWN}", REMEDY)
    capitals = any(word != word.lower() for word in words if not word.startswith("["))
    trained = Trained(WordPiece.from_file(str(file), unk_token=UNKNOWN))
    trained.normalizer = BertNormalizer(lowercase=not capitals)
    trained.pre_tokenizer = BertPreTokenizer()
    return Subwords("wordpiece", trained)


def _of_library(file: Path) -> Subwords:
    return Subwords("tokenizers", Trained.from_file(str(file)))
