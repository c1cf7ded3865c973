"""Our own files that go into every image: the entrypoints and the schemas."""

from functools import cache
from pathlib import Path

from sifmark.core import paths
from sifmark.core.files import sha256_tree

_SUFFIXES = (".py", ".json")  # of the entrypoints; `run` has none


def shipped_files() -> dict[str, Path]:
    """Return the files of ours in every image, by their path below `/sifmark`."""
    entrypoints = [
        path for path in paths.ENTRYPOINTS.rglob("*") if path.suffix in _SUFFIXES or path == paths.ENTRYPOINTS / "run"
    ]
    schemas = paths.SCHEMAS.glob("*.json")  # without the examples, which are in a folder below
    return {str(path.relative_to(paths.ROOT)): path for path in sorted([*entrypoints, *schemas]) if path.is_file()}


@cache
def code_hash() -> str:
    """Return the hash of these files' names and contents."""
    return sha256_tree(shipped_files())
