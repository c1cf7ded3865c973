"""A seeded fault: a change of the code that makes a mutant, and the tests that must kill it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mistake in one symbol, and the tests that should kill the mutant."""

    name: str
    side: str  # the folder: sifmark or entrypoints
    symbol: str
    was: str
    becomes: str
    tests: tuple[str, ...]  # for pytest, relative to the root
    environment: str  # the environment that runs them: .venv, or a folder of .venvs
