"""The formats of prepared data: what goes into one file, which packages they need, and the sources that they read."""

from importlib.util import find_spec
from pathlib import Path

from sifmark.core.console import step
from sifmark.core.errors import UsageError, missing_extra, unknown_name
from sifmark.datasets.image_files import find_images
from sifmark.datasets.images import FILE_FORMATS, ImageSource
from sifmark.datasets.packer import Packer, pack, require_prepared_folder
from sifmark.datasets.source import DatasetSource

SPEECH, TOKENS, PASSAGES = "speech", "tokens", "passages"
# How many images, recordings, lines of text or questions a file has by default.
PER_FILE = {**dict.fromkeys(FILE_FORMATS, 1000), SPEECH: 1000, TOKENS: 1_000_000, PASSAGES: 100_000}
_OPTIONS = {TOKENS: ("tokenizer",), PASSAGES: ("tokenizer", "length")}  # that formats take; the others take a seed
# Packages of the extra `data` that formats need.
EXTRA_PACKAGES = {"records": ["crc32c"], SPEECH: ["numpy"], TOKENS: ["tokenizers"], PASSAGES: ["tokenizers"]}


def missing_packages(format: str) -> list[str]:  # noqa: A002
    """Return the packages that a format needs and that are not installed."""
    return [name for name in EXTRA_PACKAGES.get(format, ()) if find_spec(name) is None]


def prepare(
    source: str | Path,
    target: str | Path,
    format: str = "shards",  # noqa: A002
    *,
    samples_per_file: int = 0,
    seed: int = 0,
    tokenizer: str = "",
    length: int = 0,
    strict: bool = False,
) -> Packer:
    """Pack images, text, questions or speech into files in the folder `target`, and write their manifest.

    What is empty or 0 counts as not given. Raises UsageError for wrong options, and SifmarkError if something is
    damaged and `strict` is set, if everything is damaged, or if a package of the extra `data` is missing.
    """
    if format not in PER_FILE:
        raise unknown_name("format", format, PER_FILE)
    if missing := missing_packages(format):
        raise missing_extra("data", f"--format {format}", missing)
    for name, value in {"seed": seed, "tokenizer": tokenizer, "length": length}.items():
        if value and name not in _OPTIONS.get(format, ("seed",)):
            cause = f"--{name} {value}: --format {format} has no use for it"
            raise UsageError(cause, "leave it out", code="invalid-option")
    require_prepared_folder(Path(target))
    with step(f"look through {source}"):
        dataset = _source(Path(source), format, samples_per_file or PER_FILE[format], seed, tokenizer, length)
    return pack(dataset, Path(target), strict)


def _source(path: Path, format: str, per_file: int, seed: int, tokenizer: str, length: int) -> DatasetSource:  # noqa: A002
    """Return the data at a path as a source. Raises UsageError if there are none."""
    if format in FILE_FORMATS:
        return ImageSource(format, seed, per_file, find_images(path))
    # What the other formats need takes long to import, so each imports its own.
    if format == SPEECH:
        from sifmark.datasets.speech import SpeechSource

        return SpeechSource(path, seed, per_file)
    if format == TOKENS:
        from sifmark.datasets.text import TextSource

        return TextSource(path, tokenizer, per_file)
    from sifmark.datasets.squad import LENGTH, LONGEST_ROW, SHORTEST_ROW, SquadSource

    if length and not SHORTEST_ROW <= length <= LONGEST_ROW:
        cause = f"--length {length} is not from {SHORTEST_ROW} to {LONGEST_ROW}"
        raise UsageError(cause, f"{LENGTH} is usual", code="invalid-option")
    return SquadSource(path, tokenizer, length or LENGTH, per_file)
