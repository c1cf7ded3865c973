"""One long text as tokens, in one or more files of the form in `prepared`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Sequence

from entrypoints.contract.statuses import UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.sequences import prepared
from entrypoints.data.sequences.prepared import PreparedText
from entrypoints.data.source import with_suffix

MAGIC = b"SIFTOKEN"


class Tokens(PreparedText):
    """A text, read in blocks of a card's length; an epoch has as many as fit into it end to end."""

    def fit(self, problem: Mapping[str, Any], where: str) -> None:
        """Count blocks as `PreparedText.fit` says."""
        self.tokens, self.length = sum(file.header.total for file in self.files), problem["input"]["length"]
        self.samples = (self.tokens - 1) // self.length
        if not self.samples:
            raise UsageError(
                f"{where} takes {self.length} tokens and the one that follows, and there are {self.tokens}",
                "give a longer text",
                code="data-missing",
            )


def find(path: Path) -> list[Path]:
    """Return the token files at a path."""
    return with_suffix(path, ".tokens")


def open_source(path: Path, files: Sequence[Path], _: str, manifest: Manifest | None) -> Tokens:
    """Return the text at a path."""
    return Tokens(path, prepared.token_files(path, files, MAGIC, manifest))
