"""Batches as tensors: one synthetic batch again and again, samples decoded by worker processes, or requests."""

from __future__ import annotations

import functools
import io
import itertools
import os
import time
from typing import Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from entrypoints.cards import Card, reconstructs
from entrypoints.data import formula, images, synthetic
from entrypoints.data.source import Entry, Source
from entrypoints.lifeline import die_with_parent
from entrypoints.session import Batch
from entrypoints.statuses import RunError

# Encoded samples that a worker holds at once to mix them, where a source is read from the front: of photographs of
# 110 kB, as ILSVRC has them, 28 MB.
MIXED = 256


class Sample(NamedTuple):
    """One image's pixels (None where no image at all was readable), its label, what was passed over on the way to it,
    and the seconds that it took to decode and augment."""

    pixels: np.ndarray | None
    label: int
    skipped: tuple[str, ...] = ()
    seconds: float = 0.0


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Endless batches of a source, cut for a task; a worker process has those whose turn it is.

    An epoch takes every sample once, but those of a partial last batch, in an order of its own for training. Which
    samples it takes depends on the seed alone.
    """

    def __init__(self, source: Source, card: Card, task: str, batch_size: int, seed: int) -> None:
        self.source, self.rule, self.task, self.seed = source, card.problem["input"], task, seed
        self.own_targets, self.classes = reconstructs(card.problem), card.problem["model"].get("classes")
        self.batch_size = batch_size
        self.unreadable: set[str] = set()  # known to this process: not tried twice

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return self.source.samples // self.batch_size

    def __iter__(self) -> Iterator[Batch | None]:
        """Yield this worker's share of every epoch; None where not one sample of the source is readable."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for epoch in itertools.count():
            order = self.order(epoch)
            for first, count in shares(epoch, self.per_epoch, worker, workers, self.source.sequential):
                samples = self.samples(order, epoch, first * self.batch_size, count * self.batch_size)
                for _ in range(count):
                    yield stack(list(itertools.islice(samples, self.batch_size)), self.own_targets)

    def order(self, epoch: int) -> Sequence[int]:
        """The order of the source's units."""
        if self.task != "training":
            return range(self.source.units)
        order: Sequence[int] = np.random.default_rng([self.seed, epoch]).permutation(self.source.units)  # type: ignore[assignment]
        return order

    def samples(self, order: Sequence[int], epoch: int, start: int, count: int) -> Iterator[Sample]:
        """So many samples of an epoch, each the next readable one from its place on, so that batches stay whole.

        Where no other comes any more, the last one is taken again.
        """
        entries, owed, last = self.mixed(order, epoch, start, count), 0, Sample(None, 0)
        skipped: list[str] = []
        for place, entry in zip(range(self.source.samples), entries):
            owed += place < count
            sample = self.decoded(entry, epoch)
            if sample is None:
                skipped.append(f"{entry.name} (label {entry.label})" if self.outside(entry) else entry.name)
            else:
                yield sample._replace(skipped=tuple(skipped))
                last = sample._replace(seconds=0.0)
                yield from [last] * (owed - 1)
                owed, skipped = 0, []
            if place + 1 >= count and not owed:
                return
        yield from [last._replace(skipped=tuple(skipped))] * owed

    def mixed(self, order: Sequence[int], epoch: int, start: int, count: int) -> Iterator[Entry]:
        """The entries from a place on. Where they come from the front of files, the first `count` are mixed."""
        entries = self.source.entries(order, start)
        if self.task != "training" or not self.source.sequential:
            return entries
        random = np.random.default_rng([self.seed, epoch, start])
        return itertools.chain(mix(itertools.islice(entries, count), MIXED, random), entries)

    def decoded(self, entry: Entry, epoch: int) -> Sample | None:
        """The entry as pixels; None where its image cannot be read or its label is none of the workload's."""
        if entry.label is None or self.outside(entry) or entry.name in self.unreadable:
            return None
        try:
            content = io.BytesIO(entry.read())
            began = time.perf_counter()
            image = images.decode(content)
        except MemoryError:
            raise
        except Exception:  # a damaged file makes Pillow raise nearly anything
            self.unreadable.add(entry.name)
            return None
        random = np.random.default_rng([self.seed, epoch, entry.number])
        pixels = images.pixels(image, self.rule, self.task, random)
        return Sample(pixels, entry.label, seconds=time.perf_counter() - began)

    def outside(self, entry: Entry) -> bool:
        """Whether its label is beyond the classes of the workload."""
        return self.classes is not None and entry.label is not None and entry.label >= self.classes


