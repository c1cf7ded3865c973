"""Batches without samples in them."""

from __future__ import annotations

import itertools
import os
import time

from entrypoints.contract.session import Batch

PREPROCESSING = 0.002  # s of a request


def synthetic_batch(card, batch_size, seed):
    return Batch(inputs=range(batch_size), targets=None)


def formula_batch(card, batch_size):
    return Batch(inputs=range(batch_size), targets=None)


def source_batches(card, task, source, batch_size, workers, seed):
    while True:
        time.sleep(float(os.environ.get("DOUBLE_WAIT_SECONDS", "0")))
        yield Batch(inputs=range(batch_size), targets=None)


def evaluation_batches(card, source, batch_size, workers):
    return iter([Batch(inputs=range(batch_size), targets=None)])


def synthetic_requests(card, batch_size, seed):
    def make():
        time.sleep(PREPROCESSING)
        return Batch(inputs=range(batch_size), targets=None)

    return itertools.repeat(make)


def source_requests(card, source, batch_size, seed):
    return synthetic_requests(card, batch_size, seed)
