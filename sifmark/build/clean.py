"""Removing what can be made again. Results are never touched."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from sifmark.build.image import context_folder
from sifmark.build.records import lock_path, log_files, record_path
from sifmark.core.files import human_size, remove_stale_drafts
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.layers.cache import remove_all
from sifmark.recipes.recipe import recipe_names


def remove_products(engine: Engine, settings: Settings) -> Iterator[str]:
    """Remove an engine's images of all recipes, and logs and assembled layers, and yield what was removed.

    This waits for running builds. Only what is named after a recipe is removed: the folder may have a user's own files.
    """
    for recipe in recipe_names():
        with exclusive_lock(lock_path(recipe, engine)):
            yield from engine.remove(recipe)
            for path in (record_path(recipe, engine), context_folder(recipe, settings), *log_files(recipe, settings)):
                yield from _remove(path)
    remove_stale_drafts(settings.dist)


def remove_stages(engine: Engine) -> Iterator[str]:
    """Remove wheels, converted bases and layers from the cache, and yield what was removed.

    The registry and the stand-in bases beside them belong to the set-up scripts, and stay.
    """
    yield from engine.prune_stages()
    yield from remove_all()


def _remove(path: Path) -> Iterator[str]:
    if path.is_dir():
        size = sum(file.lstat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
    elif path.exists():
        size = path.stat().st_size
        path.unlink()
    else:
        return
    yield f"{path} ({human_size(size)})"
