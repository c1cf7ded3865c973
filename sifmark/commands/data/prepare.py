"""The prepare-data command: pack images, text, questions or speech into large files."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sifmark.commands.arguments import parse_int
from sifmark.core.console import printable, status, step
from sifmark.core.errors import UsageError, missing_extra, unknown_name
from sifmark.core.files import human_size
from sifmark.datasets.image_files import find_images
from sifmark.datasets.images import FILE_FORMATS, ImageSource
from sifmark.datasets.packer import Packer, pack, require_prepared_folder
from sifmark.datasets.source import DatasetSource

MOST_NAMED = 5  # of the originals that were skipped
# What goes into a file by default: images, recordings, lines of text, questions.
PER_FILE = {**dict.fromkeys(FILE_FORMATS, 1000), "speech": 1000, "tokens": 1_000_000, "passages": 100_000}

# Packages of the extra `data` by the formats that need them.
EXTRA = {"records": ["crc32c"], "speech": ["numpy"], "tokens": ["tokenizers"], "passages": ["tokenizers"]}


def prepare_data(
    source: str,
    target: str,
    format: str,  # noqa: A002
    samples_per_file: str = "",
    seed: str = "",
    strict: bool = False,
    tokenizer: str = "",
    length: str = "",
) -> None:
    """Make files in the folder `target` of what lies at `source`, and write their manifest.

    Raises UsageError for what cannot be meant, and SifmarkError where something is damaged and `strict`, or all is, or
    a package of the extra `data` is missing.
    """
    if format not in PER_FILE:
        raise unknown_name("format", format, PER_FILE)
    if missing := [name for name in EXTRA.get(format, ()) if find_spec(name) is None]:
        raise missing_extra("data", f"--format {format}", missing)
    folder = Path(target)
    require_prepared_folder(folder)
    with step(f"look through {source}"):
        order = _order(Path(source), format, samples_per_file, seed, tokenizer, length)
    packing = pack(order, folder, strict)
    _tell(packing.document(), packing, target)


def _order(source: Path, format: str, samples_per_file: str, seed: str, tokenizer: str, length: str) -> DatasetSource:  # noqa: A002
    """What is asked for. Text and speech need libraries that are loaded for them alone."""
    per_file = parse_int("--samples-per-file", samples_per_file or str(PER_FILE[format]), 1)
    if format in FILE_FORMATS:
        _require_none(format, tokenizer=tokenizer, length=length)
        return ImageSource(format, parse_int("--seed", seed or "0", 0), per_file, find_images(source))
    if format == "speech":
        from sifmark.datasets.speech import SpeechSource

        _require_none(format, tokenizer=tokenizer, length=length)
        return SpeechSource(source, parse_int("--seed", seed or "0", 0), per_file)
    if format == "tokens":
        from sifmark.datasets.text import TextSource

        _require_none(format, seed=seed, length=length)
        return TextSource(source, tokenizer, per_file)
    from sifmark.datasets.squad import LENGTH, LONGEST_ROW, SHORTEST_ROW, SquadSource

    _require_none(format, seed=seed)
    places = parse_int("--length", length or str(LENGTH), SHORTEST_ROW, LONGEST_ROW)
    return SquadSource(source, tokenizer, places, per_file)


def _require_none(format: str, **options: str) -> None:  # noqa: A002
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name} {value}: --format {format} has no use for it", "leave it out")


def _tell(document: dict[str, Any], packing: Packer, target: str) -> None:
    size, skipped = human_size(document["bytes"]), document["skipped"]
    before = f"; {packing.kept} of them were there already" if packing.kept else ""
    text, kinds = document.get("text"), "speakers" if "speech" in document else "classes"
    what = f"by {text['vocabulary']} different tokens" if text else f"of {len(document['classes'])} {kinds}"
    status(f"{target}: {size} with {document['samples']} samples {what} in {len(document['files'])} files{before}")
    if skipped:
        more = ", ..." if len(skipped) > MOST_NAMED else ""
        named = ", ".join(map(printable, skipped[:MOST_NAMED]))
        why = f"; the first: {packing.why}" if packing.why else ""
        status(f"skipped {len(skipped)} damaged {packing.order.noun}: {named}{more}{why}")
