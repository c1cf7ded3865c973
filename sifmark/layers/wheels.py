"""Wheels by lock: resolved once, downloaded on the host, checked by hash, unpacked offline.

uv resolves and unpacks, pip picks the files and fetches them. Neither does all of it: CONTRIBUTING.md has the reasons.
"""

import ast
import csv
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sifmark.core import paths
from sifmark.core.console import Step, output, step
from sifmark.core.environment import PLATFORMS, platform_name
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import atomic_path, scratch_dir, sha256_file, write_text
from sifmark.core.process import CommandError, run
from sifmark.core.settings import settings
from sifmark.layers.cache import WHEELS, in_use
from sifmark.recipes.recipe import Recipe, Target, load_recipe

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
_UV = (sys.executable, "-m", "uv", "--no-config", "--no-python-downloads", "pip")
# Options of pip's configuration, and the variables by which uv takes the same. As words of a command a password in an
# address would be logged.
_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
# Sections of pip's configuration, those that win last; it has others for commands that we do not run.
_PIP_SECTIONS = ("global", "install", "download", ":env:")
_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) --hash=sha256:(?P<hash>[0-9a-f]{64})$")

_DOWNLOAD_REMEDY = "a hash that differs is not the locked file: do not use it; else check network, index and disk space"
# What pip and uv say of an index that lacks something.
_NOT_THERE = ("No matching distribution found", "Could not find a version", "No solution found")


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
        raise SifmarkError(
            f"there is no lock {path.name}", "write it on a machine with network: `inv recipe.lock RECIPE`"
        )
    return tuple(_parse(path))


def write_lock(name: str, python: str | None = None, platform: str | None = None) -> Path:
    """Resolve what a recipe requires and write its lock, whole or not at all; nothing is installed.

    It is for this machine's platform and the Python of the recipe's base, unless told otherwise. Raises SifmarkError.
    """
    if not paths.IS_CHECKOUT:
        raise UsageError("locks are written in a clone", "clone the project, and lock there")
    recipe = load_recipe(name)
    target = Target(python or recipe.base.python, platform or platform_name())
    if re.fullmatch(r"3\.\d+", target.python) is None:
        raise UsageError(f"no Python {target.python!r}", "name a minor version, such as 3.11")
    if target.platform not in PLATFORMS:
        raise UsageError(f"no platform {target.platform!r}", f"known: {', '.join(PLATFORMS)}")
    with step(f"resolve the wheels of {name} for Python {target.python}, {target.platform}") as progress:
        found = _resolve(recipe, target, progress)
    lines = [f"# Recipe {name}, Python {target.python}, {target.platform}. Written by: inv lock {name}"]
    lines += sorted(wheel.requirement for wheel in found)
    write_text(recipe.lock(target), "\n".join(lines) + "\n")
    output(str(recipe.lock(target)))
    return recipe.lock(target)


@contextmanager
def fetch_wheels(recipe: Recipe, target: Target, log: Path | None) -> Iterator[tuple[Path, ...]]:
    """The locked wheels as files in the cache, each checked by hash; those not there yet are downloaded.

    They stay in the cache while the block runs. Raises SifmarkError when one cannot be had or its hash differs; then
    nothing is kept of it.
    """
    locked = read_lock(recipe.lock(target))
    with ExitStack() as held:
        for wheel in locked:
            held.enter_context(in_use(_folder(wheel)))
        with step("fetch and check wheels") as progress:
            for wheel in locked:
                _take_from_sources(wheel)
            if missing := [wheel for wheel in locked if _cached(wheel) is None]:
                _download(recipe, target, missing, progress, log)
            found = tuple(_checked(wheel) for wheel in locked)
        yield found


def cached_size(lock: Path) -> int | None:
    """Bytes of a lock's wheels where the cache has them all."""
    found = [_cached(wheel) for wheel in read_lock(lock)]
    return None if None in found else sum(path.stat().st_size for path in found if path)


def unpack(target: Target, wheels: Iterable[Path], folder: Path, progress: Step, log: Path | None) -> None:
    """Install wheels into a folder of their own, without a network and without running them.

    uv is isolated: no variable and no configuration file adds to what the lock says. What it unpacks is linked from a
    cache beside the folder, which goes when it is done.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as own:
        command = [*_UV, "install", "--no-index", "--no-deps", "--cache-dir", own, "--link-mode", "hardlink"]
        run(
            [*command, "--target", folder, *_uv_target(target), *wheels],
            log=log,
            watch=progress.detail,
            time_limit=settings().time_limit,
            remedy="free some space in the cache folder, or remove it and build again: `inv clean --cache`",
        )
    # Console scripts name the host's interpreter, and nothing in an image calls them; the others tell of this host.
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for path in [
        folder / ".lock",
        *folder.glob("*.dist-info/direct_url.json"),
        *folder.glob("*.dist-info/uv_cache.json"),
    ]:
        path.unlink(missing_ok=True)
    for record in folder.glob("*.dist-info/RECORD"):
        _forget_removed(record)


def _forget_removed(record: Path) -> None:
    """Let a wheel's list of files name those that are there."""
    with record.open(newline="", encoding="utf-8") as stream:
        kept = [row for row in csv.reader(stream) if (record.parents[1] / row[0]).exists()]
    with record.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(kept)


def _parse(path: Path) -> Iterator[LockedWheel]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        entry = _ENTRY.match(line.strip())
        if entry is None:
            raise SifmarkError(
                f"{path}, line {number}: not `name==version --hash=sha256:...`", "run `inv recipe.lock` again"
            )
        yield LockedWheel(entry["name"], entry["version"], entry["hash"])


