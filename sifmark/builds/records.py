"""Records and logs of builds: what was made or fetched, by what, and when.

A record is a JSON file in the engine's home, beside its images. It may be missing or damaged, or have come along with a
copied image; what this user has built or verified is in the ledger.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from sifmark import __version__
from sifmark.builds import ledger
from sifmark.core.errors import REBUILD_REMEDY
from sifmark.core.files import read_bounded, write_json
from sifmark.core.settings import Settings
from sifmark.engines import BuiltImage, CheckFailed, Engine
from sifmark.recipes.labels import BUILD_KEY, COMPRESSION, STAND_IN
from sifmark.recipes.plan import Plan

_LARGEST = 1 << 20  # bytes of a record


@dataclass(frozen=True)
class BuildRecord:
    """What was written down beside an image when it was built, converted or pulled."""

    fields: Mapping[str, Any]  # all of it, as in the file
    identity: str
    digest: str

    @property
    def reused(self) -> tuple[str, ...]:
        """The stages that the build did not have to make."""
        reused = self.fields.get("reused")
        return tuple(map(str, reused)) if isinstance(reused, list) else ()

    @property
    def was_built(self) -> bool:
        """Whether the image was built, not converted or pulled."""
        return "built" in self.fields


def read_record(recipe: str, engine: Engine, *, strict: bool) -> BuildRecord | None:
    """Return the record of a recipe's image, or None if there is none.

    A damaged record counts as none, or with `strict` raises CheckFailed: use that to judge an image.
    """
    path = record_path(recipe, engine)
    if not path.is_file():
        return None
    try:
        fields = orjson.loads(read_bounded(path, _LARGEST))
        return BuildRecord(fields, str(fields["identity"]), str(fields["digest"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not strict:
            return None
        raise CheckFailed(f"the record {path} is damaged: {error!r}", REBUILD_REMEDY, code="record-damaged") from error


def write_build_record(plan: Plan, engine: Engine, image: BuiltImage, settings: Settings, **more: Any) -> None:
    """Record an image that was built here, and trust its digest from now on."""
    ledger.record_trusted(image.digest, settings)
    built = datetime.now(UTC).isoformat(timespec="seconds")
    write_image_record(plan.recipe.name, engine, image, plan.labels(), built=built, **more)


def write_image_record(recipe: str, engine: Engine, image: BuiltImage, labels: Mapping[str, str], **more: Any) -> None:
    """Record an image of a recipe; `more` says how it came here."""
    record = {
        "name": Path(engine.address(recipe)).name,
        "identity": image.identity,
        "digest": image.digest,
        "build_key": labels.get(BUILD_KEY),
        "compression": labels.get(COMPRESSION),
        "stand_in": labels.get(STAND_IN) == "true",
        "sifmark": __version__,
        engine.name: engine.version(),
        **more,
    }
    write_json(record_path(recipe, engine), record)


def update_record(recipe: str, engine: Engine, **more: Any) -> None:
    """Change fields of a record, if there is one that can be read."""
    if record := read_record(recipe, engine, strict=False):
        write_json(record_path(recipe, engine), {**record.fields, **more})


def record_path(recipe: str, engine: Engine) -> Path:
    """Return the file with the record of a recipe's image."""
    return engine.home / f"{recipe}.{engine.suffix}.json"


def lock_path(recipe: str, engine: Engine) -> Path:
    """Return the path whose lock excludes other work on a recipe's image by an engine."""
    return engine.home / f"{recipe}.{engine.suffix}"


def log_file(recipe: str, settings: Settings) -> Path:
    """Return a new file for the commands of a build and their output."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return _logs(settings) / f"{recipe}-{stamp}-{os.getpid()}.log"


def log_files(recipe: str, settings: Settings) -> list[Path]:
    """Return the logs that a recipe's builds have written."""
    return sorted(_logs(settings).glob(f"{recipe}-*Z-*.log"))


def _logs(settings: Settings) -> Path:
    return settings.dist / "logs"
