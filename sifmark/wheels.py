"""Wheels by lock: resolved once, downloaded on the host, checked by hash, unpacked offline."""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sifmark import house
from sifmark.console import Step, show, step
from sifmark.errors import SifmarkError, UsageError
from sifmark.files import beside, scratch, sha256_file
from sifmark.recipe import Recipe, load_recipe
from sifmark.run import CommandError, run
from sifmark.settings import machine, settings

# The newest C library that every supported host has, and the older tags that wheels carry. PEP 600.
_MANYLINUX = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_24",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux1",
)
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<hash>[0-9a-f]{64})$")

_DOWNLOAD_REMEDY = "a hash that differs is not the locked file: do not use it; else check network, index and disk space"
_NOT_THERE = ("No matching distribution found", "Could not find a version")  # what pip says of an index that lacks it


@dataclass(frozen=True)
class LockedWheel:
    """One wheel, by exact version and hash."""

    name: str
    version: str
    sha256: str  # hexadecimal

    @property
    def requirement(self) -> str:
        """One line of a lock, as pip reads it."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


def read_lock(path: Path) -> tuple[LockedWheel, ...]:
    """The wheels of a lock file. Raises SifmarkError naming file and line."""
    if not path.is_file():
        raise SifmarkError(f"there is no lock {path.name}", "write it on a machine with network: `inv lock RECIPE`")
    return tuple(_parse(path))


def write_lock(name: str) -> Path:
    """Resolve what a recipe requires and write its lock, whole or not at all.

    The tool is pip's own resolver, for the base's Python and this machine's platform; nothing is installed.
    """
    if not house.IS_CHECKOUT:
        raise UsageError("locks are written in a clone", "clone the project, and lock there")
    recipe, platform = load_recipe(name), machine()
    target = recipe.lock(platform)
    with step(f"resolve the wheels of {name} for Python {recipe.base.python}, {platform}") as progress:
        found = _resolve(recipe, platform, progress)
    lines = [f"# Recipe {name}, Python {recipe.base.python}, {platform}. Written by: inv lock {name}"]
    lines += sorted(wheel.requirement for wheel in found)
    with beside(target) as draft:
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    show(str(target))
    return target


def fetch(recipe: Recipe, platform: str, progress: Step, log: Path) -> tuple[Path, ...]:
    """The locked wheels as files in the cache, each checked by hash; those not there yet are downloaded.

    Raises SifmarkError when one cannot be had or its hash differs; then nothing is kept of it.
    """
    locked = read_lock(recipe.lock(platform))
    missing = [wheel for wheel in locked if _cached(wheel) is None]
    if missing:
        _download(recipe, platform, missing, progress, log)
    return tuple(_checked(wheel) for wheel in locked)


def unpack(recipe: Recipe, platform: str, wheels: Iterable[Path], target: Path, progress: Step, log: Path) -> None:
    """Install wheels into a folder of their own, without a network and without running them.

    pip is isolated: no variable and no configuration file adds to what the lock says.
    """
    command = [sys.executable, "-I", *_PIP, "--isolated", "install", "--no-index", "--no-deps", "--no-compile"]
    command += ["--no-cache-dir", "--target", str(target), *_target_options(recipe, platform), *map(str, wheels)]
    run(
        command,
        log=log,
        watch=progress.detail,
        time_limit=settings().time_limit,
        remedy="free some space in the cache folder, or remove it and build again: `inv clean --cache`",
    )
    # Console scripts name the host's interpreter; nothing in an image calls them.
    shutil.rmtree(target / "bin", ignore_errors=True)
    for record in target.glob("*.dist-info/direct_url.json"):
        record.unlink()  # names a folder of this host


def bytecode_python(version: str) -> str | None:
    """An interpreter of the base's minor version on this host, or None: bytecode is bound to it."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    return shutil.which(f"python{version}")


def _parse(path: Path) -> Iterator[LockedWheel]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        entry = _ENTRY.match(line.strip())
        if entry is None:
            raise SifmarkError(f"{path}, line {number}: not `name==version --hash=sha256:...`", "run `inv lock` again")
        yield LockedWheel(entry["name"], entry["version"], entry["hash"])


def _resolve(recipe: Recipe, platform: str, progress: Step) -> list[LockedWheel]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [*_pip(), "install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
        command += ["--target", folder, *_target_options(recipe, platform), *recipe.requires]
        _ask_indexes(recipe, command, progress)
        installs = json.loads(report.read_text())["install"]
    return [
        LockedWheel(
            item["metadata"]["name"].lower().replace("_", "-"),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in installs
    ]


def _download(recipe: Recipe, platform: str, missing: list[LockedWheel], progress: Step, log: Path) -> None:
    store = settings().cache / "wheels"
    with scratch(store, "download") as folder:
        wanted = folder / "wanted.txt"
        wanted.write_text("".join(f"{wheel.requirement}\n" for wheel in missing))
        command = [*_pip(), "download", "--require-hashes", "--no-deps", "--progress-bar", "off", "--dest", str(folder)]
        _ask_indexes(recipe, [*command, *_target_options(recipe, platform), "-r", str(wanted)], progress, log)
        for path in folder.glob("*.whl"):
            _store(path)


def _ask_indexes(recipe: Recipe, command: list[str], progress: Step, log: Path | None = None) -> None:
    """Run pip against the indexes it is configured for; the framework vendor's own only when they lack something."""
    limit = settings().time_limit
    try:
        run(command, log=log, watch=progress.detail, time_limit=limit)
    except CommandError as error:
        if recipe.index is None or not any(words in error.cause for words in _NOT_THERE):
            raise SifmarkError(error.cause, _DOWNLOAD_REMEDY) from error
        progress.detail(f"not all wheels are in the configured indexes; asking {recipe.index}")
        with_index = [*command, "--extra-index-url", recipe.index]
        run(with_index, log=log, watch=progress.detail, time_limit=limit, remedy=_DOWNLOAD_REMEDY)


def _store(path: Path) -> None:
    with beside(settings().cache / "wheels" / sha256_file(path).removeprefix("sha256:")) as draft:
        draft.mkdir()
        path.rename(draft / path.name)


def _cached(wheel: LockedWheel) -> Path | None:
    return next((settings().cache / "wheels" / wheel.sha256).glob("*.whl"), None)


def _checked(wheel: LockedWheel) -> Path:
    path = _cached(wheel)
    if path is None:
        raise SifmarkError(f"no file for {wheel.name}=={wheel.version} came from the index", _DOWNLOAD_REMEDY)
    seen = sha256_file(path)
    if seen != f"sha256:{wheel.sha256}":
        path.unlink()
        raise SifmarkError(
            f"{path.name} has hash {seen}, the lock says sha256:{wheel.sha256}",
            "the damaged file is removed from the cache: build again to fetch it anew",
        )
    return path


def _pip() -> list[str]:
    return [sys.executable, *_PIP]


def _target_options(recipe: Recipe, platform: str) -> list[str]:
    version = recipe.base.python
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", version]
    options += ["--abi", f"cp{version.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    for tag in _MANYLINUX:
        options += ["--platform", f"{tag}_{platform}"]
    return options
