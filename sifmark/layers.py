"""Our layers, assembled on the host: the wheels we add, and the code. Nothing of the base runs."""

import os
import re
import shutil
from functools import partial
from pathlib import Path

from sifmark import render
from sifmark.cache import LAYERS, Entry
from sifmark.console import Step, say, step
from sifmark.errors import SifmarkError
from sifmark.files import beside, normalise_tree, write_json
from sifmark.images import workloads_of
from sifmark.plan import Plan, shipped_files
from sifmark.run import describe_failure, run
from sifmark.settings import settings
from sifmark.wheels import bytecode_python, fetched, unpack


def site_layer(plan: Plan, log: Path | None = None) -> Entry:
    """The folder that holds `sifmark-site/`, by the lock of its wheels."""
    return Entry(LAYERS, plan.site_key, partial(_stock_site, plan, log))


def _stock_site(plan: Plan, log: Path | None, folder: Path) -> None:
    site = folder / render.SITE
    site.mkdir()
    with fetched(plan.recipe, plan.target, log) as wheels, step("unpack wheels") as progress:
        unpack(plan.target, wheels, site, progress, log)
        _compile(plan, folder, progress, log)
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
    normalise_tree(folder)


def context(plan: Plan, folder: Path, log: Path) -> Path:
    """A folder with all our layers, copies that users may look into, for plain `apptainer build` and `docker build`."""
    with step(f"assemble the layers in {folder}"), beside(folder) as draft:
        with site_layer(plan, log).held() as site:
            shutil.copytree(site, draft)
        code_layer(plan, draft)
        if folder.exists():
            shutil.rmtree(folder)
    return folder


def _compile(plan: Plan, folder: Path, progress: Step, log: Path | None) -> None:
    """Compile the wheels, so that an import in the read-only image does not start from source each time."""
    python = bytecode_python(plan.base.python)
    if python is None:
        say(f"  no python{plan.base.python} on this host: the image ships without bytecode and imports slower")
        return
    progress.detail("compile to bytecode")
    # Unchecked: the image never changes, and dates do not matter. -s and -p: no path of this host in the bytecode.
    command = [python, "-m", "compileall", "-q", "-j", str(os.cpu_count() or 1)]
    command += ["--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", "/", str(folder / render.SITE)]
    done = run(command, log=log, time_limit=settings().time_limit, check=False)
    # Packages carry files that are no valid Python of this version, such as tests of newer syntax: those stay sources.
    faults = set(re.findall(r"^(\w*Error)\b", "\n".join([done.output, *done.tail]), re.MULTILINE))
    if done.exit_code != 0 and not faults <= {"SyntaxError", "IndentationError", "TabError"}:
        raise SifmarkError(describe_failure(done, log), "the log names the file; is there space left in the cache?")
