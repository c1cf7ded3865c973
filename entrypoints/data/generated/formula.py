"""Weights and inputs made by a formula: the same bits from any version of NumPy on any machine.

A number depends only on the name of its array and on its position in it. So every framework starts from the same state,
and what it computes can be compared with stored values.
"""

from __future__ import annotations

import hashlib
import math
from typing import Sequence

import numpy as np

SPREAD = 0.25  # of the values of a vector around their centre
CENTRES = {"weight": 1.0, "running_var": 1.0}  # of vectors, by the last part of their name; otherwise 0
# Added to the biases of forget gates: a cell keeps 99.3 % from step to step, and 26 % over 200 steps.
REMEMBERING = 5.0


def uniform(name: str, shape: Sequence[int]) -> np.ndarray:
    """Return float32 in [-1, 1): the upper bits of SplitMix64 (Steele et al., OOPSLA 2014), seeded by a hash of
    `name`."""
    seed = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u8")
    mixed = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + seed
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    # float32 holds 24 bits exactly.
    return ((mixed >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)).reshape(shape)


def weight(name: str, shape: Sequence[int], remembering: bool = False) -> np.ndarray:
    """Return a parameter or buffer: float32 of `shape`, outputs first, then inputs, then any extent of a kernel.

    Matrices and kernels preserve the magnitude of what passes through them. Vectors lie around 1 if they scale,
    otherwise around 0. With `remembering`, recurrent layers keep their state over a whole series.
    """
    values = uniform(name, shape)
    if len(shape) > 1:
        return values * np.float32(math.sqrt(3 / math.prod(shape[1:])))
    last = name.rpartition(".")[2]
    values = np.float32(CENTRES.get(last, 0.0)) + values * np.float32(SPREAD)
    if remembering and last.startswith("bias_ih"):
        gate = shape[0] // 4  # input, forget, cell and output gates, in PyTorch's order
        values[gate : 2 * gate] += np.float32(REMEMBERING)
    return values


class Formula:
    """Numbers that depend only on the name of an array and on the position in it."""

    def normal(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Return uniform float32 of mean 0 and variance 1."""
        return uniform(name, shape) * np.float32(math.sqrt(3))

    def share(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Return uniform float32 in [0, 1)."""
        return (uniform(name, shape) + np.float32(1)) / np.float32(2)

    def index(self, name: str, shape: Sequence[int], count: int) -> np.ndarray:
        """Return uniform int64 from 0 to `count` - 1."""
        return ((uniform(name, shape).astype(np.float64) + 1) / 2 * count).astype(np.int64)

    def lengths(self, name: str, samples: int, most: int) -> np.ndarray:
        """Return lengths (samples,), all above half of `most`, so that padding is exercised."""
        return most // 2 + 1 + self.index(name, (samples,), most - most // 2)
