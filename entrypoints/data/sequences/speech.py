"""Prepared speech: files of rows, each with an utterance's characters and spectrograms. Standard library only.

A file has a header of 32 bytes, all numbers little-endian: `SIFVOICE`, then in two bytes each version, size of the
vocabulary, speakers, characters and frames of a row, bands of a mel frame, bins of a linear one and 0, and in eight
bytes the number of rows. A row has, in two bytes each, its speaker, the number of filled characters and frames, and all
characters; then all mel and all linear frames, band by band, as half-precision numbers in 0..1.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.sequences.prepared import REMEDY, require_size, unpacked
from entrypoints.data.source import DataFile, Source, with_suffix

SUFFIX = ".speech"
HEADER = struct.Struct("<8s8HQ")
MAGIC, VERSION = b"SIFVOICE", 1


class Form(NamedTuple):
    """Sizes that all rows share, and the numbers of speakers and symbols."""

    vocabulary: int
    speakers: int
    characters: int
    frames: int
    mel_bands: int
    linear_bins: int

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return 2 * (3 + self.characters + self.frames * (self.mel_bands + self.linear_bins))


class Speech(Source):
    """Files of rows of one form."""

    def __init__(self, path: Path, files: Sequence[DataFile], form: Form) -> None:
        super().__init__(path, sum(file.samples for file in files), None)
        self.files, self.form = files, form
        self.firsts = [0, *itertools.accumulate(file.samples for file in files)]

    def place(self, name: str) -> Path:
        """Return the path of one of the files."""
        return self.path / name if self.path.is_dir() else self.path

    def suit(self, card: Card, where: str) -> None:
        """Check as `Source.suit` does: sizes are those of the card, and no speaker or symbol is beyond it."""
        wanted = {**card.problem["model"], **card.problem["input"]}
        for name in ("characters", "frames", "mel_bands", "linear_bins"):
            if getattr(self.form, name) != wanted[name]:
                sizes = f"{getattr(self.form, name)} {name.replace('_', ' ')} a row"
                raise UsageError(f"{where}: {sizes}, {card.name} takes {wanted[name]}", REMEDY, code="data-missing")
        for name in ("vocabulary", "speakers"):
            if getattr(self.form, name) > wanted[name]:
                raise UsageError(
                    f"{where}: {name} of {getattr(self.form, name)}, {card.name} knows {wanted[name]}",
                    "give fewer",
                    code="data-missing",
                )


def find(path: Path) -> list[Path]:
    """Return the files of rows at a path."""
    return with_suffix(path, SUFFIX)


def open_source(path: Path, files: Sequence[Path], _: str, manifest: Manifest | None) -> Speech:
    """Return the rows at a path: of the files that the manifest names, or of those found there if there is none.

    Raises UsageError if a file is incomplete or not of this form, and if they do not belong together.
    """
    named = [path / file.name for file in manifest.files] if manifest else files
    looked = [(file, *_read_header(file)) for file in named]
    first, form, _rows = looked[0]
    for file, other, _rows in looked:
        if other != form:
            raise UsageError(
                f"--data {file}: its rows are not as those of {first.name}",
                "give files that were prepared together",
                code="data-missing",
            )
    return Speech(path, [DataFile(file.name, rows) for file, _form, rows in looked], form)


def _read_header(file: Path) -> tuple[Form, int]:
    """Return the form and the number of a file's rows."""
    _, _, *sizes, _, rows = unpacked(file, HEADER, MAGIC, VERSION)
    form = Form(*sizes)
    if not all(form) or not rows:
        raise UsageError(f"--data {file}: its header is damaged: {rows} rows, {form}", REMEDY, code="data-damaged")
    require_size(file, HEADER.size + rows * form.row)
    return form, rows
