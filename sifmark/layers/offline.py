"""Bases and wheels as files: in the sources folder, for hosts without a network, or fetched into the cache.

In the sources folder `bases/<digest>/` is a base as an OCI image layout, `wheels/<sha256>/` has a wheel. If the setting
`sources` names the folder, builds look there before they use a network. Every file is checked against the hash in its
path, when it is fetched and again when it is used.
"""

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sifmark.core.console import step
from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError
from sifmark.core.files import FIXED_MTIME, atomic_path
from sifmark.core.settings import Settings
from sifmark.layers import installers
from sifmark.layers.cache import FETCHED, WHEELS, lock_entry
from sifmark.layers.wheels import fetch_wheels
from sifmark.oci.images import configuration, fetch_image
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import Manifest, read_index, read_manifest, read_object
from sifmark.recipes.base import BaseImage
from sifmark.recipes.plan import Plan

_REMEDY = "fetch it again where a network is: sifmark recipe.fetch FOLDER"


@dataclass(frozen=True)
class FetchedSources:
    """The sizes in bytes of what a recipe's build needs, fetched now or earlier."""

    base: int
    wheels: int


def fetch_sources(plan: Plan, folder: Path, settings: Settings) -> FetchedSources:
    """Fetch a base and its wheels into a folder, except for files that exist there. Raises SifmarkError."""
    installers.require_packages("fetching wheels")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with step(f"fetch the base {plan.base.pull}") as progress:
            base = add_base(folder, plan.base, progress.detail)
        with fetch_wheels(plan.recipe, plan.target, settings, log=None) as wheels:
            return FetchedSources(base, add_wheels(folder, wheels))
    except OSError as error:
        remedy = "complete files are kept: run it again after the repair"
        raise SifmarkError(f"{folder}: {error}", remedy, code="system-error") from error


def offline_base(base: BaseImage, sources: Path | None) -> Path | None:
    """Return the layout of a base in the sources folder, or None if there is no such folder or it lacks the base."""
    if sources is None:
        return None
    layout = Layout(_folder(sources, base.digest))
    return layout.folder if layout.index_file.is_file() else None


@contextmanager
def base_layout(base: BaseImage, settings: Settings) -> Iterator[Path]:
    """Yield the layout of a base: in the sources folder, or in the cache, where it is fetched.

    What an interrupted build has fetched is continued. After the block nothing of it is left in the cache, unless the
    block fails: the converted base takes its place, and both together would need twice the space.
    """
    if layout := offline_base(base, settings.sources):
        require_intact(layout, base.digest)
        yield layout
        return
    folder = settings.cache / FETCHED / base.digest.removeprefix("sha256:")
    with lock_entry(folder, waiting=f"another process fetches {base.pull}"):
        with step(f"fetch the base {base.pull}") as progress:
            fetch_base(folder, base, progress.detail)
        try:
            require_intact(folder, base.digest)
        except SifmarkError as error:
            shutil.rmtree(folder)
            remedy = "what is damaged is removed from the cache: build again to fetch it again"
            raise SifmarkError(error.cause, remedy, code=error.code) from error
        yield folder
        shutil.rmtree(folder)


def base_creation_time(base: BaseImage, layout: Path | None) -> int:
    """Return the date of a base's configuration, in seconds since 1970; none of its files should be newer.

    If it is 1970 or missing, as in reproducible images, return FIXED_MTIME. Without a layout the registry is asked.
    Raises SifmarkError if there is no configuration.
    """
    try:
        created = _base_configuration(base, layout)["created"]
        return max(int(datetime.fromisoformat(created).timestamp()), FIXED_MTIME)
    except (KeyError, TypeError, ValueError):
        return FIXED_MTIME


def add_base(folder: Path, base: BaseImage, report: Callable[[str], None]) -> int:
    """Fetch a base into a sources folder, except for what exists there. Return its size in bytes."""
    return fetch_base(_folder(folder, base.digest), base, report)


def fetch_base(folder: Path, base: BaseImage, report: Callable[[str], None]) -> int:
    """Fetch a base into a layout, except for what exists there. Return its size in bytes."""
    layout = Layout(folder, _REMEDY)
    manifest, total = fetch_image(base.address, base.digest, platform_name(), layout, report)
    layout.write_index([manifest])
    return total


def base_size(layout: Path, digest: str) -> int:
    """Return the bytes of a base's packed layers. Raises SifmarkError if the layout is damaged."""
    return sum(layer.size for layer in _manifest(layout, digest).layers)


def add_wheels(folder: Path, wheels: tuple[Path, ...]) -> int:
    """Copy wheels into a sources folder. Return their size in bytes."""
    for wheel in wheels:
        target = folder / WHEELS / wheel.parent.name
        if not target.is_dir():
            with atomic_path(target, content_addressed=True) as draft:
                draft.mkdir()
                shutil.copyfile(wheel, draft / wheel.name)
    return sum(wheel.stat().st_size for wheel in wheels)


def require_intact(layout: Path, digest: str) -> None:
    """Raise SifmarkError if a layout is not that of the base alone, or a blob does not have the digest of its name.

    Engines follow `index.json`: it must name the base, or a manifest that the base lists if the base is itself a list
    of platforms.
    """
    manifest = _manifest(layout, digest)
    for blob in (manifest.config, *manifest.layers):
        Layout(layout, _REMEDY).require(blob.digest)


def write_archive(layout: Path, digest: str, tag: str, target: Path) -> None:
    """Write the base of a layout as an archive for `docker load`."""
    manifest = _manifest(layout, digest)
    config, *layers = [Layout(layout).blob(part.digest) for part in (manifest.config, *manifest.layers)]
    description = [{"Config": config.name, "RepoTags": [tag], "Layers": [layer.name for layer in layers]}]
    with tarfile.open(target, "w") as archive:
        for blob in (config, *layers):
            archive.add(blob, blob.name)
        manifest_file = target.with_name("manifest.json")
        manifest_file.write_text(json.dumps(description))
        archive.add(manifest_file, "manifest.json")


def _folder(sources: Path, digest: str) -> Path:
    return sources / "bases" / digest.removeprefix("sha256:")


def _manifest(folder: Path, digest: str) -> Manifest:
    """Return the manifest in a layout's index. Raises SifmarkError unless it is the base, or the base lists it."""
    layout = Layout(folder, _REMEDY)
    base = layout.read(digest)
    try:
        (named,) = [str(entry["digest"]) for entry in layout.index()["manifests"]]
        if named != digest and named not in [entry.get("digest") for entry in read_index(base)["manifests"]]:
            cause = f"{layout.index_file} names {named}, which is not the base"
            raise SifmarkError(cause, _REMEDY, code="digest-mismatch")
        return read_manifest(layout.read(named))
    except (ValueError, KeyError) as error:
        cause = f"{folder} holds no image that reads: {error}"
        raise SifmarkError(cause, _REMEDY, code="file-damaged") from error


def _base_configuration(base: BaseImage, layout: Path | None) -> Mapping[str, Any]:
    if layout is None:
        return configuration(base.address, base.digest, platform_name())
    return read_object(Layout(layout, _REMEDY).read(_manifest(layout, base.digest).config.digest))
