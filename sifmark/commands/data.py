"""The command data.prepare: images, text, questions or speech in large files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.commands import framework as cli
from sifmark.core.console import printable
from sifmark.core.errors import UsageError, missing_extra, unknown_name
from sifmark.core.files import human_size
from sifmark.core.terminal import status, step

if TYPE_CHECKING:
    from sifmark.datasets.packer import Packer
    from sifmark.datasets.source import DatasetSource

MOST_NAMED = 5  # of the files that were skipped


@dataclass(frozen=True)
class PrepareOptions:
    """The options of the command line that describe the data; empty ones count as not given."""

    format: str
    samples_per_file: int = 0
    seed: int = 0
    tokenizer: str = ""
    length: int = 0

    def open_source(self, path: Path) -> DatasetSource:
        """Return the data at a path as a source. Raises UsageError."""
        from sifmark.datasets import formats
        from sifmark.datasets.images import FILE_FORMATS

        per_file = self.samples_per_file or formats.PER_FILE[self.format]
        if self.format in FILE_FORMATS:
            self._require_unused("tokenizer", "length")
            return formats.images(path, self.format, per_file, self.seed)
        if self.format == formats.SPEECH:
            self._require_unused("tokenizer", "length")
            return formats.speech(path, per_file, self.seed)
        if self.format == formats.TOKENS:
            self._require_unused("seed", "length")
            return formats.text(path, per_file, self.tokenizer)
        self._require_unused("seed")
        return formats.passages(path, per_file, self.tokenizer, self._length())

    def _length(self) -> int:
        from sifmark.datasets.squad import LENGTH, LONGEST_ROW, SHORTEST_ROW

        if self.length and not SHORTEST_ROW <= self.length <= LONGEST_ROW:
            cause = f"--length {self.length} is not from {SHORTEST_ROW} to {LONGEST_ROW}"
            raise UsageError(cause, f"{LENGTH} is usual", code="invalid-option")
        return self.length or LENGTH

    def _require_unused(self, *names: str) -> None:
        for name in names:
            if value := getattr(self, name):
                cause = f"--{name} {value}: --format {self.format} has no use for it"
                raise UsageError(cause, "leave it out", code="invalid-option")


@cli.command("data.prepare", example="data.prepare photographs/ shards/")
@cli.argument(
    "source",
    "Class folders with JPEG and PNG files, idx files, *.txt or *.jsonl, a SQuAD v1.1 file, or speech in LJSpeech's "
    "layout.",
    completes="folder",
)
@cli.argument("target", "The folder to fill. An interrupted run continues there.", completes="folder")
@cli.option(
    "--format",
    "Images: shards (tar files, PyTorch) or records (TFRecord, TensorFlow); text: tokens; questions: passages; "
    "recordings: speech. [default: shards]",
    name="kind",
    choices=("shards", "records", "tokens", "passages", "speech"),
)
@cli.option(
    "--samples-per-file", "[default: 1000 images or recordings, 1000000 lines of text, 100000 questions]", "N", least=1
)
@cli.option("--seed", "Seed of the order of images and recordings. [default: 0]", "N", least=0)
@cli.flag("--strict", "Refuse damaged files instead of skipping them.")
@cli.option(
    "--tokenizer",
    "For text: vocab.txt, a folder with vocab.json and merges.txt, tokenizer.json, or characters.json. [default: a "
    "token per character]",
    "FILE",
)
@cli.option("--length", "Tokens in a row of passages. [default: 384]", "N", least=1)
def prepare(
    source: str,
    target: str,
    kind: str = "shards",
    samples_per_file: int = 0,
    seed: int = 0,
    strict: bool = False,
    tokenizer: str = "",
    length: int = 0,
) -> None:
    """Convert a data set to shards, TFRecord, tokens or passages."""
    prepare_data(source, target, PrepareOptions(kind, samples_per_file, seed, tokenizer, length), strict)


def prepare_data(source: str, target: str, options: PrepareOptions, strict: bool = False) -> None:
    """Pack what is at `source` into files in the folder `target`, and write their manifest.

    Raises UsageError for wrong options, and SifmarkError if something is damaged and `strict` is set, if everything is
    damaged, or if a package of the extra `data` is missing.
    """
    from sifmark.datasets import formats
    from sifmark.datasets.packer import pack, require_prepared_folder

    if options.format not in formats.PER_FILE:
        raise unknown_name("format", options.format, formats.PER_FILE)
    if missing := formats.missing_packages(options.format):
        raise missing_extra("data", f"--format {options.format}", missing)
    folder = Path(target)
    require_prepared_folder(folder)
    with step(f"look through {source}"):
        dataset = options.open_source(Path(source))
    _report(pack(dataset, folder, strict), target)


def _report(packing: Packer, target: str) -> None:
    document = packing.document()
    size, files = human_size(document["bytes"]), len(document["files"])
    kept = f"; {packing.kept} of them were there already" if packing.kept else ""
    status(f"{target}: {size} with {document['samples']} samples {_kinds(document)} in {files} files{kept}")
    if skipped := document["skipped"]:
        more = ", ..." if len(skipped) > MOST_NAMED else ""
        names = ", ".join(map(printable, skipped[:MOST_NAMED]))
        reason = f"; the first: {packing.why}" if packing.why else ""
        status(f"skipped {len(skipped)} damaged {packing.source.noun}: {names}{more}{reason}")


def _kinds(document: dict[str, Any]) -> str:
    if text := document.get("text"):
        return f"by {text['vocabulary']} different tokens"
    return f"of {len(document['classes'])} {'speakers' if 'speech' in document else 'classes'}"
