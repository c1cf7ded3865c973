"""Removing what can be made again. Results are never touched."""

import shutil
from pathlib import Path

from sifmark.build import CACHES, alone, context_folder, logs_of, record_of
from sifmark.console import say
from sifmark.files import human_size, sweep
from sifmark.images import images, recipe_file
from sifmark.recipe import recipe_names
from sifmark.settings import settings


def clean(cache: bool) -> None:
    """Remove images, logs and assembled layers; with `cache`, wheels and converted bases too.

    Waits for builds that run. The registry and the stand-in bases that lie beside them in the cache belong to the
    set-up scripts, and stay.
    """
    for recipe in recipe_names():
        with alone(recipe_file(recipe)):
            for path in _products(recipe):
                _remove(path)
    sweep(settings().dist)
    for name in CACHES if cache else ():
        _remove(settings().cache / name)


def _products(recipe: str) -> list[Path]:
    """What a recipe's builds leave. Nothing that is not named for it: the folder may hold a user's own files."""
    file = recipe_file(recipe)
    names = [image.path for image in images() if image.recipe == recipe]
    return [*names, file, record_of(file), context_folder(recipe), *logs_of(recipe)]


def _remove(path: Path) -> None:
    if path.is_dir():
        size = sum(file.lstat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
    elif path.exists():
        size = path.stat().st_size
        path.unlink()
    else:
        return
    say(f"removed {path} ({human_size(size)})")
