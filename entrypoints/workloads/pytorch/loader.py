"""Batches as tensors: one synthetic batch again and again, image files decoded by worker processes, or requests."""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader

from entrypoints.cards import Card, reconstructs
from entrypoints.data import formula, images, synthetic
from entrypoints.data.folder import Listing
from entrypoints.data.samples import ImageFiles, Order, Place, Sample
from entrypoints.lifeline import die_with_parent
from entrypoints.session import Batch
from entrypoints.statuses import RunError


def stack(samples: Sequence[Sample], own_targets: bool) -> Batch | None:
    """Samples as one batch of tensors, their own targets or with labels; None where nothing was readable."""
    arrays = [sample.pixels for sample in samples if sample.pixels is not None]
    if len(arrays) < len(samples):
        return None
    inputs = torch.from_numpy(np.stack(arrays))
    targets = inputs if own_targets else torch.tensor([sample.label for sample in samples])
    skipped = sorted({name for sample in samples for name in sample.skipped})
    return Batch(inputs, targets, tuple(skipped))


def synthetic_batch(card: Card, batch_size: int, seed: int) -> Batch:
    """One batch generated from `seed`."""
    return as_batch(*synthetic.images(card.problem, batch_size, seed))


def formula_batch(card: Card, batch_size: int) -> Batch:
    """One batch made by `data.formula`."""
    return as_batch(*formula.images(card.problem, batch_size))


def as_batch(inputs: np.ndarray, targets: np.ndarray) -> Batch:
    """Arrays as a batch of tensors, without a copy."""
    return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))


def folder_batches(
    card: Card, task: str, folder: Path, listing: Listing, batch_size: int, workers: int, seed: int
) -> Iterator[Batch]:
    """Endless batches of the images listed below `folder`; the workers start at once.

    Raises RunError (`data_error`) when no image can be read.
    """
    files = ImageFiles(folder, listing, card.problem["input"], task, seed)
    parent = os.getpid()
    loader = DataLoader(
        files,  # type: ignore[arg-type]
        batch_sampler=Order(len(listing.images), batch_size, task == "training", seed),  # type: ignore[arg-type]
        num_workers=workers,
        collate_fn=functools.partial(stack, own_targets=reconstructs(card.problem)),
        worker_init_fn=lambda _: die_with_parent(parent),
        # Forked workers share what is imported; other ways import it all again in each of them.
        multiprocessing_context="fork" if workers else None,
    )
    return _checked(iter(loader), folder)


def synthetic_requests(card: Card, batch_size: int, seed: int) -> Iterator[Callable[[], Batch]]:
    """Endless requests of raw images generated from `seed`, cut anew by each that is called."""
    rule, random = card.problem["input"], np.random.default_rng(seed)
    raw = synthetic.photographs(rule, batch_size, seed)

    def make() -> Batch:
        cut = [images.pixels(image, rule, "inference", random) for image in raw]
        return Batch(torch.from_numpy(np.stack(cut)), None)

    return itertools.repeat(make)


def folder_requests(
    card: Card, folder: Path, listing: Listing, batch_size: int, seed: int
) -> Iterator[Callable[[], Batch]]:
    """Endless requests of the images listed below `folder`, read when one is called, by the thread that calls.

    A call raises RunError (`data_error`) when no image can be read.
    """
    files = ImageFiles(folder, listing, card.problem["input"], "inference", seed)

    def make(places: list[Place]) -> Batch:
        return _readable(stack([files[place] for place in places], own_targets=True), folder)

    order = Order(len(listing.images), batch_size, shuffle=False, seed=seed)
    return (functools.partial(make, places) for places in order)


def _checked(batches: Iterator[Batch | None], folder: Path) -> Iterator[Batch]:
    for batch in batches:
        yield _readable(batch, folder)


def _readable(batch: Batch | None, folder: Path) -> Batch:
    if batch is None:
        raise RunError("data_error", f"no image below {folder} can be read")
    return batch
