"""Weights and inputs made by a formula: the same bits from NumPy of any version on any machine.

A number depends on the name of its array and on its place there alone. So every framework starts from one state,
and what it computes can be compared with stored values.
"""

from __future__ import annotations

import hashlib
import math
from typing import Sequence

import numpy as np

SPREAD = 0.25  # of the values of a vector around their centre
CENTRES = {"weight": 1.0, "running_var": 1.0}  # of vectors, by the last part of their name; else 0


def uniform(name: str, shape: Sequence[int]) -> np.ndarray:
    """Float32 in [-1, 1): the upper bits of SplitMix64 (Steele et al., OOPSLA 2014), started from the name's hash."""
    seed = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u8")
    mixed = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + seed
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    # 24 bits are what float32 holds exactly.
    return ((mixed >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)).reshape(shape)


def weight(name: str, shape: Sequence[int]) -> np.ndarray:
    """A parameter or buffer: float32 of `shape`, outputs first, then inputs, then any extent of a kernel.

    Matrices and kernels keep the size of what passes through them. Vectors lie around 1 where they
    scale, else around 0.
    """
    values = uniform(name, shape)
    if len(shape) > 1:
        return values * np.float32(math.sqrt(3 / math.prod(shape[1:])))
    return np.float32(CENTRES.get(name.rpartition(".")[2], 0.0)) + values * np.float32(SPREAD)


class Formula:
    """Numbers that depend on the name of what is drawn, and on the place there, alone."""

    def normal(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Uniform of variance 1."""
        return uniform(name, shape) * np.float32(math.sqrt(3))

    def share(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Uniform."""
        return (uniform(name, shape) + np.float32(1)) / np.float32(2)

    def index(self, name: str, shape: Sequence[int], count: int) -> np.ndarray:
        """Uniform."""
        return ((uniform(name, shape).astype(np.float64) + 1) / 2 * count).astype(np.int64)

    def lengths(self, name: str, samples: int, most: int) -> np.ndarray:
        """From half of it on, so that what is done about padding shows."""
        return most // 2 + 1 + self.index(name, (samples,), most - most // 2)
