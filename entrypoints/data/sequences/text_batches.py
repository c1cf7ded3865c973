"""Batches of prepared text as arrays, from memory-mapped files: only what is read takes memory."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Iterable, NamedTuple, Sequence, Union

import numpy as np

from entrypoints.data.generated.synthetic import SyntheticBatch
from entrypoints.data.sequences.passages import Passages
from entrypoints.data.sequences.prepared import HEADER, REMEDY, PreparedText, TokenFile
from entrypoints.data.sequences.tokens import Tokens


class DamagedSequenceError(Exception):
    """Prepared text is damaged; the text says where."""


class TimedBatch(NamedTuple):
    """A batch, the seconds it took, and the numbers of its samples if their answers are to be graded."""

    batch: SyntheticBatch
    seconds: float
    numbers: np.ndarray | None = None


class MappedFiles:
    """Several files as one array of tokens or rows."""

    def __init__(self, files: Sequence[TokenFile], kind: np.dtype) -> None:
        self.files, self.kind = files, kind
        self.firsts = np.array([0, *itertools.accumulate(file.header.total for file in files)])

    @functools.cached_property
    def arrays(self) -> list[np.ndarray]:
        """One array for each file. A process forked before first use maps its own."""
        return [
            np.memmap(file.path, self.kind, "r", offset=HEADER.size, shape=(file.header.total,)) for file in self.files
        ]

    def stretch(self, first: int, count: int) -> np.ndarray:
        """Return `count` elements from `first` on, which may lie in several files."""
        at = int(np.searchsorted(self.firsts, first, "right")) - 1
        pieces, begin = [], first - int(self.firsts[at])
        while count:
            pieces.append(self.arrays[at][begin : begin + count])
            count -= len(pieces[-1])
            at, begin = at + 1, 0
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def file_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the index of the file that holds each number."""
        return np.searchsorted(self.firsts, numbers, "right") - 1


class Text:
    """Blocks of a text. For training they begin anywhere, by seed and epoch; otherwise they are consecutive."""

    def __init__(self, source: Tokens, task: str, seed: int) -> None:
        self.source, self.task, self.seed = source, task, seed
        self.mapped = MappedFiles(source.files, np.dtype(f"<u{source.files[0].header.width}"))

    def order(self, _: int) -> Sequence[int]:
        """Return the consecutive blocks."""
        return range(self.source.samples)

    def batch(self, _: Sequence[int], epoch: int, start: int, count: int) -> TimedBatch:
        """Return `count` blocks of an epoch, and for each token the one that follows. Raises DamagedSequenceError."""
        began, length = time.perf_counter(), self.source.length
        if self.task == "training":
            drawn = np.random.PCG64(np.random.SeedSequence([self.seed, epoch])).advance(start)
            places = (np.random.Generator(drawn).random(count) * (self.source.tokens - length)).astype(np.int64)
        else:
            places = np.arange(start, start + count) * length
        blocks = np.stack([self.mapped.stretch(int(place), length + 1) for place in places]).astype(np.int64)
        require_in_vocabulary(blocks, self.source)
        batch = SyntheticBatch(blocks[:, :-1], blocks[:, 1:], tokens=count * length, padding=0)
        return TimedBatch(batch, time.perf_counter() - began)


def mapped_rows(source: Passages) -> MappedFiles:
    """Return the rows of a source."""
    return MappedFiles(source.files, row_of(source.places, source.files[0].header.width))


def order_of_rows(rows: int, task: str, seed: int, epoch: int) -> Sequence[int]:
    """Return the order of rows: that of the files, or for training a different one in every epoch."""
    if task != "training":
        return range(rows)
    order: Sequence[int] = np.random.default_rng([seed, epoch]).permutation(rows)  # type: ignore[assignment]
    return order


class Questions:
    """Rows of questions and passages, in a different order in every epoch of training."""

    def __init__(self, source: Passages, task: str, seed: int) -> None:
        self.source, self.task, self.seed = source, task, seed
        self.mapped = mapped_rows(source)

    def order(self, epoch: int) -> Sequence[int]:
        """Return the order of the rows."""
        return order_of_rows(self.source.samples, self.task, self.seed, epoch)

    def batch(self, order: Sequence[int], _: int, start: int, count: int) -> TimedBatch:
        """Return `count` rows of an epoch: tokens, segments and ends of answers. Raises DamagedSequenceError."""
        began = time.perf_counter()
        numbers = np.asarray(order[start : start + count])
        rows = self.rows(numbers)
        filled = np.arange(self.source.places) < rows["length"][:, None]
        segments = (np.arange(self.source.places) >= rows["context"][:, None]) & filled
        ends = np.stack([rows["first"], rows["last"]], axis=1).astype(np.int64)
        tokens = rows["tokens"].astype(np.int64)
        count = int(rows["length"].sum())
        batch = SyntheticBatch((tokens, segments.astype(np.int64)), ends, count, tokens.size - count)
        return TimedBatch(batch, time.perf_counter() - began, numbers)

    def rows(self, numbers: Iterable[int]) -> np.ndarray:
        """Return the rows of these numbers. Raises DamagedSequenceError if one is impossible."""
        rows = np.concatenate([self.mapped.stretch(int(number), 1) for number in numbers])
        require_in_vocabulary(rows["tokens"], self.source)
        context, length, first, last = (rows[name].astype(np.int64) for name in ("context", "length", "first", "last"))
        within = (context < length - 1) & (first <= last) & (last < length) & (length <= self.source.places)
        if not within.all():
            raise DamagedSequenceError(f"{self.source.path}: a row with places beyond its end: it is damaged; {REMEDY}")
        return rows


def row_of(places: int, width: int) -> np.dtype:
    """Return the type of a row, as `passages` describes it."""
    token, short = f"<u{width}", "<u2"
    each = [(name, token, (places,)) for name in ("tokens", "begins", "ends")]
    whole = [(name, short) for name in ("context", "length", "first", "last")]
    return np.dtype([*each, *whole, ("question", "<u4")])


def require_in_vocabulary(tokens: np.ndarray, source: Tokens | Passages) -> None:
    """Raise DamagedSequenceError if a token is beyond the vocabulary that a device has weights for."""
    most = int(tokens.max())
    if most >= source.vocabulary:
        raise DamagedSequenceError(
            f"{source.path}: token {most} in a vocabulary of {source.vocabulary}: it is damaged; {REMEDY}"
        )


Reader = Union[Text, Questions]


def reader(source: PreparedText, task: str, seed: int) -> Reader:
    """Return a maker of batches of a source that is ready for a card."""
    if isinstance(source, Tokens):
        return Text(source, task, seed)
    assert isinstance(source, Passages)  # noqa: S101 - the other form
    return Questions(source, task, seed)
