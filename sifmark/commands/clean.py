"""Removing what can be made again. Results are never touched."""

import shutil
from pathlib import Path

from sifmark.build.image import context_folder
from sifmark.build.records import lock_path, log_files, record_path
from sifmark.core.console import status
from sifmark.core.files import human_size, remove_stale_drafts
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import settings
from sifmark.engines import open_engine
from sifmark.layers.cache import remove_all
from sifmark.recipes.recipe import recipe_names


def clean(cache: bool) -> None:
    """Remove images of the engine in use, logs and assembled layers; with `cache`, wheels and converted bases too.

    Waits for builds that run. The registry and the stand-in bases that lie beside them in the cache belong to the
    set-up scripts, and stay. Nothing goes that is not named for a recipe: the folder may hold a user's own files.
    """
    site = settings()
    engine = open_engine(site)
    for recipe in recipe_names():
        with exclusive_lock(lock_path(recipe, engine)):
            for gone in engine.remove(recipe):
                status(f"removed {gone}")
            for path in (record_path(recipe, engine), context_folder(recipe, site), *log_files(recipe, site)):
                _remove(path)
    remove_stale_drafts(site.dist)
    if cache:
        for gone in engine.prune_stages():
            status(f"removed {gone}")
        for gone in remove_all():
            status(f"removed {gone}")


def _remove(path: Path) -> None:
    if path.is_dir():
        size = sum(file.lstat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
    elif path.exists():
        size = path.stat().st_size
        path.unlink()
    else:
        return
    status(f"removed {path} ({human_size(size)})")
