"""Our own layers, assembled on the host: the wheels that we add, and the code. Nothing of the base is run."""

import base64
import csv
import io
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from sifmark.core.console import status, step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import atomic_path, normalise_tree, sha256_file, write_json
from sifmark.core.process import run, thread_pool
from sifmark.core.settings import Settings
from sifmark.layers import bytecode
from sifmark.layers.cache import LAYERS, Entry
from sifmark.layers.wheels import fetch_wheels, unpack
from sifmark.recipes import render
from sifmark.recipes.names import workloads_of
from sifmark.recipes.plan import Plan, shipped_files
from sifmark.recipes.recipe import Recipe

_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
_OF_INSTALLER = re.compile(r"[^/]+\.dist-info/(INSTALLER|REQUESTED|RECORD)")  # nothing imports or runs these
_MOVED = re.compile(r"[^/]+\.data/(purelib|platlib|data)/(.*)")  # what is installed beside the packages of a wheel
_REMEDY = "who else writes to the cache? Remove it and build again: `sifmark clean --cache`"
_BYTECODE = ".pyc"
_TESTS = {"test", "tests"}  # folders in packages that no workload imports, so they are not compiled
_SOURCES_PER_PROCESS = 200  # few enough for many cores, and so many that the start of Python does not count
# Bytecode depends on the order of sets, and the user's settings of Python must not change an image.
_COMPILER_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "", "PYTHONPATH": "", "PYTHONPYCACHEPREFIX": ""}


def site_layer(plan: Plan, settings: Settings, log: Path | None = None) -> Entry:
    """Return the cache entry of the folder with `sifmark-site/`, the unpacked wheels of a plan's lock."""
    make, verify = partial(_make_site, plan, settings, log), partial(_verify_site, plan, settings, log)
    return Entry(settings.cache, LAYERS, plan.site_key, make, verify)


def code_layer(plan: Plan, folder: Path, settings: Settings) -> None:
    """Put `sifmark/` and `scif/` into a folder: entrypoints, schemas, the image's description of itself, and apps."""
    code = folder / render.CODE
    for name, source in shipped_files().items():
        target = code / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    _write_run(code, plan.recipe)
    write_json(code / "image.json", plan.self_description())
    for workload in workloads_of(plan.recipe.name):
        _write_app(folder / render.APPS / "apps" / workload / "scif")
    if plan.python is not None:
        _compile(plan.python, folder, render.CODE, settings)
    normalise_tree(folder)


def build_context(plan: Plan, folder: Path, settings: Settings, log: Path) -> Path:
    """Fill a folder with copies of all our layers, for plain `apptainer build` and `docker build`. Return it."""
    with step(f"assemble the layers in {folder}"), atomic_path(folder) as draft:
        with site_layer(plan, settings, log).use() as site:
            shutil.copytree(site, draft / render.SITE_LAYER)
        code_layer(plan, draft / render.CODE_LAYER, settings)
        if folder.exists():
            shutil.rmtree(folder)
    return folder


def listed_digests(wheels: Iterable[Path]) -> dict[str, set[str]]:
    """Return the files that wheels install, by name, each with the `sha256:<hex>` that their lists give."""
    listed: dict[str, set[str]] = defaultdict(set)
    for wheel in wheels:
        for name, digest in _rows(wheel):
            moved = _MOVED.fullmatch(name)
            listed[moved.group(2) if moved else name].add(digest)
    return listed


def require_listed(content: Path, folder: str, digests: Mapping[str, str], wheels: Iterable[Path]) -> list[str]:
    """Check the files of a layer, all of them in `folder`, against the lists in wheels.

    `digests` has the hashes of all ordinary files by their names. Return the names of bytecode that no wheel lists.
    Raises SifmarkError for the first file that is not as listed.
    """
    listed = {f"{folder}/{name}": values for name, values in listed_digests(wheels).items()}
    for path in content.rglob("*"):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise altered(path, "is no ordinary file")
    rest = {name for name, digest in digests.items() if digest not in listed.get(name, ())}
    rest -= {name for name in rest if _OF_INSTALLER.fullmatch(name.removeprefix(f"{folder}/"))}
    unlisted = {name for name in rest if not name.endswith(_BYTECODE)}
    if name := min(unlisted, default=None):
        raise altered(content / name, "is not as its wheel has it" if name in listed else "is in no wheel of the lock")
    return sorted(rest)


