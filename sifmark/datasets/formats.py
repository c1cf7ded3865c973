"""The formats of prepared data: what goes into one file, which packages they need, and the sources that they read."""

from importlib.util import find_spec
from pathlib import Path

from sifmark.datasets.image_files import find_images
from sifmark.datasets.images import FILE_FORMATS, ImageSource
from sifmark.datasets.source import DatasetSource

SPEECH, TOKENS, PASSAGES = "speech", "tokens", "passages"
# How many images, recordings, lines of text or questions a file has by default.
PER_FILE = {**dict.fromkeys(FILE_FORMATS, 1000), SPEECH: 1000, TOKENS: 1_000_000, PASSAGES: 100_000}
# Packages of the extra `data` that formats need.
EXTRA_PACKAGES = {"records": ["crc32c"], SPEECH: ["numpy"], TOKENS: ["tokenizers"], PASSAGES: ["tokenizers"]}


def missing_packages(format: str) -> list[str]:  # noqa: A002
    """Return the packages that a format needs and that are not installed."""
    return [name for name in EXTRA_PACKAGES.get(format, ()) if find_spec(name) is None]


def images(path: Path, format: str, per_file: int, seed: int) -> DatasetSource:  # noqa: A002
    """Return images as a source of data. Raises UsageError if there are none."""
    return ImageSource(format, seed, per_file, find_images(path))


# What the other formats need takes long to import, so each imports its own.


def speech(path: Path, per_file: int, seed: int) -> DatasetSource:
    """Return recordings as a source of data. Raises UsageError if there are none."""
    from sifmark.datasets.speech import SpeechSource

    return SpeechSource(path, seed, per_file)


def text(path: Path, per_file: int, tokenizer: str) -> DatasetSource:
    """Return text as a source of data. Raises UsageError if there is none."""
    from sifmark.datasets.text import TextSource

    return TextSource(path, tokenizer, per_file)


def passages(path: Path, per_file: int, tokenizer: str, length: int) -> DatasetSource:
    """Return questions with their passages as a source of data; a row has `length` tokens. Raises UsageError."""
    from sifmark.datasets.squad import SquadSource

    return SquadSource(path, tokenizer, length, per_file)
