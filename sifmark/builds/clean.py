"""Removing what can be made again. Results are never touched."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sifmark.builds.image import context_folder
from sifmark.builds.records import lock_path, log_files, read_record, record_path
from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size, remove_stale_drafts
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.layers.eviction import remove_all
from sifmark.recipes.recipe import recipe_names


@dataclass(frozen=True)
class Product:
    """What an engine and its builds left of a recipe."""

    recipe: str
    image: str  # its address, empty if there is no image
    size: int  # bytes of the image
    origin: str  # why the image cannot be made again from the recipe alone: signed, pulled, or empty
    files: tuple[Path, ...]  # the record, logs and assembled layers

    @property
    def names(self) -> list[str]:
        """What would be removed, for people."""
        image = (
            [f"{self.image} ({human_size(self.size)}{', ' if self.origin else ''}{self.origin})"] if self.image else []
        )
        return [*image, *map(str, self.files)]


def find_products(engine: Engine, settings: Settings) -> list[Product]:
    """Return what is there of each recipe."""
    products = (_find_product(recipe, engine, settings) for recipe in recipe_names())
    return [product for product in products if product.image or product.files]


def remove_products(engine: Engine, settings: Settings) -> Iterator[str]:
    """Remove an engine's images of all recipes, and logs and assembled layers, and yield what was removed.

    This waits for running builds. Only what is named after a recipe is removed: the folder may have a user's own files.
    """
    for recipe in recipe_names():
        with exclusive_lock(lock_path(recipe, engine)):
            yield from engine.remove(recipe)
            for path in _files(recipe, engine, settings):
                yield _remove(path)
    remove_stale_drafts(settings.dist)


def remove_stages(engine: Engine, settings: Settings) -> Iterator[str]:
    """Remove wheels, converted bases and layers from the cache, and yield what was removed.

    The registry and the stand-in bases beside them belong to the set-up scripts, and stay.
    """
    yield from engine.prune_stages()
    yield from remove_all(settings.cache)


def _find_product(recipe: str, engine: Engine, settings: Settings) -> Product:
    address = engine.address(recipe)
    info = engine.image_info(address)
    files = tuple(_files(recipe, engine, settings))
    if info is None:
        return Product(recipe, "", 0, "", files)
    return Product(recipe, address, info.size, _origin(recipe, address, engine), files)


def _origin(recipe: str, address: str, engine: Engine) -> str:
    record = read_record(recipe, engine, strict=False)
    if record is None or not record.was_built:
        return "pulled"
    try:
        return "signed" if engine.inspect(address).signed() else ""
    except SifmarkError:  # a damaged image is no loss
        return ""


def _files(recipe: str, engine: Engine, settings: Settings) -> list[Path]:
    paths = (record_path(recipe, engine), context_folder(recipe, settings), *log_files(recipe, settings))
    return [path for path in paths if path.exists()]


def _remove(path: Path) -> str:
    if path.is_dir():
        size = sum(file.lstat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
    else:
        size = path.stat().st_size
        path.unlink()
    return f"{path} ({human_size(size)})"
