"""From an image file to the pixels that a network takes. NumPy and Pillow, no framework.

Pixels stay bytes as long as they travel: a quarter of what normalised ones need.
"""

from __future__ import annotations

import io
import math
from typing import Any, Mapping, Tuple

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
BILINEAR = getattr(Image, "Resampling", Image).BILINEAR  # the name before Pillow 9.1


def decode(content: bytes) -> Image.Image:
    """Return the image of a file, upright and in 8-bit RGB whatever its orientation tag, colour model and depth.

    Raises any exception of Pillow if the file is truncated or not an image, and ValueError if it is too large.
    """
    # Pillow would also start Ghostscript for a file of PostScript, whatever its name.
    with Image.open(io.BytesIO(content), formats=FORMATS) as file:
        size = file.width * file.height
        # A scan of a progressive JPEG may be a few bytes, and takes as long as all pixels do.
        if size > MOST_PIXELS or (file.format in JPEGS and size * content.count(SCAN) > MOST_SCANNED):
            raise ValueError(f"{file.width} x {file.height} pixels in a file of {len(content)} bytes")
        image = ImageOps.exif_transpose(file)
        image.load()
    if image.mode.startswith("I"):
        # Pillow clips 16-bit grey to 8 bits instead of scaling it.
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def pixels(image: Image.Image, rule: Mapping[str, Any], task: str, random: np.random.Generator) -> np.ndarray:
    """Return bytes (height, width, channels), cropped for `task` by a card's `problem.input`."""
    channels, height, width = rule["shape"]
    if channels == 1:
        image = image.convert("L")
    if "cut" in rule:
        image = image.resize((width, height), BILINEAR)
    elif task == "training":
        image = image.resize((width, height), BILINEAR, box=random_crop(image.size, rule["training"], random))
        if random.random() < rule["training"]["flip_probability"]:
            image = ImageOps.mirror(image)
    else:
        image = centre_crop(image, rule["inference"]["resize_shorter_side"], width, height)
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


def centre_crop(image: Image.Image, shorter_side: int, width: int, height: int) -> Image.Image:
    """Return the middle `width` x `height` of the image resized to a shorter side of `shorter_side`.

    Raises ValueError if the resized image would have more pixels than are decoded.
    """
    scale = shorter_side / min(image.size)
    wide, tall = round(image.width * scale), round(image.height * scale)
    if wide * tall > MOST_PIXELS:
        raise ValueError(f"{image.width} x {image.height} pixels would be resized to {wide} x {tall}")
    resized = image.resize((wide, tall), BILINEAR)
    left, upper = (resized.width - width) // 2, (resized.height - height) // 2
    return resized.crop((left, upper, left + width, upper + height))
