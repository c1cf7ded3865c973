"""Generated raw images, as a decoder returns them: the input of requests without data."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
from PIL import Image

# A photograph is larger than a network's input. These are half as large again as the card resizes to, and 4:3 like
# those of cameras: 512 x 384 for a shorter side of 256, close to the 500 x 375 of most photographs in ILSVRC.
OVERSIZE, ASPECT = 3 / 2, 4 / 3


def photographs(rule: Mapping[str, Any], count: int, seed: int) -> list[Image.Image]:
    """Return `count` raw images, 8-bit RGB as a decoder returns them, for a card's `problem.input` to crop: larger than
    its input, or just as large if it takes the whole image."""
    if "cut" in rule:
        shape: tuple[int, ...] = (count, *rule["shape"][1:], 3)
    else:
        height = round(OVERSIZE * rule["inference"]["resize_shorter_side"])
        shape = (count, height, round(ASPECT * height), 3)
    return [Image.fromarray(raw) for raw in np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)]
