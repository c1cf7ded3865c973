"""Executables that Graphcore's compilers keep from one run to the next: with some, a run may compile nothing."""

from __future__ import annotations

from pathlib import Path


def described(setting: str, folder: str) -> str:
    """Return in words that a setting names the folder of executables, and whether that had any before the run."""
    return f"{setting} is set, {'some' if has_files(Path(folder)) else 'no'} executables in it"


def has_files(folder: Path) -> bool:
    """Return whether a folder has files; one that is missing has none."""
    return folder.is_dir() and any(folder.iterdir())
