"""Made-up inputs of the right shape: what is left when input costs nothing."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
from PIL import Image

# A photograph is larger than what a network takes of it. Half as large again as the card resizes to, and 4:3 as
# cameras have it: 512 x 384 for a shorter side of 256, close to the 500 x 375 that most of ILSVRC's photographs have.
OVERSIZE, ASPECT = 3 / 2, 4 / 3


def photographs(rule: Mapping[str, Any], count: int, seed: int) -> list[Image.Image]:
    """`count` raw images, 8-bit RGB as a decoder leaves them, for a card's `problem.input` to cut."""
    height = round(OVERSIZE * rule["inference"]["resize_shorter_side"])
    shape = (count, height, round(ASPECT * height), 3)
    return [Image.fromarray(raw) for raw in np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)]


def images(problem: Mapping[str, Any], batch_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch: standard normal float32 (N, 3, H, W), as normalised photographs have, and int64 labels (N,)."""
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((batch_size, *problem["input"]["shape"]), dtype=np.float32)
    return inputs, random.integers(problem["model"]["classes"], size=batch_size)
