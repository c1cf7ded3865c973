"""Building an image again from its sources alone, to find the first byte that differs."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sifmark.builds.image import is_current
from sifmark.builds.records import lock_path
from sifmark.core.console import status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import scratch_dir
from sifmark.core.locks import exclusive_lock
from sifmark.core.process import run_sifmark
from sifmark.core.settings import Settings, with_options
from sifmark.engines import Engine, ImageInspection
from sifmark.layers import installers
from sifmark.layers.cache import WHEELS
from sifmark.recipes.labels import COMPRESSION, STAND_IN
from sifmark.recipes.plan import Plan, make_plan

_DOWNLOADED = (WHEELS, "stand-in")  # folders of the cache whose files are checked by hash whenever they are used
REPRODUCTION_REMEDY = (
    "was it built of the same commit, by the same versions of the tools, on a host with the Python of its base? "
    "`sifmark build NAME --force` builds it here"
)


@dataclass(frozen=True)
class Reproduction:
    """A recipe's image and its second build."""

    recipe: str
    address: str
    identity: str
    difference: str | None  # the first one
    seconds: float


def reproduce_image(recipe: str, engine: Engine, settings: Settings) -> Reproduction:
    """Build a recipe's image again, without anything that earlier builds left.

    Raises SifmarkError if it is not built, or was built from other sources than are here.
    """
    installers.require_packages("building it again")
    address = engine.address(recipe)
    started = time.monotonic()
    with exclusive_lock(lock_path(recipe, engine)), scratch_dir(settings.dist, "reproduce") as folder:
        folder.chmod(0o755)
        if engine.image_info(address) is None:
            remedy = f"sifmark build {recipe}, or sifmark registry.pull {recipe}"
            raise SifmarkError(f"{recipe} is not built", remedy, code="image-not-built")
        inspection = engine.inspect(address)
        plan = _plan(recipe, inspection, settings)
        if not is_current(engine.image_info(address), plan):
            cause = f"{address} was built from another recipe or other code than those here"
            raise SifmarkError(cause, REPRODUCTION_REMEDY, code="image-stale")
        status(f"building {recipe} again, with nothing that earlier builds left")
        run_command = partial(_run_command, _site(folder, plan, engine, inspection, settings))
        with engine.rebuild(plan, run_command, folder) as rebuilt:
            difference = inspection.difference(rebuilt)
        identity = inspection.identity()
    return Reproduction(recipe, address, identity, difference, time.monotonic() - started)


def _plan(recipe: str, inspection: ImageInspection, settings: Settings) -> Plan:
    bases = "stand-in" if inspection.labels.get(STAND_IN) == "true" else "pinned"
    return make_plan(recipe, with_options(settings, bases=bases, compression=inspection.labels.get(COMPRESSION)))


def _site(folder: Path, plan: Plan, engine: Engine, inspection: ImageInspection, settings: Settings) -> dict[str, str]:
    """Return the variables of a site whose cache has what was downloaded, and nothing that was made from it."""
    cache = folder / "cache"
    cache.mkdir()
    for name in _DOWNLOADED:
        (settings.cache / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(settings.cache / name)
    return {
        "SIFMARK_ENGINE": engine.name,
        "SIFMARK_BASES": "stand-in" if plan.base.stand_in else "pinned",
        "SIFMARK_COMPRESSION": plan.compression,
        "SIFMARK_BUILDER": _builder(inspection) or settings.builder,
        "SIFMARK_CACHE": str(cache),
        "SIFMARK_DIST": str(folder / "dist"),
    }


def _builder(inspection: ImageInspection) -> str:
    """Return who built an image according to its provenance, whose bytes depend on it; empty if it does not say."""
    statement, _ = inspection.provenance() or (b"{}", {})
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(statement)["predicate"]["runDetails"]["builder"]["id"])
    return ""


def _run_command(environment: dict[str, str], *arguments: str) -> str:
    return run_sifmark(arguments, environment, watch_errors=status).output
