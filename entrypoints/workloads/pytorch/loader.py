"""Batches as tensors: one synthetic batch, samples decoded by worker processes, or requests."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from entrypoints.contract.cards import Card, pictures, reconstructs
from entrypoints.contract.group import ALONE, Place
from entrypoints.contract.session import Batch, Normalisation
from entrypoints.data.generated import formula, raw_images, synthetic
from entrypoints.data.images import decoding
from entrypoints.data.images.samples import Reader, Sample, require_readable, shares, stack
from entrypoints.data.sequences import text_batches
from entrypoints.data.sequences.prepared import PreparedText
from entrypoints.data.sequences.speech import Speech
from entrypoints.data.sequences.utterances import Utterances
from entrypoints.data.source import Source
from entrypoints.data.table import TableRows
from entrypoints.system.parent_death import die_with_parent


class Pictures:
    """Batches of images, decoded and stacked: bytes, which a session normalises."""

    def __init__(self, source: Source, card: Card, task: str, seed: int, once: bool) -> None:
        self.reader = Reader(source, card, task, seed)
        self.read = self.reader.each if once else self.reader.samples
        self.own_targets, self.order = reconstructs(card.problem), self.reader.order
        self.normalisation = Normalisation.of(card.problem["input"])

    def stretch(self, order: Sequence[int], epoch: int, first: int, count: int, size: int) -> Iterator[Batch]:
        """Yield `count` batches of `size` samples of an epoch, from batch number `first` on."""
        samples = self.read(order, epoch, first * size, count * size)
        for _ in range(count):
            yield batch_of(list(itertools.islice(samples, size)), self.own_targets, self.normalisation)


class Rows:
    """Batches of prepared text or speech, which needs no decoding."""

    def __init__(self, source: PreparedText | Speech, task: str, seed: int) -> None:
        self.reader: Any = (
            Utterances(source, task, seed) if isinstance(source, Speech) else text_batches.reader(source, task, seed)
        )
        self.samples, self.order = source.samples, self.reader.order

    def stretch(self, order: Sequence[int], epoch: int, first: int, count: int, size: int) -> Iterator[Batch]:
        """Yield `count` batches of at most `size` samples of an epoch, from batch number `first` on."""
        for start in range(first * size, (first + count) * size, size):
            yield self.batch(order, epoch, start, min(size, self.samples - start))

    def batch(self, order: Sequence[int], epoch: int, start: int, count: int) -> Batch:
        """Return `count` samples of an epoch from `start` on. If one is damaged, the batch has only the message."""
        try:
            rows = self.reader.batch(order, epoch, start, count)
        except text_batches.DamagedSequenceError as error:
            return Batch(None, None, (str(error),))
        return as_batch(rows.batch)._replace(decode_seconds=rows.seconds, numbers=rows.numbers)


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Endless batches of a source, of which each worker process makes its part.

    An epoch takes every sample once, without those of a partial last batch. Which samples a batch has depends on the
    seed, not on the workers. With `once` there is a single epoch in order, whose last batch may be smaller, and
    unreadable samples are left out. Of several ranks each makes its part of every global batch.
    """

    def __init__(
        self,
        source: Source,
        card: Card,
        task: str,
        batch_size: int,
        seed: int = 0,
        once: bool = False,
        place: Place = ALONE,
    ) -> None:
        self.source, self.batch_size, self.place = source, batch_size, place
        self.maker = (
            Rows(source, task, seed)
            if isinstance(source, (PreparedText, Speech))
            else Pictures(source, card, task, seed, once)
        )
        self.epochs = 1 if once else sys.maxsize
        self.per_epoch = (
            -(-source.samples // batch_size) if once else source.samples // (batch_size * place.world)
        )  # batches of a rank

    def __iter__(self) -> Iterator[Batch]:
        """Yield this worker's part of every epoch; a batch without readable samples has no inputs."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for epoch in range(self.epochs):
            order = self.maker.order(epoch)
            for first, count in shares(epoch, self.per_epoch, worker, workers, self.source.sequential):
                yield from self.maker.stretch(order, epoch, self.number(first), count, self.batch_size)

    def number(self, own: int) -> int:
        """Return the number among all ranks' batches of one of this rank's own.

        Ranks take turns, or each reads its part of an epoch from the front.
        """
        if self.source.sequential:
            return self.place.rank * self.per_epoch + own
        return own * self.place.world + self.place.rank


def batch_of(samples: Sequence[Sample], own_targets: bool, normalisation: Normalisation) -> Batch:
    """Return the readable samples as one batch of tensors, without inputs if there are none."""
    inputs, targets, skipped, seconds = stack(samples, own_targets)
    if inputs is None or targets is None:
        return Batch(None, None, skipped)
    tensor = torch.from_numpy(inputs)
    targets_of = tensor if own_targets else torch.from_numpy(targets)
    return Batch(tensor, targets_of, skipped, seconds, normalisation=normalisation)


def synthetic_batch(card: Card, batch_size: int, seed: int) -> Batch:
    """Return one batch generated from `seed`."""
    return as_batch(synthetic.batch(card.problem, batch_size, synthetic.SeededRandom(seed)))


def slice_of(batch: Batch, first: int, samples: int) -> Batch:
    """Return so many samples of a batch, from the `first` one on."""
    inputs, targets = (_slice(tensors, first, samples) for tensors in (batch.inputs, batch.targets))
    return batch._replace(inputs=inputs, targets=targets)


def _slice(tensors: Any, first: int, samples: int) -> Any:
    if isinstance(tensors, tuple):
        return tuple(_slice(tensor, first, samples) for tensor in tensors)
    return tensors[first : first + samples].clone()  # so that the rest of the batch is not kept


def formula_batch(card: Card, batch_size: int) -> Batch:
    """Return one batch arrays by `data.generated.formula`."""
    return as_batch(synthetic.batch(card.problem, batch_size, formula.Formula()))


def table_batch(table: TableRows) -> Batch:
    """Return the features (N, F) and targets (N,) of a table as a batch."""
    return as_batch(synthetic.observations(*table))


def as_batch(arrays: synthetic.SyntheticBatch) -> Batch:
    """Return arrays as a batch of tensors."""
    return Batch(tensors(arrays.inputs), tensors(arrays.targets), tokens=arrays.tokens, padding=arrays.padding)


def tensors(arrays: synthetic.Arrays) -> Any:
    """Return arrays as tensors that share their memory."""
    return tuple(map(tensors, arrays)) if isinstance(arrays, tuple) else torch.from_numpy(arrays)


def source_batches(
    card: Card, task: str, source: Source, batch_size: int, workers: int, seed: int, place: Place = ALONE
) -> Iterator[Batch]:
    """Return endless batches of a source, those of a rank; the workers start immediately.

    Raises RunError (`data_error`) if no sample of a batch can be read.
    """
    batches = _loaded(Batches(source, card, task, batch_size, seed, place=place), workers)
    return (require_readable(batch, _unreadable(source, batch)) for batch in batches)


def evaluation_batches(card: Card, source: Source, batch_size: int, workers: int) -> Iterator[Batch]:
    """Return all samples once, in order, cut as for inference. A batch without readable samples has no inputs.

    Raises RunError (`data_error`) if prepared text or speech is damaged, since none of it may be left out.
    """
    batches = _loaded(Batches(source, card, "inference", batch_size, once=True), workers)
    if isinstance(source, (PreparedText, Speech)):
        return (require_readable(batch, _unreadable(source, batch)) for batch in batches)
    return batches


def _loaded(batches: Batches, workers: int) -> Iterator[Batch]:
    batches.source.share()
    parent = os.getpid()
    loader: DataLoader[Batch] = DataLoader(
        batches,
        batch_size=None,  # the dataset yields batches already
        num_workers=workers,
        collate_fn=_unchanged,
        worker_init_fn=lambda _: die_with_parent(parent),
        # Forked workers share imported modules; other start methods import them again in each worker.
        multiprocessing_context="fork" if workers else None,
    )
    return iter(loader)


def synthetic_requests(card: Card, batch_size: int, seed: int) -> Iterator[Callable[[], Batch]]:
    """Return endless requests generated from `seed`. Each call cuts raw images again; other data stay the same."""
    if not pictures(card.problem):
        batch = synthetic_batch(card, batch_size, seed)
        return itertools.repeat(lambda: batch)
    rule, random = card.problem["input"], np.random.default_rng(seed)
    raw, normalisation = raw_images.photographs(rule, batch_size, seed), Normalisation.of(rule)

    def make() -> Batch:
        cut = [decoding.pixels(image, rule, "inference", random) for image in raw]
        return Batch(torch.from_numpy(np.stack(cut)), None, normalisation=normalisation)

    return itertools.repeat(make)


def source_requests(card: Card, source: Source, batch_size: int, seed: int) -> Iterator[Callable[[], Batch]]:
    """Return endless requests of a source that is not sequential. Each call reads its samples in the calling thread.

    A call raises RunError (`data_error`) if none of its samples can be read.
    """
    source.share()
    batches = Batches(source, card, "inference", batch_size, seed)
    order = batches.maker.order(0)

    def make(number: int) -> Batch:
        batch = next(batches.maker.stretch(order, 0, number, 1, batch_size))
        return require_readable(batch, _unreadable(source, batch))

    return (functools.partial(make, number) for number in itertools.cycle(range(batches.per_epoch)))


def _unchanged(batch: Batch) -> Batch:
    return batch


def _unreadable(source: Source, batch: Batch) -> str:
    damaged = isinstance(source, (PreparedText, Speech)) and batch.skipped
    return batch.skipped[0] if damaged else f"no image of {source.path} can be read"
