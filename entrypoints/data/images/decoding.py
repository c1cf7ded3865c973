"""From an image file to the pixels that a network takes. NumPy and Pillow, no framework.

Pixels stay bytes as long as they travel: a quarter of what normalised ones need.
"""

from __future__ import annotations

import io
import math
from typing import Any, Mapping, NamedTuple, Tuple

import numpy as np
from PIL import Image, ImageOps

from entrypoints.contract.session import Normalisation

Box = Tuple[float, float, float, float]  # left, upper, right, lower in pixels
CROP_ATTEMPTS = 10
JPEGS = ("JPEG", "MPO")  # the second as cameras write it, with a preview
FORMATS = ("JPEG", "PNG", "PPM")  # the last for images of idx files
MOST_PIXELS = 89_478_485  # at which Pillow warns: a quarter of a gigabyte in RGB, and each worker has several copies
MOST_SCANNED = 10 * MOST_PIXELS  # in all scans of a JPEG together; usual are up to ten
SCAN = b"\xff\xda"  # the marker at its start
ORIENTATION, LYING = 0x0112, (5, 6, 7, 8)  # the tag of EXIF, and its values for images on their side
SPARE = 2.0  # pixels for each of an input, in width and height, that a reduced image has at least
BILINEAR = getattr(Image, "Resampling", Image).BILINEAR  # the name before Pillow 9.1


class Cut(NamedTuple):
    """What of an upright image becomes an input: a box in its pixels, and whether it is mirrored."""

    box: Box
    mirrored: bool = False


def decode(content: bytes) -> Image.Image:
    """Return the image of a file, upright and in 8-bit RGB whatever its orientation tag, colour model and depth.

    Raises any exception of Pillow if the file is truncated or not an image, and ValueError if it is too large.
    """
    with opened(content) as file:
        return upright(file)


def pixels_of_file(content: bytes, rule: Mapping[str, Any], task: str, random: np.random.Generator) -> np.ndarray:
    """Return `pixels` of a file's image; raises as `decode` does.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if `SPARE` pixels in width and height are left for each of the
    input. Of photographs the input then differed by 0.1 to 0.3 of 255 in the mean, and by 11 at most.
    """
    with opened(content) as file:
        chosen = cut(upright_size(file), rule, task, random)
        before = max(file.size)
        file.draft("RGB", sufficient(file.size, chosen.box, rule))  # JPEG alone heeds it
        return resized(upright(file), chosen, rule, round(before / max(file.size)))


def pixels(image: Image.Image, rule: Mapping[str, Any], task: str, random: np.random.Generator) -> np.ndarray:
    """Return bytes (height, width, channels), cropped for `task` by a card's `problem.input`."""
    return resized(image, cut(image.size, rule, task, random), rule)


def opened(content: bytes) -> Image.Image:
    """Return an image that is not decoded yet. Raises any exception of Pillow, and ValueError if it is too large."""
    # Pillow would also start Ghostscript for a file of PostScript, whatever its name.
    file = Image.open(io.BytesIO(content), formats=FORMATS)
    size = file.width * file.height
    # A scan of a progressive JPEG may be a few bytes, and takes as long as all pixels do.
    if size > MOST_PIXELS or (file.format in JPEGS and size * content.count(SCAN) > MOST_SCANNED):
        raise ValueError(f"{file.width} x {file.height} pixels in a file of {len(content)} bytes")
    return file


def upright_size(file: Image.Image) -> tuple[int, int]:
    """Return width and height of what `upright` returns."""
    if file.format not in JPEGS:
        file.load()  # the tag may follow the pixels
    width, height = file.size
    return (height, width) if file.getexif().get(ORIENTATION) in LYING else (width, height)


def upright(file: Image.Image) -> Image.Image:
    """Return an opened image, decoded."""
    file.load()
    image = ImageOps.exif_transpose(file) if file.getexif().get(ORIENTATION, 1) != 1 else file
    if image.mode.startswith("I"):
        # Pillow clips 16-bit grey to 8 bits instead of scaling it.
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def cut(size: tuple[int, int], rule: Mapping[str, Any], task: str, random: np.random.Generator) -> Cut:
    """Return what of an image of a size becomes an input for `task`."""
    _, height, width = rule["shape"]
    if "cut" in rule:
        return Cut((0, 0, *size))
    if task == "training":
        box = random_crop(size, rule["training"], random)
        return Cut(box, random.random() < rule["training"]["flip_probability"])
    return Cut(centre_crop(size, rule["inference"]["resize_shorter_side"], width, height))


def sufficient(size: tuple[int, int], box: Box, rule: Mapping[str, Any]) -> tuple[int, int]:
    """Return the least size of a file's image in which a box has `SPARE` times the pixels of an input."""
    scale = max(SPARE * max(rule["shape"][1:]) / min(box[2] - box[0], box[3] - box[1]), 1e-9)
    return (max(1, math.ceil(scale * size[0])), max(1, math.ceil(scale * size[1])))


def resized(image: Image.Image, chosen: Cut, rule: Mapping[str, Any], reduced: int = 1) -> np.ndarray:
    """Return bytes (height, width, channels) of what was chosen of an image, which was decoded at 1/`reduced`."""
    channels, height, width = rule["shape"]
    if channels == 1:
        image = image.convert("L")
    left, upper, right, lower = (edge / reduced for edge in chosen.box)
    box = (left, upper, min(right, image.width), min(lower, image.height))
    image = image.resize((width, height), BILINEAR, box=box)
    if chosen.mirrored:
        image = ImageOps.mirror(image)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


def normalised(pixels: np.ndarray, rule: Normalisation) -> np.ndarray:
    """Return bytes (..., channels) as float32, normalised."""
    scaled = pixels.astype(np.float32)
    scaled /= np.float32(255)
    scaled -= np.asarray(rule.mean, np.float32)
    scaled /= np.asarray(rule.standard_deviation, np.float32)
    return scaled


def random_crop(size: tuple[int, int], rule: Mapping[str, Any], random: np.random.Generator) -> Box:
    """Return a box of random area and aspect inside `size` (Szegedy et al., arXiv:1409.4842, section 6).

    After ten boxes that do not fit, as with very long images, return the largest centred box of an allowed aspect.
    """
    width, height = size
    low, high = rule["crop_aspect"]
    for _ in range(CROP_ATTEMPTS):
        area = width * height * random.uniform(*rule["crop_area"])
        aspect = math.exp(random.uniform(math.log(low), math.log(high)))
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            left, upper = (int(random.integers(free + 1)) for free in (width - wide, height - tall))
            return (left, upper, left + wide, upper + tall)
    aspect = min(max(width / height, low), high)
    wide, tall = min(width, height * aspect), min(height, width / aspect)
    return ((width - wide) / 2, (height - tall) / 2, (width + wide) / 2, (height + tall) / 2)


def centre_crop(size: tuple[int, int], shorter_side: int, width: int, height: int) -> Box:
    """Return the box that is the middle `width` x `height` once the image is resized to a shorter side."""
    scale = shorter_side / min(size)
    wide, tall = round(size[0] * scale), round(size[1] * scale)
    left, upper = (wide - width) // 2, (tall - height) // 2
    across, down = size[0] / wide, size[1] / tall
    return (left * across, upper * down, (left + width) * across, (upper + height) * down)
