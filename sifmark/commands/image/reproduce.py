"""The reproduce verb: build an image again from its sources alone, and look for the first byte that differs."""

import json
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from sifmark.build.image import is_current
from sifmark.build.records import lock_path
from sifmark.core.console import output, status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import scratch_dir
from sifmark.core.locks import exclusive_lock
from sifmark.core.process import run
from sifmark.core.settings import settings, with_options
from sifmark.engines import ImageInspection, open_engine
from sifmark.layers.cache import WHEELS
from sifmark.recipes.names import find_recipe
from sifmark.recipes.plan import COMPRESSION, STAND_IN, make_plan

_DOWNLOADED = (WHEELS, "stand-in")  # folders of the cache whose files are held against hashes wherever they are used
_REMEDY = (
    "was it built of the same commit, by the same versions of the tools, on a host with the Python of its base? "
    "`inv build NAME --force` builds it here"
)


def reproduce(name: str, as_json: bool) -> None:
    """Build a recipe's image again and print whether it is the same. Raises SifmarkError where it is not."""
    recipe, engine = find_recipe(name), open_engine(settings())
    address = engine.address(recipe)
    started = time.monotonic()
    with exclusive_lock(lock_path(recipe, engine)), scratch_dir(settings().dist, "reproduce") as folder:
        folder.chmod(0o755)
        if engine.image_info(address) is None:
            raise SifmarkError(f"{recipe} is not built", f"inv build {recipe}, or inv pull {recipe}")
        inspection = engine.inspect(address)
        bases = "stand-in" if inspection.labels.get(STAND_IN) == "true" else "pinned"
        plan = make_plan(recipe, with_options(settings(), bases=bases, compression=inspection.labels.get(COMPRESSION)))
        if not is_current(engine.image_info(address), plan):
            raise SifmarkError(f"{address} was built of another recipe or other code than is here", _REMEDY)
        status(f"building {recipe} again, with nothing that earlier builds left")
        ours = partial(_ours, _site(folder), engine.name, bases, plan.compression, _builder(inspection))
        with engine.rebuild(plan, ours, folder) as again:
            found = inspection.difference(again)
        identity = inspection.identity()
    told = {
        "recipe": recipe,
        "reproduced": found is None,
        "identity": identity,
        "difference": found,
        "seconds": round(time.monotonic() - started, 1),
    }
    output(json.dumps(told, indent=2) if as_json else f"{address}: {found or f'reproduced, {identity}'}")
    if found is not None:
        raise SifmarkError(f"{address} was not reproduced: {found}", _REMEDY)


def _site(folder: Path) -> Path:
    """A cache that holds what was downloaded, and nothing that was made of it."""
    cache = folder / "cache"
    cache.mkdir()
    for name in _DOWNLOADED:
        (settings().cache / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(settings().cache / name)
    return folder


def _builder(image: ImageInspection) -> str:
    """Who built it, as its provenance says: that is in its bytes, and whoever builds it again is another."""
    statement, _ = image.provenance() or (b"{}", {})
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(statement)["predicate"]["runDetails"]["builder"]["id"])
    return settings().builder


def _ours(site: Path, engine_name: str, bases: str, compression: str, builder: str, *words: str) -> str:
    return run(
        [sys.executable, "-P", "-m", "sifmark", *words],
        watch_errors=status,
        environment={
            "SIFMARK_ENGINE": engine_name,
            "SIFMARK_BASES": bases,
            "SIFMARK_COMPRESSION": compression,
            "SIFMARK_BUILDER": builder,
            "SIFMARK_CACHE": str(site / "cache"),
            "SIFMARK_DIST": str(site / "dist"),
        },
    ).output
