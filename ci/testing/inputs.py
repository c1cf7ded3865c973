"""One hash over everything that decides a stage's outcome."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from stages import ROOT, Stage, environment_of

# Where tests import modules from.
IMPORT_ROOTS = ("", "tests", "tests/inside", "tests/inside/support", "tests/unit", "benchmarks")
# Folders that appear when a checkout is used, to skip in a tree without git.
MADE = {".venv", ".venvs", "build", "dist", "results", "sources", "__pycache__", ".hypothesis", ".pytest_cache"}
MADE |= {".mypy_cache", ".ruff_cache"}
# Programs outside the repository that image tests run, with the option that prints their version.
PROGRAMS = (("apptainer", "--version"), ("docker", "--version"), ("cosign", "version"), ("mksquashfs", "-version"))


def fingerprint(stage: Stage, full: bool) -> str:
    """Return the hash of the stage's files, environments, programs and selection of tests, on this machine."""
    patterns = {*stage.reads, *stage.files(), *(imported(stage) if stage.name.startswith("images-") else ())}
    parts = {
        "stage": [stage.name, *((stage.full if full else stage.gate) or ())],
        "files": {name: _digest(name) for name in tracked() if _matches(name, patterns)},
        "environments": [environment_of(folder) for folder in _environments(stage)],
        "programs": [_version(words) for words in PROGRAMS] if stage.name.startswith("images-") else [],
        "machine": [_machine(), platform.release()],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@cache
def tracked() -> tuple[str, ...]:
    """Return every file of the working tree that git does not ignore, relative to the root; without git, every file."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        names = set(filter(None, listed.decode().split("\0")))
    except (OSError, subprocess.CalledProcessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = {str(path) for path in paths if not MADE.intersection(path.parts)}
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def imported(stage: Stage) -> set[str]:
    """Return the test modules that a stage's tests import, and theirs, relative to the root, with each conftest.py."""
    pending, files = [ROOT / name for name in stage.files()], set()
    while pending:
        path = pending.pop()
        if path in files or not path.is_file():
            continue
        files.add(path)
        pending += [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT / "tests")]
        pending += [file for name in _imports(path) if (file := _module(name)) is not None]
    return {str(path.relative_to(ROOT)) for path in files}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module(name: str) -> Path | None:
    """Return the file of a test module; None for other modules."""
    candidates = (ROOT / root / f"{name.replace('.', '/')}.py" for root in IMPORT_ROOTS)
    return next((path for path in candidates if path.is_file()), None)


def _environments(stage: Stage) -> Iterable[str]:
    others = (f".venvs/{need}" for need in stage.needs if (ROOT / ".venvs" / need).is_dir())
    return dict.fromkeys([stage.python, *others])


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a file matches one of the patterns, or is below one; an empty pattern means every file."""
    return any(not p or name == p or name.startswith(f"{p}/") or fnmatch(name, p) for p in patterns)


def _digest(name: str) -> str:
    path = ROOT / name
    if not path.is_file():
        return "gone"
    return f"{path.stat().st_mode & 0o100:o}{hashlib.sha256(path.read_bytes()).hexdigest()}"


@cache
def _version(words: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError:
        return f"no {words[0]}"
    return done.stdout.decode(errors="replace")


def _machine() -> str:
    path = Path("/etc/machine-id")
    return path.read_text().strip() if path.is_file() else platform.node()
