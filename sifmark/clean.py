"""Removing what can be made again. Results are never touched."""

import shutil
from pathlib import Path

from sifmark.build import CACHES, record_of
from sifmark.console import say
from sifmark.files import human_size
from sifmark.images import images, recipe_file
from sifmark.recipe import recipe_names
from sifmark.settings import settings


def clean(cache: bool) -> None:
    """Remove images, logs and build folders; with `cache`, wheels and converted bases too.

    The registry and the stand-in bases that lie beside them in the cache belong to the set-up scripts, and stay.
    """
    for path in [*_products(), *(settings().cache / name for name in CACHES if cache)]:
        if path.is_dir():
            size = sum(file.lstat().st_size for file in path.rglob("*"))
            shutil.rmtree(path)
        elif path.exists():
            size = path.stat().st_size
            path.unlink()
        else:
            continue
        say(f"removed {path} ({human_size(size)})")


def _products() -> list[Path]:
    files = [recipe_file(recipe) for recipe in recipe_names()]
    dist = settings().dist
    return [
        *files,
        *(record_of(file) for file in files),
        *(image.path for image in images()),
        dist / "logs",
        *dist.glob(".*.partial-*"),
        Path("build").absolute(),
    ]
