"""Removing what can be made again. Results are never touched."""

import shutil
from pathlib import Path

from sifmark.build.image import alone, context_folder, lock_of, logs_of, record_of
from sifmark.core.console import say
from sifmark.core.files import human_size, sweep
from sifmark.core.settings import settings
from sifmark.engines import engine
from sifmark.layers.cache import remove_all
from sifmark.recipes.recipe import recipe_names


def clean(cache: bool) -> None:
    """Remove images of the engine in use, logs and assembled layers; with `cache`, wheels and converted bases too.

    Waits for builds that run. The registry and the stand-in bases that lie beside them in the cache belong to the
    set-up scripts, and stay. Nothing goes that is not named for a recipe: the folder may hold a user's own files.
    """
    tool = engine()
    for recipe in recipe_names():
        with alone(lock_of(recipe, tool)):
            for gone in tool.forget(recipe):
                say(f"removed {gone}")
            for path in (record_of(recipe, tool), context_folder(recipe), *logs_of(recipe)):
                _remove(path)
    sweep(settings().dist)
    if cache:
        for gone in tool.forget_stages():
            say(f"removed {gone}")
        for gone in remove_all():
            say(f"removed {gone}")


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
