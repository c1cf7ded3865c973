"""Made-up inputs of the right shape: what is left when input costs nothing."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np


def images(problem: Mapping[str, Any], batch_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch: standard normal float32 (N, 3, H, W), as normalised photographs have, and int64 labels (N,)."""
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((batch_size, *problem["input"]["shape"]), dtype=np.float32)
    return inputs, random.integers(problem["model"]["classes"], size=batch_size)
