"""Batches as tensors: one synthetic batch again and again, samples decoded by worker processes, or requests."""

from __future__ import annotations

import functools
import itertools
import os
from typing import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from entrypoints.cards import Card, reconstructs
from entrypoints.data import formula, images, synthetic
from entrypoints.data.samples import Reader, Sample, shares
from entrypoints.data.source import Source
from entrypoints.lifeline import die_with_parent
from entrypoints.session import Batch
from entrypoints.statuses import RunError


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Endless batches of a source; a worker process has those whose turn it is.

    An epoch takes every sample once, but those of a partial last batch. Which samples it takes depends on the seed
    alone, and not on the workers.
    """

    def __init__(self, source: Source, card: Card, task: str, batch_size: int, seed: int) -> None:
        self.reader, self.batch_size = Reader(source, card, task, seed), batch_size
        self.per_epoch = source.samples // batch_size
        self.own_targets = reconstructs(card.problem)

    def __iter__(self) -> Iterator[Batch | None]:
        """Yield this worker's share of every epoch; None where not one sample of the source is readable."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for epoch in itertools.count():
            order = self.reader.order(epoch)
            for first, count in shares(epoch, self.per_epoch, worker, workers, self.reader.source.sequential):
                yield from self.stretch(order, epoch, first, count)

    def stretch(self, order: Sequence[int], epoch: int, first: int, count: int) -> Iterator[Batch | None]:
        """So many batches of an epoch from the one of this number on."""
        samples = self.reader.samples(order, epoch, first * self.batch_size, count * self.batch_size)
        for _ in range(count):
            yield stack(list(itertools.islice(samples, self.batch_size)), self.own_targets)


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
    order = batches.reader.order(0)

    def make(number: int) -> Batch:
        return _readable(next(batches.stretch(order, 0, number, 1)), source)

    return (functools.partial(make, number) for number in itertools.cycle(range(batches.per_epoch)))


def _as_they_are(batch: Batch | None) -> Batch | None:
    return batch


def _readable(batch: Batch | None, source: Source) -> Batch:
    if batch is None:
        raise RunError("data_error", f"no image of {source.path} can be read")
    return batch
