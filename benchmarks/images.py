"""Images as bytes against images as numbers, from the pixels that were cut to the input of a network on the CPU; and
JPEGs decoded at a fraction of their size against whole ones.

Each round times both sides in turn: `numbers` are normalised one by one, stacked (N, C, H, W) and brought into
channels_last, as before images travelled as bytes; `bytes` are stacked, and normalised as a batch.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from PIL import Image

from entrypoints.contract import cards
from entrypoints.contract.session import Batch, Normalisation
from entrypoints.data.images import decoding
from entrypoints.devices.pytorch.shared.transfer import normalised

SIZES = ((500, 375), (1024, 768), (4000, 3000))  # of most photographs in ILSVRC, of the web, and of cameras


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
    for size in SIZES:
        for task in ("training", "inference"):
            decode(size, task, given.pairs)


def decode(size: tuple[int, int], task: str, pairs: int) -> None:
    """Print how many JPEGs of a size a processor decodes and cuts in a second, and the ratio to whole ones."""
    rule, content, count = cards.load()["resnet50"].problem["input"], photograph(size), enough(size)

    def whole(random: np.random.Generator) -> np.ndarray:
        return decoding.pixels(decoding.decode(content), rule, task, random)

    def fraction(random: np.random.Generator) -> np.ndarray:
        return decoding.pixels_of_file(content, rule, task, random)

    rates: dict[object, list[float]] = {whole: [], fraction: []}
    for number in range(pairs):
        for side in (whole, fraction) if number % 2 else (fraction, whole):
            began = time.process_time()
            for seed in range(count):
                side(np.random.default_rng(seed))
            rates[side].append(count / (time.process_time() - began))
    ratios = [after / before for before, after in zip(rates[whole], rates[fraction], strict=True)]
    print(
        f"JPEG {size[0]} x {size[1]}, {len(content) // 1000} kB, {task}: {statistics.median(rates[fraction]):.0f} "
        f"images/s, {statistics.median(ratios):.2f} times whole ones ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def photograph(size: tuple[int, int], seed: int = 0) -> bytes:
    """Return a JPEG of coarse and fine noise, as large as photographs are."""
    noise = np.random.default_rng(seed)
    coarse = Image.fromarray(noise.integers(256, size=(size[1] // 16, size[0] // 16, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize(size), np.float64) + noise.normal(0, 6, (size[1], size[0], 3))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def enough(size: tuple[int, int]) -> int:
    """Return the images of a size that take long enough to be timed."""
    return max(2, 10_000_000 // (size[0] * size[1]))


class Dali:
    """NVIDIA's DALI, given the same files and cuts: a GPU decodes by nvJPEG, the CPU by one thread. Pixels differ from
    Pillow's by 0.2 of 255 in the mean.

    docs.nvidia.com/deeplearning/dali: external_source, decoders.image_slice, resize, flip.
    """

    def __init__(self, contents: list[bytes], task: str, device: str) -> None:
        from nvidia.dali import fn, pipeline_def, types  # of NVIDIA's images

        rule = cards.load()["resnet50"].problem["input"]
        _, height, width = rule["shape"]
        gpu, each = device != "cpu", [np.frombuffer(content, np.uint8) for content in contents]

        def source() -> tuple[list[np.ndarray], ...]:
            cuts = [self.cut(content, rule, task, seed) for seed, content in enumerate(contents)]
            starts = [np.array([upper, left], np.float32) for (left, upper, _, _), _ in cuts]
            shapes = [np.array([lower - upper, right - left], np.float32) for (left, upper, right, lower), _ in cuts]
            return each, starts, shapes, [np.array(mirrored, np.int32) for _, mirrored in cuts]

        @pipeline_def  # type: ignore[untyped-decorator]
        def pipeline() -> object:
            kinds = [types.UINT8, types.FLOAT, types.FLOAT, types.INT32]
            files, starts, shapes, mirrored = fn.external_source(
                source=source, num_outputs=4, dtype=kinds, ndim=[1, 1, 1, 0]
            )
            part = {"axis_names": "HW", "normalized_anchor": False, "normalized_shape": False}
            images = fn.decoders.image_slice(files, starts, shapes, device="mixed" if gpu else "cpu", **part)
            images = fn.resize(images, resize_y=height, resize_x=width, interp_type=types.INTERP_LINEAR)
            return fn.flip(images, horizontal=mirrored)

        self.pipeline = pipeline(batch_size=len(contents), num_threads=1, device_id=0 if gpu else None)
        self.pipeline.build()

    @staticmethod
    def cut(content: bytes, rule: dict[str, object], task: str, seed: int) -> decoding.Cut:
        """Return what of a file is taken, from its header alone."""
        with decoding.opened(content) as file:
            return decoding.cut(decoding.upright_size(file), rule, task, np.random.default_rng(seed))

    def batch(self) -> np.ndarray:
        """Return the next batch on the host, (N, H, W, 3)."""
        (images,) = self.pipeline.run()
        return np.asarray((images.as_cpu() if hasattr(images, "as_cpu") else images).as_array())


if __name__ == "__main__":
    main()
