"""Images as bytes against images as numbers, from the pixels that were cut to the input of a network on the CPU.

Each round times both sides in turn: `numbers` are normalised one by one, stacked (N, C, H, W) and brought into
channels_last, as before images travelled as bytes; `bytes` are stacked, and normalised as a batch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from entrypoints.contract import cards
from entrypoints.contract.session import Batch, Normalisation
from entrypoints.devices.pytorch.shared.transfer import normalised


def main() -> None:
    """Print the ratio of times, its spread, and the largest difference of the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rule = Normalisation.of(cards.load()["resnet50"].problem["input"])
    cut = list(np.random.default_rng(0).integers(256, size=(given.images, 224, 224, 3), dtype=np.uint8))

    def numbers() -> torch.Tensor:
        mean, deviation = (np.asarray(values, np.float32) for values in rule)
        images = [(image.astype(np.float32) / np.float32(255) - mean) / deviation for image in cut]
        stacked = np.stack([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])
        return torch.from_numpy(stacked).contiguous(memory_format=torch.channels_last)

    def as_bytes() -> torch.Tensor:
        inputs: torch.Tensor = normalised(Batch(torch.from_numpy(np.stack(cut)), None, normalisation=rule)).inputs
        return inputs

    print(f"largest difference: {float((numbers() - as_bytes()).abs().max()):.1e}")
    ratios = []
    for number in range(given.pairs):
        seconds = {}
        for side in (numbers, as_bytes) if number % 2 else (as_bytes, numbers):
            began = time.perf_counter()
            side()
            seconds[side] = time.perf_counter() - began
        ratios.append(seconds[as_bytes] / seconds[numbers])
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f"bytes / numbers: {middle:.2f} of the time ({low:.2f} to {high:.2f} in {given.pairs} rounds)")


if __name__ == "__main__":
    main()
