"""Locked wheels as files: taken from the sources folder, downloaded or made, checked by hash, and unpacked offline."""

import csv
import os
import shutil
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sifmark.core.console import Step, step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import FIXED_MTIME, atomic_path, scratch_dir, sha256_file
from sifmark.core.process import run
from sifmark.core.settings import Settings
from sifmark.layers.cache import WHEELS, in_use
from sifmark.layers.installers import (
    DOWNLOAD_REMEDY,
    PIP,
    UV,
    download_wheels,
    pip_target_options,
    pip_variables,
    run_with_indexes,
    uv_target_options,
)
from sifmark.recipes.lockfile import LockedWheel, read_lock
from sifmark.recipes.recipe import BuiltWheel, Recipe, Target

# Sets have the same order, no commit of a clone around the cache is noted, and files have no date of now.
_BUILD_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "GIT_DIR": "/dev/null",
    "SOURCE_DATE_EPOCH": str(FIXED_MTIME),
    "PYTHONPATH": "",
}
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # in an archive
_FILE_MODE = 0o644 << 16  # where an archive keeps it


@contextmanager
def fetch_wheels(recipe: Recipe, target: Target, settings: Settings, log: Path | None) -> Iterator[tuple[Path, ...]]:
    """Return the locked wheels as files in the cache, each checked by hash; missing ones are fetched.

    They stay in the cache during the block. Raises SifmarkError for a wheel that cannot be fetched, or made here, or
    whose hash differs; no file of it stays.
    """
    locked, cache = read_lock(recipe.lock(target)), settings.cache
    with ExitStack() as locks:
        for wheel in locked:
            locks.enter_context(in_use(_folder(cache, wheel)))
        with step("fetch and check wheels") as progress:
            for wheel in locked:
                _take_from_sources(wheel, settings)
            if missing := [wheel for wheel in locked if _cached(cache, wheel) is None]:
                _make_or_download(missing, recipe, target, settings, progress, log)
            files = tuple(_checked(cache, wheel) for wheel in locked)
        yield files


def build_wheel(
    built: BuiltWheel, recipe: Recipe, target: Path, settings: Settings, progress: Step, log: Path | None
) -> None:
    """Fetch a source by its hash, and put the wheel that is made of it into the folder `target`.

    Raises SifmarkError if the source or the wheel has another hash; then nothing is put there.
    """
    with tempfile.TemporaryDirectory(dir=target) as name:
        folder = Path(name)
        python = _build_environment(built, recipe, folder, settings, progress, log)
        source, made = folder / "source.txt", folder / "made"
        source.write_text(f"{built.requirement}\n")
        command = [*PIP, "--python", str(python), "wheel", "--require-hashes", "--no-deps", "--no-build-isolation"]
        command += ["--no-binary", built.name, "--no-cache-dir", "--wheel-dir", str(made), "-r", str(source)]
        environment = {**_BUILD_VARIABLES, **built.environment, **pip_variables(settings)}
        run_with_indexes(command, recipe, settings, progress, environment=environment, log=log)
        (path,) = made.glob("*.whl")
        wheel = folder / path.name
        _repack(path, wheel)
        if (digest := sha256_file(wheel)) != built.wheel:
            raise SifmarkError(
                f"{path.name} was made with hash {digest}; recipes/built/{built.name}.toml says {built.wheel}",
                "do not use it; write this hash there only if you have changed the source or the tools on purpose",
                code="digest-mismatch",
            )
        wheel.rename(target / wheel.name)


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


def _make_or_download(
    missing: list[LockedWheel], recipe: Recipe, target: Target, settings: Settings, progress: Step, log: Path | None
) -> None:
    """Store wheels in the cache: those that the recipe has sources for are made, the others downloaded."""
    sources = {built.wheel.removeprefix("sha256:"): built for built in recipe.built}
    with scratch_dir(settings.cache / WHEELS, "download") as folder:
        for built in [sources[wheel.sha256] for wheel in missing if wheel.sha256 in sources]:
            progress.detail(f"make the wheel of {built.name} {built.version}")
            build_wheel(built, recipe, folder, settings, progress, log)
        if published := [wheel.requirement for wheel in missing if wheel.sha256 not in sources]:
            download_wheels(published, recipe, pip_target_options(target), folder, settings, progress, log)
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


def _build_environment(
    built: BuiltWheel, recipe: Recipe, folder: Path, settings: Settings, progress: Step, log: Path | None
) -> Path:
    """Return the Python of a new environment that has the tools of a build, and nothing else of this host."""
    tools, environment = folder / "tools", folder / "environment"
    tools.mkdir()
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    if built.tools:
        download_wheels(built.tools, recipe, ["--only-binary", ":all:"], tools, settings, progress, log)
        command = [*UV, "install", "--no-index", "--no-deps", "--no-cache", "--python", str(python)]
        run([*command, *sorted(tools.glob("*.whl"))], log=log, time_limit=settings.time_limit)
    return python


def _repack(wheel: Path, target: Path) -> None:
    """Copy a wheel uncompressed and in order: libraries of compression differ between hosts."""
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in sorted(archive.namelist()):
            entry = zipfile.ZipInfo(name, _FIRST_DATE)
            entry.external_attr = _FILE_MODE
            copy.writestr(entry, archive.read(name))
