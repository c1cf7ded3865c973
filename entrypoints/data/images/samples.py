"""Samples of a source as the pixels that a network takes, epoch by epoch. NumPy and Pillow, no framework."""

from __future__ import annotations

import itertools
import time
from typing import Iterable, Iterator, NamedTuple, Sequence

import numpy as np

from entrypoints.contract.cards import Card
from entrypoints.contract.session import Batch
from entrypoints.contract.statuses import RunError
from entrypoints.data.images import decoding
from entrypoints.data.source import Entry, Source

# Encoded samples that a worker holds at once to mix them, if a source is read sequentially: 28 MB for photographs of
# 110 kB, the mean of ILSVRC.
MIXED = 256


class Sample(NamedTuple):
    """One image's pixels as bytes (H, W, C) (None if no image was readable), its label, the samples skipped before it,
    and the seconds for decoding and augmentation."""

    pixels: np.ndarray | None
    label: int
    skipped: tuple[str, ...] = ()
    seconds: float = 0.0


class Stack(NamedTuple):
    """The arrays of a batch: inputs and targets, the same array if pixels are their own targets, None if no sample was
    readable; the skipped samples, and the seconds it took."""

    inputs: np.ndarray | None
    targets: np.ndarray | None
    skipped: tuple[str, ...]
    seconds: float | None


def stack(samples: Sequence[Sample], own_targets: bool) -> Stack:
    """Return the readable samples as one batch, with themselves as targets or with int64 labels."""
    skipped = tuple(sorted({name for sample in samples for name in sample.skipped}))
    readable = [(sample.pixels, sample.label) for sample in samples if sample.pixels is not None]
    if not readable:
        return Stack(None, None, skipped, None)
    arrays, labels = zip(*readable)
    inputs = np.stack(arrays)
    targets = inputs if own_targets else np.array(labels, np.int64)
    return Stack(inputs, targets, skipped, sum(sample.seconds for sample in samples))


def require_readable(batch: Batch, otherwise: str) -> Batch:
    """Return the batch. Raises RunError (`data_error`) if nothing of it was readable."""
    if batch.inputs is None:
        raise RunError("data_error", otherwise)
    return batch


class Reader:
    """Reads a source for a task, in a different order in every epoch of training. A sample depends only on the source,
    the seed and the epoch."""

    def __init__(self, source: Source, card: Card, task: str, seed: int) -> None:
        self.source, self.rule, self.task, self.seed = source, card.problem["input"], task, seed
        self.classes = card.problem["model"].get("classes")
        self.unreadable: set[str] = set()  # by this process: not tried twice

    def order(self, epoch: int) -> Sequence[int]:
        """Return the order of the source's units."""
        if self.task != "training":
            return range(self.source.units)
        order: Sequence[int] = np.random.default_rng([self.seed, epoch]).permutation(self.source.units)  # type: ignore[assignment]
        return order

    def samples(self, order: Sequence[int], epoch: int, start: int, count: int) -> Iterator[Sample]:
        """Yield `count` samples of an epoch, each the next readable one from its position on, so that batches stay
        whole.

        At the end of the data, the last readable one is repeated.
        """
        entries, owed, last = self.mixed(order, epoch, start, count), 0, Sample(None, 0)
        skipped: list[str] = []
        for position, entry in zip(range(self.source.samples), entries):
            owed += position < count
            sample = self.decoded(entry, epoch)
            if sample is None:
                skipped.append(self.described(entry))
            else:
                yield sample._replace(skipped=tuple(skipped))
                last = sample._replace(seconds=0.0)
                yield from [last] * (owed - 1)
                owed, skipped = 0, []
            if position + 1 >= count and not owed:
                return
        yield from [last._replace(skipped=tuple(skipped))] * owed

    def each(self, order: Sequence[int], epoch: int, start: int, count: int) -> Iterator[Sample]:
        """Yield up to `count` samples of an epoch, each once. An unreadable one has no pixels and is not replaced."""
        count = min(count, self.source.samples - start)
        for entry in itertools.islice(self.source.entries(order, start), count):
            yield self.decoded(entry, epoch) or Sample(None, 0, (self.described(entry),))

    def described(self, entry: Entry) -> str:
        """Describe a sample that cannot be read, for people."""
        return f"{entry.name} (label {entry.label})" if self.outside(entry) else entry.name

    def mixed(self, order: Sequence[int], epoch: int, start: int, count: int) -> Iterator[Entry]:
        """Return the entries from a position on. If they are read sequentially, the first `count` are mixed."""
        entries = self.source.entries(order, start)
        if self.task != "training" or not self.source.sequential:
            return entries
        random = np.random.default_rng([self.seed, epoch, start])
        return itertools.chain(mix(itertools.islice(entries, count), MIXED, random), entries)

    def decoded(self, entry: Entry, epoch: int) -> Sample | None:
        """Return the entry as pixels; None if its image is unreadable or its label is not one of the workload's."""
        if entry.label is None or self.outside(entry) or entry.name in self.unreadable:
            return None
        try:
            content = entry.read()
            began = time.perf_counter()
            random = np.random.default_rng([self.seed, epoch, entry.number])
            pixels = decoding.pixels_of_file(content, self.rule, self.task, random)
        except MemoryError:
            raise
        except Exception:  # a damaged file makes Pillow raise nearly anything
            self.unreadable.add(entry.name)
            return None
        return Sample(pixels, entry.label, seconds=time.perf_counter() - began)

    def outside(self, entry: Entry) -> bool:
        """Return whether the entry's label is beyond the classes of the workload."""
        return self.classes is not None and entry.label is not None and entry.label >= self.classes


def shares(epoch: int, per_epoch: int, worker: int, workers: int, sequential: bool) -> list[tuple[int, int]]:
    """Return what a worker reads of an epoch: first batch and number of batches of each stretch.

    The workers take turns batch by batch, also across epochs. A worker that reads sequentially gets as many batches as
    it has turns, but consecutive ones.
    """
    begins = epoch * per_epoch % workers  # whose turn the first batch is
    turns = [range((other - begins) % workers, per_epoch, workers) for other in range(workers)]
    if not sequential:
        return [(number, 1) for number in turns[worker]]
    return [(sum(map(len, turns[:worker])), len(turns[worker]))]


def mix(entries: Iterable[Entry], most: int, random: np.random.Generator) -> Iterator[Entry]:
    """Yield the same entries in another order, holding at most `most` at once."""
    buffer: list[Entry] = []
    for entry in entries:
        buffer.append(entry)
        if len(buffer) > most:
            position = int(random.integers(len(buffer)))
            buffer[position], buffer[-1] = buffer[-1], buffer[position]
            yield buffer.pop()
    yield from (buffer[position] for position in random.permutation(len(buffer)))
