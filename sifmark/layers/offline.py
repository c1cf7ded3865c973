"""All that builds take from elsewhere in one folder, for hosts without a network.

`bases/<digest>/` is a base as an OCI image layout, `wheels/<sha256>/` holds a wheel. Builds look
there first where the settings name the folder (`sources`). Everything lies under its own hash and is held against it,
when it is fetched and again when it is used.
"""

import json
import shutil
import tarfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError
from sifmark.core.files import FIXED_MTIME, atomic_path, sha256_file, write_json
from sifmark.core.settings import settings
from sifmark.layers.cache import WHEELS
from sifmark.oci.images import configuration, fetch_image
from sifmark.oci.reference import DIGEST
from sifmark.recipes.plan import BaseImage

_AGAIN = "fetch it again where a network is: inv fetch-sources FOLDER"


def offline_base(base: BaseImage) -> Path | None:
    """The layout that holds a base, where the settings name a folder of sources that has it."""
    sources = settings().sources
    layout = sources and _layout(sources, base.digest)
    return layout if layout and (layout / "index.json").is_file() else None


def base_creation_time(base: BaseImage) -> int:
    """When a base was made, in seconds since 1970; none of its files should be newer. It is in its configuration.

    Builders of reproducible images put 1970 there, or nothing. Raises SifmarkError where it cannot be asked.
    """
    layout = offline_base(base)
    told = (
        _read(_blobs(layout, base.digest)[2]) if layout else configuration(base.address, base.digest, platform_name())
    )
    try:
        return max(int(datetime.fromisoformat(told["created"]).timestamp()), FIXED_MTIME)
    except (KeyError, TypeError, ValueError):
        return FIXED_MTIME


def add_base(folder: Path, base: BaseImage, tell: Callable[[str], None]) -> int:
    """Fetch a base into a folder of sources; blobs that are there are kept. Its size in bytes."""
    layout = _layout(folder, base.digest)
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    entry, total = fetch_image(base.address, base.digest, platform_name(), blobs, tell)
    write_json(layout / "oci-layout", {"imageLayoutVersion": "1.0.0"})
    write_json(layout / "index.json", {"schemaVersion": 2, "manifests": [entry]})  # last: it says that all is there
    return total


def base_size(layout: Path, digest: str) -> int:
    """Bytes of a base's packed layers. Raises SifmarkError where the layout is damaged."""
    return sum(blob.stat().st_size for blob in _blobs(layout, digest)[3:])


def add_wheels(folder: Path, wheels: tuple[Path, ...]) -> int:
    """Copy wheels into a folder of sources. Their size in bytes."""
    for wheel in wheels:
        target = folder / WHEELS / wheel.parent.name
        if not target.is_dir():
            with atomic_path(target) as draft:
                draft.mkdir()
                shutil.copyfile(wheel, draft / wheel.name)
    return sum(wheel.stat().st_size for wheel in wheels)


def require_intact(layout: Path, digest: str) -> None:
    """Raise SifmarkError where the layout is not that of the base alone, or a blob not what its name says.

    Engines follow `index.json`: what it names must be the base, or be listed by the base where that is itself a list
    of platforms.
    """
    for blob in _blobs(layout, digest):
        if not blob.is_file() or sha256_file(blob) != f"sha256:{blob.name}":
            raise SifmarkError(f"{blob} is missing or damaged", _AGAIN)


def write_archive(layout: Path, digest: str, tag: str, target: Path) -> None:
    """Write a base of a layout as an archive that `docker load` reads."""
    config, *layers = _blobs(layout, digest)[2:]
    named = [{"Config": config.name, "RepoTags": [tag], "Layers": [layer.name for layer in layers]}]
    with tarfile.open(target, "w") as archive:
        for blob in (config, *layers):
            archive.add(blob, blob.name)
        listed = target.with_name("manifest.json")
        listed.write_text(json.dumps(named))
        archive.add(listed, "manifest.json")


def _layout(folder: Path, digest: str) -> Path:
    return folder / "bases" / digest.removeprefix("sha256:")


def _blobs(layout: Path, digest: str) -> list[Path]:
    """What the base's digest names, then manifest, configuration and layers. Raises SifmarkError for others."""
    folder = layout / "blobs" / "sha256"
    named = folder / digest.removeprefix("sha256:")
    try:
        (manifest,) = [entry["digest"] for entry in _read(layout / "index.json")["manifests"]]
        if manifest != digest and manifest not in [entry["digest"] for entry in _read(named)["manifests"]]:
            raise SifmarkError(f"{layout / 'index.json'} names {manifest}, which is not the base", _AGAIN)
        told = _read(folder / manifest.removeprefix("sha256:"))
        digests = [manifest, told["config"]["digest"], *(layer["digest"] for layer in told["layers"])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SifmarkError(f"{layout} holds no image that reads: {error}", _AGAIN) from error
    if bad := [name for name in digests if not DIGEST.fullmatch(str(name))]:
        raise SifmarkError(f"{layout} names a blob {bad[0]!r}", _AGAIN)
    return [named, *(folder / name.removeprefix("sha256:") for name in digests)]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
