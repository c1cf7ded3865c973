"""Locks: what is read, and what is refused."""

from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.recipes.lockfile import read_lock
from sifmark.recipes.recipe import Target, load_recipe, recipe_names


@pytest.mark.parametrize("line", ["tiny", "tiny>=1", "tiny==1.0", "tiny==1.0 --hash=md5:00", "-r other.txt"])
def test_a_lock_line_without_hash_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "lock.txt").write_text(f"{line}\n")
    with refused(SifmarkError, "document-invalid", "line 1"):
        read_lock(tmp_path / "lock.txt")


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    with refused(SifmarkError, "lock-missing", "none.txt"):
        read_lock(tmp_path / "none.txt")


@pytest.mark.parametrize("name", recipe_names())
def test_locks_hold_what_recipes_require(name: str) -> None:
    recipe = load_recipe(name)
    for lock in paths.LOCKS.glob(f"{name}-cp*.txt"):
        locked = {f"{wheel.name}=={wheel.version}" for wheel in read_lock(lock)}
        assert set(recipe.requires) <= locked, lock
    assert recipe.lock(Target(recipe.base.python, "x86_64")).is_file()
