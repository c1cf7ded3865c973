"""Images as a user has them, in class folders or idx files, and whether each is complete. None is decoded."""

import gzip
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import human_size
from sifmark.datasets.source import DamagedError, read_item

SUFFIXES = (".jpg", ".jpeg", ".png")
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_START_OF_SCAN, _END = 0xDA, b"\xff\xd9"
# Magic numbers of idx files: unsigned bytes in three dimensions and in one.
_IMAGES, _LABELS = 0x00000803, 0x00000801
_LARGEST_IDX = 1024**3  # bytes: it is read as a whole, and may be compressed a thousandfold


class SourceImage(NamedTuple):
    """An image: its path below the source, its class's index, its size in bytes, and what reads it as JPEG or PNG."""

    name: str
    label: int
    size: int
    read: Callable[[], bytes]


class SourceImages(NamedTuple):
    """All images of a source, in a fixed order, and the names of their classes."""

    classes: list[str]
    images: list[SourceImage]


def find_images(source: Path) -> SourceImages:
    """Return the images at a path. Raises UsageError if there are none."""
    if not source.exists():
        remedy = "name a folder of class folders, or of idx files"
        raise UsageError(f"{source}: no such file or folder", remedy, code="file-missing")
    files = [source] if source.is_file() else sorted(path for path in _visible(source) if path.is_file())
    images = [file for file in files if "images" in file.name and "idx3-ubyte" in file.name]
    if len(images) > 1:
        remedy = f"name one: {', '.join(str(file) for file in images)}"
        raise UsageError(f"{source}: several sets", remedy, code="ambiguous-name")
    result = _of_idx(images[0]) if images else _of_folders(source)
    if not result.images:
        remedy = (
            f"arrange the images as <class>/<image> with {', '.join(SUFFIXES)}, or name idx files; "
            "text and speech need --format tokens, passages or speech"
        )
        raise UsageError(f"{source}: no images", remedy, code="data-missing")
    return result


def kind_of(content: bytes) -> str:
    """Return `jpg` or `png`, by the content. Raises DamagedError for an image that is truncated or neither.

    A PNG with valid checksums and a JPEG with all its markers pass, also if a decoder would refuse them.
    """
    if content.startswith(_PNG):
        _check_png(content)
        return "png"
    if content.startswith(_JPEG):
        _check_jpeg(content)
        return "jpg"
    raise DamagedError("no JPEG and no PNG" if content else "empty")


def grey_png(width: int, height: int, pixels: bytes) -> bytes:
    """Return an 8-bit grey image as PNG. Its pixels are not compressed, so that every zlib gives the same bytes."""
    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, width * height, width))
    blocks = [rows[at : at + 0xFFFF] for at in range(0, len(rows), 0xFFFF)]
    ends = [*[0] * (len(blocks) - 1), 1]
    stored = b"".join(
        struct.pack("<BHH", end, len(b), len(b) ^ 0xFFFF) + b for end, b in zip(ends, blocks, strict=True)
    )
    stream = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(rows))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", stream) + _chunk(b"IEND", b"")


def _visible(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def _of_folders(source: Path) -> SourceImages:
    folders = sorted(path for path in _visible(source) if path.is_dir()) if source.is_dir() else []
    listed = {folder.name: files for folder in folders if (files := _image_files(folder))}
    images = [
        SourceImage(f"{name}/{file.name}", label, file.stat().st_size, partial(read_item, file))
        for label, (name, files) in enumerate(listed.items())
        for file in files
    ]
    return SourceImages(list(listed), images)


def _image_files(folder: Path) -> list[Path]:
    return sorted(path for path in _visible(folder) if path.name.lower().endswith(SUFFIXES) and path.is_file())


def _of_idx(file: Path) -> SourceImages:
    labels_file = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
    (count, height, width), pixels = _read_idx(file, _IMAGES)
    (label_count,), labels = _read_idx(labels_file, _LABELS)
    size = height * width
    if label_count != count:
        cause = f"{file}: {count} images by its header, and {labels_file.name} has {label_count} labels"
        raise UsageError(cause, "download both files again", code="file-damaged")
    images = [
        SourceImage(f"{label}/{at:06d}.png", label, size, partial(_png_of, pixels, at, width, height))
        for at, label in enumerate(labels)
    ]
    return SourceImages([str(label) for label in range(max(labels) + 1)], images)


def _png_of(pixels: bytes, at: int, width: int, height: int) -> bytes:
    return grey_png(width, height, pixels[at * width * height : (at + 1) * width * height])


def _read_idx(file: Path, magic: int) -> tuple[tuple[int, ...], bytes]:
    """Return the extents of an idx file, and as many bytes as they say. Raises SifmarkError for any other."""
    if not file.is_file():
        remedy = "labels lie beside their images, both compressed or both not"
        raise UsageError(f"{file}: no such file", remedy, code="file-missing")
    form = struct.Struct(f">{1 + magic % 256}I")
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            header = stream.read(form.size)
            actual, *extents = form.unpack(header) if len(header) == form.size else (None,)
            size = math.prod(extents)
            if actual != magic or not size:
                cause = f"{file}: its header is not that of an idx file with samples"
                raise UsageError(cause, f"it begins with {magic:#010x}", code="file-damaged")
            if size > _LARGEST_IDX:
                cause = f"{file}: {human_size(size)} by its header, and at most {human_size(_LARGEST_IDX)} are read"
                raise UsageError(cause, "give the images as files in class folders", code="file-damaged")
            content = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SifmarkError(f"{file}: {error}", "download it again", code="file-unreadable") from None
    if len(content) != size:
        there = "more" if len(content) > size else str(len(content))
        cause = f"{file}: {size} bytes by its header, and {there} are there"
        raise UsageError(cause, "download it again", code="file-damaged")
    return tuple(extents), content


def _check_png(content: bytes) -> None:
    """Check a PNG chunk by chunk up to its end."""
    at = len(_PNG)
    while True:
        if at + 12 > len(content):
            raise DamagedError("cut short")
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        end = at + 12 + length
        if end > len(content):
            raise DamagedError("cut short")
        if zlib.crc32(content[at + 4 : end - 4]) != int.from_bytes(content[end - 4 : end], "big"):
            raise DamagedError("a wrong checksum")
        if kind == b"IEND":
            return
        at = end


def _check_jpeg(content: bytes) -> None:
    """Check a JPEG segment by segment up to the first scan, then look for its end: coded data have no such marker."""
    at = 2
    while at + 4 <= len(content):
        if content[at] != 0xFF:
            raise DamagedError(f"no marker at byte {at}")
        if content[at + 1] == _START_OF_SCAN:
            if content.find(_END, at) < 0:
                break
            return
        # A marker may be padded with bytes of 0xFF.
        at += 1 if content[at + 1] == 0xFF else 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    raise DamagedError("cut short")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