def altered(path: Path, how: str) -> SifmarkError:
    """Return the error for a file in the cache that is not what a build put there."""
    return SifmarkError(f"the cache was changed: {path} {how}", _REMEDY, code="cache-altered")


def _make_site(plan: Plan, settings: Settings, log: Path | None, folder: Path) -> None:
    site = folder / render.SITE
    site.mkdir()
    with (
        fetch_wheels(plan.recipe, plan.target, settings, log) as wheels,
        step("unpack wheels") as progress,
    ):
        unpack(wheels, plan.target, site, settings, progress, log)
        if plan.python is None:
            status(f"  no python{plan.base.python} on this host: the image ships without bytecode and imports slower")
        else:
            progress.detail("compile to bytecode")
            _compile(plan.python, folder, render.SITE, settings, log)
    normalise_tree(folder)


def _verify_site(plan: Plan, settings: Settings, log: Path | None, content: Path, digests: Mapping[str, str]) -> None:
    """Raise SifmarkError unless a layer holds what the locked wheels list, and the bytecode of that."""
    with fetch_wheels(plan.recipe, plan.target, settings, log) as wheels, step("compare the layer with its wheels"):
        compiled = require_listed(content, render.SITE, digests, wheels)
        with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
            if compiled and plan.python is not None:
                _compile(plan.python, content, render.SITE, settings, log, Path(folder))
            for name in compiled:
                expected = Path(folder) / name
                if not expected.is_file() or sha256_file(expected) != digests[name]:
                    raise altered(content / name, "is not what its source compiles to")


def _write_run(code: Path, recipe: Recipe) -> None:
    """Write the program that starts an image, with the base's Python by its path.

    A shell that finds a `python3` which it may not execute silently takes the next one on the PATH.
    """
    (code / "entrypoints" / "run").rename(code / "run")
    if recipe.base.interpreter:
        text = (code / "run").read_text()
        (code / "run").write_text(text.replace("exec python3 ", f"exec {recipe.base.interpreter} "))


def _write_app(folder: Path) -> None:
    folder.mkdir(parents=True)
    script = folder / "runscript"
    script.write_text(f"{render.app_script()}\n")
    script.chmod(0o755)


def _compile(
    python: str, folder: Path, layer: str, settings: Settings, log: Path | None = None, target: Path | None = None
) -> None:
    """Compile a layer: in the read-only image, Python could not keep the bytecode that it makes.

    The bytecode is written beside its sources, or to the same places below `target`.
    """
    sources = sorted(str(path.relative_to(folder)) for path in (folder / layer).rglob("*.py"))
    sources = [name for name in sources if _TESTS.isdisjoint(name.split("/"))]
    with tempfile.TemporaryDirectory(prefix="sifmark-") as lists, thread_pool(os.cpu_count() or 1) as pool:
        compile_list = partial(_compile_list, python, folder, target or folder, settings.time_limit, log)
        for _ in pool.map(compile_list, _write_lists(sources, Path(lists))):
            pass


def _write_lists(sources: list[str], folder: Path) -> Iterator[Path]:
    """Write the lists of sources that one process compiles each: the same ones on every host."""
    for start in range(0, len(sources), _SOURCES_PER_PROCESS):
        path = folder / f"{start}.txt"
        path.write_text("".join(f"{name}\n" for name in sources[start : start + _SOURCES_PER_PROCESS]))
        yield path


def _compile_list(python: str, folder: Path, target: Path, time_limit: float, log: Path | None, names: Path) -> None:
    run(
        [python, "-s", bytecode.__file__, names, folder, target],
        log=log,
        time_limit=time_limit,
        remedy="the log names the file; is there space left in the cache?",
        environment=_COMPILER_ENVIRONMENT,
    )


def _rows(wheel: Path) -> Iterator[tuple[str, str]]:
    """Yield name and digest of each file in a wheel's list."""
    with zipfile.ZipFile(wheel) as archive:
        (record,) = (name for name in archive.namelist() if _RECORD.fullmatch(name))
        with archive.open(record) as stream:
            for name, digest, *_ in csv.reader(io.TextIOWrapper(stream, "utf-8", newline="")):
                algorithm, _, value = digest.partition("=")
                if algorithm == "sha256":
                    yield name, f"sha256:{base64.urlsafe_b64decode(value + '=' * (-len(value) % 4)).hex()}"
