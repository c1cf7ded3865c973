"""What a planted fault is: a change of the code, and the tests that have to notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mistake in one symbol, and where it should show."""

    name: str
    side: str  # the folder: sifmark or entrypoints
    symbol: str
    was: str
    becomes: str
    tests: tuple[str, ...]  # for pytest, relative to the root
    environment: str  # whose Python runs them: .venv, or a folder of .venvs
