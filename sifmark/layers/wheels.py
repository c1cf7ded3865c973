"""Locked wheels as files: taken from the sources folder or downloaded, checked by hash, and unpacked offline."""

import csv
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sifmark.core.console import Step, step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import atomic_path, scratch_dir, sha256_file
from sifmark.core.process import run
from sifmark.core.settings import Settings
from sifmark.layers.cache import WHEELS, in_use
from sifmark.layers.installers import (
    DOWNLOAD_REMEDY,
    UV,
    download_wheels,
    pip_target_options,
    uv_target_options,
)
from sifmark.recipes.lockfile import LockedWheel, read_lock
from sifmark.recipes.recipe import Recipe, Target


@contextmanager
def fetch_wheels(recipe: Recipe, target: Target, settings: Settings, log: Path | None) -> Iterator[tuple[Path, ...]]:
    """Return the locked wheels as files in the cache, each checked by hash; missing ones are fetched.

    They stay in the cache during the block. Raises SifmarkError for a wheel that cannot be fetched or whose hash
    differs; no file of it stays.
    """
    locked, cache = read_lock(recipe.lock(target)), settings.cache
    with ExitStack() as locks:
        for wheel in locked:
            locks.enter_context(in_use(_folder(cache, wheel)))
        with step("fetch and check wheels") as progress:
            for wheel in locked:
                _take_from_sources(wheel, settings)
            if missing := [wheel for wheel in locked if _cached(cache, wheel) is None]:
                _download(missing, recipe, target, settings, progress, log)
            files = tuple(_checked(cache, wheel) for wheel in locked)
        yield files


def cached_size(lock: Path, cache: Path) -> int | None:
    """Return the bytes of a lock's wheels, or None if the cache does not have all of them."""
    files = [_cached(cache, wheel) for wheel in read_lock(lock)]
    return None if None in files else sum(path.stat().st_size for path in files if path)


def unpack(
    wheels: Iterable[Path], target: Target, folder: Path, settings: Settings, progress: Step, log: Path | None
) -> None:
    """Install wheels into a folder, without a network and without running them.

    uv is isolated: no variable or configuration file adds anything to the lock. It links files from a cache beside the
    folder, which is removed afterwards.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as uv_cache:
        command = [*UV, "install", "--no-index", "--no-deps", "--cache-dir", uv_cache, "--link-mode", "hardlink"]
        run(
            [*command, "--target", folder, *uv_target_options(target), *wheels],
            log=log,
            watch=progress.detail,
            time_limit=settings.time_limit,
            remedy="free some space in the cache folder, or remove it and build again: `sifmark clean --cache`",
        )
    _remove_host_traces(folder)


def _remove_host_traces(folder: Path) -> None:
    """Remove what differs between hosts: console scripts, which name an interpreter and are not used, and records."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for path in [
        folder / ".lock",
        *folder.glob("*.dist-info/direct_url.json"),
        *folder.glob("*.dist-info/uv_cache.json"),
    ]:
        path.unlink(missing_ok=True)
    for record in folder.glob("*.dist-info/RECORD"):
        _remove_missing_files(record)


def _remove_missing_files(record: Path) -> None:
    """Remove files that do not exist from a wheel's list of files."""
    with record.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.reader(stream) if (record.parents[1] / row[0]).exists()]
    with record.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


def _download(
    missing: list[LockedWheel], recipe: Recipe, target: Target, settings: Settings, progress: Step, log: Path | None
) -> None:
    """Download wheels and store them in the cache."""
    with scratch_dir(settings.cache / WHEELS, "download") as folder:
        requirements = [wheel.requirement for wheel in missing]
        download_wheels(requirements, recipe, pip_target_options(target), folder, settings, progress, log)
        for path in folder.glob("*.whl"):
            _store(path, settings.cache)


def _store(path: Path, cache: Path) -> None:
    with atomic_path(cache / WHEELS / sha256_file(path).removeprefix("sha256:"), content_addressed=True) as draft:
        draft.mkdir()
        path.rename(draft / path.name)


def _take_from_sources(wheel: LockedWheel, settings: Settings) -> None:
    """Copy a wheel that is not in the cache from the sources folder. Raises SifmarkError if its hash differs."""
    if settings.sources is None or _cached(settings.cache, wheel) is not None:
        return
    if path := next((settings.sources / WHEELS / wheel.sha256).glob("*.whl"), None):
        if (digest := sha256_file(path)) != f"sha256:{wheel.sha256}":
            remedy = "fetch it again where a network is: sifmark recipe.fetch FOLDER"
            raise SifmarkError(f"{path} has hash {digest}", remedy, code="digest-mismatch")
        with atomic_path(_folder(settings.cache, wheel), content_addressed=True) as draft:
            draft.mkdir()
            shutil.copyfile(path, draft / path.name)


def _folder(cache: Path, wheel: LockedWheel) -> Path:
    return cache / WHEELS / wheel.sha256


def _cached(cache: Path, wheel: LockedWheel) -> Path | None:
    return next(_folder(cache, wheel).glob("*.whl"), None)


def _checked(cache: Path, wheel: LockedWheel) -> Path:
    """Return a wheel in the cache, marked as used. Raises SifmarkError if it is missing, or damaged and so removed."""
    path = _cached(cache, wheel)
    if path is None:
        cause = f"no file for {wheel.name}=={wheel.version} came from the index"
        raise SifmarkError(cause, DOWNLOAD_REMEDY, code="wheel-missing")
    digest = sha256_file(path)
    if digest != f"sha256:{wheel.sha256}":
        path.unlink()
        raise SifmarkError(
            f"{path.name} has hash {digest}, the lock says sha256:{wheel.sha256}",
            "the damaged file is removed from the cache: build again to download it again",
            code="digest-mismatch",
        )
    os.utime(path)  # the time of the last use
    return path
