"""All that builds take from elsewhere in one folder, for hosts without a network.

`bases/<digest>/` is a base as an OCI image layout, `wheels/<sha256>/` holds a wheel. Builds look
there first where the settings name the folder (`sources`). Everything lies under its own hash and is held against it,
when it is fetched and again when it is used.
"""

import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError
from sifmark.core.files import FIXED_MTIME, atomic_path
from sifmark.core.settings import settings
from sifmark.layers.cache import WHEELS
from sifmark.oci.images import configuration, fetch_image
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import Manifest, read_index, read_manifest, read_object
from sifmark.recipes.plan import BaseImage

_AGAIN = "fetch it again where a network is: inv recipe.fetch FOLDER"


def offline_base(base: BaseImage) -> Path | None:
    """The layout that holds a base, where the settings name a folder of sources that has it."""
    if (sources := settings().sources) is None:
        return None
    layout = Layout(_folder(sources, base.digest))
    return layout.folder if layout.index_file.is_file() else None


def base_creation_time(base: BaseImage) -> int:
    """When a base was made, in seconds since 1970; none of its files should be newer. It is in its configuration.

    Builders of reproducible images put 1970 there, or nothing. Raises SifmarkError where it cannot be asked.
    """
    layout = offline_base(base)
    try:
        made = (
            _configuration(layout, base.digest) if layout else configuration(base.address, base.digest, platform_name())
        )
        return max(int(datetime.fromisoformat(made["created"]).timestamp()), FIXED_MTIME)
    except (KeyError, TypeError, ValueError):
        return FIXED_MTIME


def add_base(folder: Path, base: BaseImage, tell: Callable[[str], None]) -> int:
    """Fetch a base into a folder of sources; blobs that are there are kept. Its size in bytes."""
    layout = Layout(_folder(folder, base.digest), _AGAIN)
    manifest, total = fetch_image(base.address, base.digest, platform_name(), layout, tell)
    layout.write_index([manifest])
    return total


def base_size(layout: Path, digest: str) -> int:
    """Bytes of a base's packed layers. Raises SifmarkError where the layout is damaged."""
    return sum(layer.size for layer in _manifest(layout, digest).layers)


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
    manifest = _manifest(layout, digest)
    for blob in (manifest.config, *manifest.layers):
        Layout(layout, _AGAIN).require(blob.digest)


def write_archive(layout: Path, digest: str, tag: str, target: Path) -> None:
    """Write a base of a layout as an archive that `docker load` reads."""
    manifest = _manifest(layout, digest)
    config, *layers = [Layout(layout).blob(part.digest) for part in (manifest.config, *manifest.layers)]
    named = [{"Config": config.name, "RepoTags": [tag], "Layers": [layer.name for layer in layers]}]
    with tarfile.open(target, "w") as archive:
        for blob in (config, *layers):
            archive.add(blob, blob.name)
        listed = target.with_name("manifest.json")
        listed.write_text(json.dumps(named))
        archive.add(listed, "manifest.json")


def _folder(sources: Path, digest: str) -> Path:
    return sources / "bases" / digest.removeprefix("sha256:")


def _manifest(folder: Path, digest: str) -> Manifest:
    """Return the manifest that a layout is of. Raises SifmarkError unless it is the base, or the base lists it."""
    layout = Layout(folder, _AGAIN)
    base = layout.read(digest)
    try:
        (named,) = [str(entry["digest"]) for entry in layout.index()["manifests"]]
        if named != digest and named not in [entry.get("digest") for entry in read_index(base)["manifests"]]:
            raise SifmarkError(f"{layout.index_file} names {named}, which is not the base", _AGAIN)
        return read_manifest(layout.read(named))
    except (ValueError, KeyError) as error:
        raise SifmarkError(f"{folder} holds no image that reads: {error}", _AGAIN) from error


def _configuration(folder: Path, digest: str) -> Mapping[str, Any]:
    return read_object(Layout(folder, _AGAIN).read(_manifest(folder, digest).config.digest))
