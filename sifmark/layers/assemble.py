"""Our layers, assembled on the host: the wheels we add, and the code. Nothing of the base runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sifmark.core.console import status, step
from sifmark.core.files import atomic_path, normalise_tree, write_json
from sifmark.core.process import bytecode_python, run, thread_pool
from sifmark.core.settings import settings
from sifmark.layers import bytecode
from sifmark.layers.cache import LAYERS, Entry
from sifmark.layers.wheels import fetch_wheels, unpack
from sifmark.recipes import render
from sifmark.recipes.names import workloads_of
from sifmark.recipes.plan import Plan, shipped_files

_TESTS = {"test", "tests"}  # folders of packages: no workload imports them, so they stay sources
_SOURCES_AT_ONCE = 200  # few enough for many cores, and many enough that starting Python does not count
# Bytecode holds the order of sets, and the user's own wishes for Python must not reach an image.
_COMPILER_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "", "PYTHONPATH": "", "PYTHONPYCACHEPREFIX": ""}


def site_layer(plan: Plan, log: Path | None = None) -> Entry:
    """The folder that holds `sifmark-site/`, by the lock of its wheels."""
    return Entry(LAYERS, plan.site_key, partial(_stock_site, plan, log))


def _stock_site(plan: Plan, log: Path | None, folder: Path) -> None:
    site = folder / render.SITE
    site.mkdir()
    with fetch_wheels(plan.recipe, plan.target, log) as wheels, step("unpack wheels") as progress:
        unpack(plan.target, wheels, site, progress, log)
        if (python := bytecode_python(plan.base.python)) is None:
            status(f"  no python{plan.base.python} on this host: the image ships without bytecode and imports slower")
        else:
            progress.detail("compile to bytecode")
            _compile(python, folder, render.SITE, log)
    normalise_tree(folder)


def code_layer(plan: Plan, folder: Path) -> None:
    """Put `sifmark/` and `scif/` into a folder: entrypoints, schemas, what the image must know of itself, and apps."""
    code = folder / render.CODE
    for name, source in shipped_files().items():
        target = code / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    (code / "entrypoints" / "run").rename(code / "run")
    write_json(code / "image.json", plan.self_description())
    for workload in workloads_of(plan.recipe.name):
        app = folder / render.APPS / "apps" / workload / "scif"
        app.mkdir(parents=True)
        script = app / "runscript"
        script.write_text(f"{render.app_script()}\n")
        script.chmod(0o755)
    if (python := bytecode_python(plan.base.python)) is not None:
        _compile(python, folder, render.CODE, None)
    normalise_tree(folder)


def build_context(plan: Plan, folder: Path, log: Path) -> Path:
    """A folder with all our layers, copies that users may look into, for plain `apptainer build` and `docker build`."""
    with step(f"assemble the layers in {folder}"), atomic_path(folder) as draft:
        with site_layer(plan, log).held() as site:
            shutil.copytree(site, draft / render.SITE_LAYER)
        code_layer(plan, draft / render.CODE_LAYER)
        if folder.exists():
            shutil.rmtree(folder)
    return folder


def _compile(python: str, folder: Path, layer: str, log: Path | None) -> None:
    """Compile a layer, so that an import in the read-only image does not start from source each time."""
    sources = sorted(str(path.relative_to(folder)) for path in (folder / layer).rglob("*.py"))
    sources = [name for name in sources if _TESTS.isdisjoint(name.split("/"))]
    with tempfile.TemporaryDirectory(prefix="sifmark-") as lists, thread_pool(os.cpu_count() or 1) as pool:
        work = partial(_compile_list, python, folder, log)
        for _ in pool.map(work, _lists(sources, Path(lists))):
            pass


def _lists(sources: list[str], folder: Path) -> Iterator[Path]:
    """Files that name as many sources as one process compiles: the same ones on every host."""
    for start in range(0, len(sources), _SOURCES_AT_ONCE):
        path = folder / f"{start}.txt"
        path.write_text("".join(f"{name}\n" for name in sources[start : start + _SOURCES_AT_ONCE]))
        yield path


def _compile_list(python: str, folder: Path, log: Path | None, names: Path) -> None:
    run(
        [python, "-s", bytecode.__file__, names, folder],
        log=log,
        time_limit=settings().time_limit,
        remedy="the log names the file; is there space left in the cache?",
        environment=_COMPILER_ENVIRONMENT,
    )