def _resolve(recipe: Recipe, target: Target, progress: Step) -> list[LockedWheel]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [*_pip(), "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        command += [
            "--report",
            str(report),
            "--target",
            folder,
            *pip_target_options(target),
            *_versions(recipe, target, Path(folder), progress),
        ]
        _ask_indexes(recipe, command, progress, None, _site_indexes())
        installs = json.loads(report.read_text())["install"]
    return [
        LockedWheel(
            item["metadata"]["name"].lower().replace("_", "-"),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in installs
    ]


def _versions(recipe: Recipe, target: Target, folder: Path, progress: Step) -> list[str]:
    """`name==version` of all that the recipe's requirements need there."""
    wanted, found = folder / "wanted.in", folder / "found.txt"
    wanted.write_text("".join(f"{requirement}\n" for requirement in recipe.requires))
    command = [*_UV, "compile", str(wanted), "--output-file", str(found), "--quiet", "--no-header", "--no-annotate"]
    command += ["--only-binary", ":all:", "--index-strategy", "unsafe-best-match", *_uv_target(target)]
    configuration = pip_configuration()
    if configuration.get("no-index", "").lower() in ("1", "true", "t", "yes", "y", "on"):
        command.append("--no-index")
    _ask_indexes(recipe, command, progress, None, uv_variables(configuration))
    return found.read_text().split()


def _uv_target(target: Target) -> list[str]:
    """What tells uv to choose for that Python and platform, whatever it runs on."""
    return ["--python-version", target.python, "--python-platform", f"{target.platform}-{_MANYLINUX[0]}"]


def pip_configuration() -> dict[str, str]:
    """Return pip's configuration here by option, as pip takes it: from files and variables, without empty values."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _PIP_SECTIONS}
    for line in run([*_pip(), "config", "list"], environment=_site_indexes()).output.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in by_section and ast.literal_eval(value):
            by_section[section][option] = ast.literal_eval(value)
    return {option: value for section in _PIP_SECTIONS for option, value in by_section[section].items()}


def uv_variables(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make uv look where pip looks: it reads none of pip's configuration."""
    variables = {}
    for option, name in _UV_VARIABLES.items():
        if option in configuration:
            separator = "," if option == "find-links" else " "
            variables[name] = separator.join(configuration[option].split())
    return variables


def _download(recipe: Recipe, target: Target, missing: list[LockedWheel], progress: Step, log: Path | None) -> None:
    store = settings().cache / WHEELS
    with scratch_dir(store, "download") as folder:
        wanted = folder / "wanted.txt"
        wanted.write_text("".join(f"{wheel.requirement}\n" for wheel in missing))
        command = [*_pip(), "download", "--require-hashes", "--no-deps", "--progress-bar", "off", "--dest", str(folder)]
        command += [*pip_target_options(target), "-r", str(wanted)]
        _ask_indexes(recipe, command, progress, log, _site_indexes())
        for path in folder.glob("*.whl"):
            _store(path)


def _ask_indexes(
    recipe: Recipe, command: list[str], progress: Step, log: Path | None, environment: Mapping[str, str]
) -> None:
    """Run pip or uv against the site's indexes; without any against those that pip is configured for, and against the
    framework vendor's own where these lack something."""
    limit = settings().time_limit
    try:
        run(command, log=log, watch=progress.detail, time_limit=limit, environment=environment)
    except CommandError as error:
        if settings().wheel_indexes or recipe.index is None or not any(words in error.cause for words in _NOT_THERE):
            raise SifmarkError(error.cause, _DOWNLOAD_REMEDY) from error
        progress.detail(f"not all wheels are in the configured indexes; asking {recipe.index}")
        with_index = [*command, "--extra-index-url", recipe.index]
        run(
            with_index,
            log=log,
            watch=progress.detail,
            time_limit=limit,
            remedy=_DOWNLOAD_REMEDY,
            environment=environment,
        )


def _site_indexes() -> dict[str, str]:
    """The variables that name the site's indexes to pip; as words of a command a password would be logged."""
    indexes = settings().wheel_indexes
    if not indexes:
        return {}
    # An empty variable would leave the extra indexes of pip's configuration in force.
    return {"PIP_INDEX_URL": indexes[0], "PIP_EXTRA_INDEX_URL": " ".join(indexes[1:] or indexes)}


def _store(path: Path) -> None:
    with atomic_path(settings().cache / WHEELS / sha256_file(path).removeprefix("sha256:")) as draft:
        draft.mkdir()
        path.rename(draft / path.name)


def _take_from_sources(wheel: LockedWheel) -> None:
    """Copy a wheel that the cache has not from the folder of sources; its hash is looked at as any other's."""
    sources = settings().sources
    if sources is None or _cached(wheel) is not None:
        return
    if found := next((sources / WHEELS / wheel.sha256).glob("*.whl"), None):
        if (seen := sha256_file(found)) != f"sha256:{wheel.sha256}":
            raise SifmarkError(f"{found} has hash {seen}", "fetch it again where a network is: inv recipe.fetch FOLDER")
        with atomic_path(_folder(wheel)) as draft:
            draft.mkdir()
            shutil.copyfile(found, draft / found.name)


def _folder(wheel: LockedWheel) -> Path:
    return settings().cache / WHEELS / wheel.sha256


def _cached(wheel: LockedWheel) -> Path | None:
    return next(_folder(wheel).glob("*.whl"), None)


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
    os.utime(path)  # it was wanted just now
    return path


def _pip() -> list[str]:
    return [sys.executable, *_PIP]


def pip_target_options(target: Target) -> list[str]:
    """What tells pip to take wheels for that Python and platform, whatever it runs on."""
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", target.python]
    options += ["--abi", f"cp{target.python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    for tag in _MANYLINUX:
        options += ["--platform", f"{tag}_{target.platform}"]
    return options
