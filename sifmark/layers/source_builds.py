"""Wheels made of sources: in an environment with the locked tools alone, and the same bytes on every host.

What a source runs to become a wheel is its own program, as whatever is locked: its hash is checked before.
"""

import tempfile
import venv
import zipfile
from pathlib import Path

from sifmark.core.console import Step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import FIXED_MTIME, sha256_file
from sifmark.core.process import run
from sifmark.core.settings import Settings
from sifmark.layers.installers import PIP, UV, download_wheels, pip_variables, run_with_indexes
from sifmark.recipes.built import BuiltWheel
from sifmark.recipes.recipe import Recipe

# Sets have the same order, no commit of a clone around the cache is noted, and files have no date of now.
_FIXED = {"PYTHONHASHSEED": "0", "GIT_DIR": "/dev/null", "SOURCE_DATE_EPOCH": str(FIXED_MTIME), "PYTHONPATH": ""}
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # in an archive
_MODE = 0o644 << 16  # where an archive keeps it


def build_wheel(
    built: BuiltWheel, recipe: Recipe, target: Path, settings: Settings, progress: Step, log: Path | None
) -> None:
    """Fetch a source by its hash, and put the wheel that is made of it into the folder `target`.

    Raises SifmarkError if the source or the wheel has another hash; then nothing is put there.
    """
    with tempfile.TemporaryDirectory(dir=target) as name:
        folder = Path(name)
        python = _environment(built, recipe, folder, settings, progress, log)
        source, made = folder / "source.txt", folder / "made"
        source.write_text(f"{built.requirement}\n")
        command = [*PIP, "--python", str(python), "wheel", "--require-hashes", "--no-deps", "--no-build-isolation"]
        command += ["--no-binary", built.name, "--no-cache-dir", "--wheel-dir", str(made), "-r", str(source)]
        environment = {**_FIXED, **built.environment, **pip_variables(settings)}
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


def _environment(
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
            entry.external_attr = _MODE
            copy.writestr(entry, archive.read(name))
