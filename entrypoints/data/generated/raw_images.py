"""Raw images as a decoder leaves them, made up: what requests without data begin with."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
from PIL import Image

# A photograph is larger than what a network takes of it. Half as large again as the card resizes to, and 4:3 as
# cameras have it: 512 x 384 for a shorter side of 256, close to the 500 x 375 that most of ILSVRC's photographs have.
OVERSIZE, ASPECT = 3 / 2, 4 / 3


def photographs(rule: Mapping[str, Any], count: int, seed: int) -> list[Image.Image]:
    """`count` raw images, 8-bit RGB as a decoder leaves them, for a card's `problem.input` to cut: larger than what it
    takes, or as large where it takes the whole."""
    if "cut" in rule:
        shape: tuple[int, ...] = (count, *rule["shape"][1:], 3)
    else:
        height = round(OVERSIZE * rule["inference"]["resize_shorter_side"])
        shape = (count, height, round(ASPECT * height), 3)
    return [Image.fromarray(raw) for raw in np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)]
