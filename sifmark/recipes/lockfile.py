"""Locks: files that name each wheel of a recipe by exact version and hash, for one Python and one platform."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_text
from sifmark.recipes.recipe import Recipe, Target

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<hash>[0-9a-f]{64})$")


@dataclass(frozen=True)
class LockedWheel:
    """One wheel, by exact version and hash."""

    name: str
    version: str
    sha256: str  # hexadecimal

    @property
    def requirement(self) -> str:
        """One line of a lock, as pip reads it."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


def read_lock(path: Path) -> tuple[LockedWheel, ...]:
    """Return the wheels of a lock. Raises SifmarkError naming file and line."""
    if not path.is_file():
        remedy = "write it on a machine with network: `sifmark recipe.lock RECIPE`"
        raise SifmarkError(f"there is no lock {path.name}", remedy, code="lock-missing")
    return tuple(_parse(path))


def write_lock(recipe: Recipe, target: Target, wheels: Iterable[LockedWheel]) -> Path:
    """Write a recipe's lock for a target, completely or not at all, and return its path."""
    path = recipe.lock(target)
    title = f"# Recipe {recipe.name}, Python {target.python}, {target.platform}. Written by: sifmark lock {recipe.name}"
    write_text(path, "\n".join([title, *sorted(wheel.requirement for wheel in wheels)]) + "\n")
    return path


def _parse(path: Path) -> Iterator[LockedWheel]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SifmarkError(f"{path}: {error}", "run `sifmark recipe.lock` again", code="document-invalid") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line.strip())
        if match is None:
            cause = f"{path}, line {number}: not `name==version --hash=sha256:...`"
            raise SifmarkError(cause, "run `sifmark recipe.lock` again", code="document-invalid")
        yield LockedWheel(match["name"], match["version"], match["hash"])