def shares(epoch: int, per_epoch: int, worker: int, workers: int, sequential: bool) -> list[tuple[int, int]]:
    """What a worker reads of an epoch: first batch and number of batches of each stretch.

    Batches are taken from the workers in turn, from epoch to epoch without a break. A worker that reads from the
    front has as many as it has turns, but side by side.
    """
    begins = epoch * per_epoch % workers  # whose turn the first one is
    turns = [range((other - begins) % workers, per_epoch, workers) for other in range(workers)]
    if not sequential:
        return [(number, 1) for number in turns[worker]]
    return [(sum(map(len, turns[:worker])), len(turns[worker]))]


def mix(entries: Iterable[Entry], most: int, random: np.random.Generator) -> Iterator[Entry]:
    """The same entries in another order, of which at most so many are held at once."""
    held: list[Entry] = []
    for entry in entries:
        held.append(entry)
        if len(held) > most:
            place = int(random.integers(len(held)))
            held[place], held[-1] = held[-1], held[place]
            yield held.pop()
    yield from (held[place] for place in random.permutation(len(held)))


def stack(samples: Sequence[Sample], own_targets: bool) -> Batch | None:
    """Samples as one batch of tensors, their own targets or with labels; None where nothing was readable."""
    arrays = [sample.pixels for sample in samples if sample.pixels is not None]
    if len(arrays) < len(samples):
        return None
    inputs = torch.from_numpy(np.stack(arrays))
    targets = inputs if own_targets else torch.tensor([sample.label for sample in samples])
    skipped = sorted({name for sample in samples for name in sample.skipped})
    return Batch(inputs, targets, tuple(skipped), sum(sample.seconds for sample in samples))


def synthetic_batch(card: Card, batch_size: int, seed: int) -> Batch:
    """One batch generated from `seed`."""
    return as_batch(*synthetic.images(card.problem, batch_size, seed))


def formula_batch(card: Card, batch_size: int) -> Batch:
    """One batch made by `data.formula`."""
    return as_batch(*formula.images(card.problem, batch_size))


def as_batch(inputs: np.ndarray, targets: np.ndarray) -> Batch:
    """Arrays as a batch of tensors, without a copy."""
    return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))


def source_batches(card: Card, task: str, source: Source, batch_size: int, workers: int, seed: int) -> Iterator[Batch]:
    """Endless batches of a source; the workers start at once.

    Raises RunError (`data_error`) when no sample can be read.
    """
    source.share()
    parent = os.getpid()
    loader: DataLoader[Batch | None] = DataLoader(
        Batches(source, card, task, batch_size, seed),
        batch_size=None,  # they are batches already
        num_workers=workers,
        collate_fn=_as_they_are,
        worker_init_fn=lambda _: die_with_parent(parent),
        # Forked workers share what is imported; other ways import it all again in each of them.
        multiprocessing_context="fork" if workers else None,
    )
    return (_readable(batch, source) for batch in iter(loader))


def synthetic_requests(card: Card, batch_size: int, seed: int) -> Iterator[Callable[[], Batch]]:
    """Endless requests of raw images generated from `seed`, cut anew by each that is called."""
    rule, random = card.problem["input"], np.random.default_rng(seed)
    raw = synthetic.photographs(rule, batch_size, seed)

    def make() -> Batch:
        cut = [images.pixels(image, rule, "inference", random) for image in raw]
        return Batch(torch.from_numpy(np.stack(cut)), None)

    return itertools.repeat(make)


def source_requests(card: Card, source: Source, batch_size: int, seed: int) -> Iterator[Callable[[], Batch]]:
    """Endless requests of a source that is not sequential, read when one is called, by the thread that calls.

    A call raises RunError (`data_error`) when no sample can be read.
    """
    source.share()
    batches = Batches(source, card, "inference", batch_size, seed)
    order = batches.order(0)

    def make(start: int) -> Batch:
        return _readable(stack(list(batches.samples(order, 0, start, batch_size)), batches.own_targets), source)

    starts = range(0, batches.per_epoch * batch_size, batch_size)
    return (functools.partial(make, start) for start in itertools.cycle(starts))


def _as_they_are(batch: Batch | None) -> Batch | None:
    return batch


def _readable(batch: Batch | None, source: Source) -> Batch:
    if batch is None:
        raise RunError("data_error", f"no image of {source.path} can be read")
    return batch
