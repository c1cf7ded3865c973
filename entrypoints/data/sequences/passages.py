"""Questions, each with a stretch of the passage that answers it, as rows of one length, in the files of `prepared`.

A row has, for each position, its token and where that begins and ends in the text of the passage, in characters; then
the position where the passage begins, the number of filled positions, first and last position of the answer (0 if it
lies in another stretch), and last, in four bytes, the number of the question in its file. After the rows comes a JSON
line for each passage: its `context` and, for each question in order, the human `answers`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from entrypoints.contract.statuses import RunError, UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.sequences import prepared
from entrypoints.data.sequences.prepared import REMEDY, PreparedText, TokenFile
from entrypoints.data.source import with_suffix

MAGIC = b"SIFSQUAD"
LONGEST_LINE = 1 << 24  # bytes: the passages of SQuAD have a few thousand


class Question(NamedTuple):
    """The context of a question, and the human answers."""

    context: str
    answers: tuple[str, ...]


class Passages(PreparedText):
    """Rows of a question and a stretch of a passage."""

    def fit(self, problem: Mapping[str, Any], where: str) -> None:
        """Check rows as `PreparedText.fit` does."""
        length, most = problem["input"]["length"], problem["model"]["positions"]["most"]
        if self.places > most:
            raise UsageError(
                f"{where} has positions for {most} tokens, and rows have {self.places}", REMEDY, code="data-missing"
            )
        if self.places != length:
            raise UsageError(
                f"{where} takes {length} tokens, and rows have {self.places}",
                f"{REMEDY} --length {length}",
                code="data-missing",
            )

    def questions(self) -> list[list[Question]]:
        """Return the questions of each file, by number. Raises RunError (`data_error`) if they cannot be read."""
        return [list(_questions(file)) for file in self.files]


def _questions(file: TokenFile) -> Iterator[Question]:
    try:
        with file.path.open("rb") as stream:
            stream.seek(file.end)
            while line := stream.readline(LONGEST_LINE):
                passage = json.loads(line)
                if not isinstance(passage["context"], str):
                    raise ValueError("a context that is no text")
                for answers in passage["answers"]:
                    if not answers:
                        raise ValueError("a question without answers")
                    yield Question(passage["context"], tuple(map(str, answers)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError("data_error", f"{file.path}: answers that cannot be read: {error!r:.200}; {REMEDY}") from None


def find(path: Path) -> list[Path]:
    """Return the passage files at a path."""
    return with_suffix(path, ".passages")


def open_source(path: Path, files: Sequence[Path], _: str, manifest: Manifest | None) -> Passages:
    """Return the passages at a path."""
    files_read = prepared.token_files(path, files, MAGIC, manifest)
    if not files_read[0].header.places:
        raise UsageError(
            f"--data {files_read[0].path}: its header says that rows have no places", REMEDY, code="data-damaged"
        )
    return Passages(path, files_read)
