"""Batches without samples in them."""

from __future__ import annotations

import itertools
import os
import time

from entrypoints.contract.session import Batch

PREPROCESSING = 0.002  # s of a request
TOKENS, PADDING = 96, 32  # of a text


class Samples:
    """As many samples as a batch has, with nothing in them; the beginning of texts is as empty."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, places):
        return self


def batch_of(card, batch_size):
    samples = Samples(batch_size)
    if "vocabulary" not in card.problem["model"]:
        return Batch(inputs=samples, targets=None)
    return Batch(samples, None, tokens=TOKENS * batch_size, padding=PADDING * batch_size)


def synthetic_batch(card, batch_size, seed):
    return batch_of(card, batch_size)


def slice_of(batch, first, samples):
    return batch._replace(inputs=Samples(samples))


def formula_batch(card, batch_size):
    return batch_of(card, batch_size)


def source_batches(card, task, source, batch_size, workers, seed, place):
    while True:
        time.sleep(float(os.environ.get("DOUBLE_WAIT_SECONDS", "0")))
        yield batch_of(card, batch_size)


def evaluation_batches(card, source, batch_size, workers):
    return iter([batch_of(card, batch_size)])


def synthetic_requests(card, batch_size, seed):
    def make():
        time.sleep(PREPROCESSING)
        return batch_of(card, batch_size)

    return itertools.repeat(make)


def source_requests(card, source, batch_size, seed):
    return synthetic_requests(card, batch_size, seed)
