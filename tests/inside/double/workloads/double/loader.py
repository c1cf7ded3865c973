"""Batches without samples in them."""

from __future__ import annotations

import itertools

from entrypoints.session import Batch


def synthetic_batch(card, batch_size, seed):
    return Batch(inputs=range(batch_size), targets=None)


def formula_batch(card, batch_size):
    return Batch(inputs=range(batch_size), targets=None)


def folder_batches(card, task, folder, listing, batch_size, workers, seed):
    return itertools.repeat(Batch(inputs=range(batch_size), targets=None))
