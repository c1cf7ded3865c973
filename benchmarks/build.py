"""The fast build against plain `apptainer build` of the same definition. README.md explains the numbers."""

import os
import shutil
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pairs import Spent, Times, measure, parser, report, require_folder, spend

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import FILE_NAME, load_settings
from sifmark.core.terminal import status
from sifmark.engines.apptainer.build import COMPRESSION
from sifmark.layers.cache import KINDS, LAYERS
from sifmark.recipes.plan import make_plan

IMAGE, RECIPE = "resnet50-cpu", "cpu"
SHARED = ("wheels", "stand-in")  # folders of the cache that are shared: making them again would be downloads
STAGES = tuple(name for name in KINDS if name not in SHARED)


@dataclass(frozen=True)
class Site:
    """A folder with a copy of the project and its own dist and cache folders."""

    folder: Path
    environment: dict[str, str]

    @property
    def project(self) -> Path:
        """The copy, which may be edited, and does not change when someone edits the original."""
        return self.folder / "project"

    @property
    def definition(self) -> Path:
        """The output of `sifmark image.render`."""
        return self.folder / f"{RECIPE}.def"

    def inv(self, *words: str) -> Spent:
        """Run a verb of the copy, from this folder."""
        inv = str(Path(sys.executable).with_name("inv"))
        with chdir(self.folder):
            return spend([inv, "--search-root", str(self.project), *words], **self.environment)

    def build(self, *options: str) -> Times:
        """Run one fast build. Raises SifmarkError if the image was up to date: that would be no build."""
        image = self.folder / "dist" / f"{RECIPE}.sif"
        before = image.stat().st_ino if image.exists() else None
        spent = self.inv("build", IMAGE, *options)
        if image.stat().st_ino == before:
            cause = "nothing was built, so nothing was measured"
            raise SifmarkError(cause, "a defect of this benchmark: report it", code="run-failed")
        return _times(spent)


def make_site(folder: Path) -> Site:
    """Create a site. Wheels and pins of stand-in bases are shared with the user's cache."""
    site = Site(folder, _environment(folder))
    for name in ("recipes", "schemas", "entrypoints", "sifmark"):
        shutil.copytree(paths.ROOT / name, site.project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tasks.py", "pyproject.toml"):
        shutil.copy(paths.ROOT / name, site.project)
    (folder / "cache").mkdir()
    for name in SHARED:
        origin = load_settings().cache / name
        origin.mkdir(parents=True, exist_ok=True)
        (folder / "cache" / name).symlink_to(origin)
    return site


def fill(site: Site) -> None:
    """Fill the caches before the clock runs: wheels, base (Apptainer keeps its blobs), stages and layers."""
    status("filling the caches")
    site.build()
    site.definition.write_text(site.inv("image.render", IMAGE, "--format", "def").output)


def plain(site: Site) -> Times:
    """Time a build by hand: `sifmark image.render` assembles our layers, `apptainer build` makes the rest."""
    return _plain(site)


def plain_alike(site: Site) -> Times:
    """Time the same with the fast build's compressor: what remains is the gain of appending."""
    return _plain(site, f"--mksquashfs-args={' '.join(COMPRESSION[load_settings().compression])}")


def assembled(site: Site) -> Times:
    """Time `apptainer build` with its default options and assembled layers."""
    return _apptainer_build(site)


def forced(site: Site) -> Times:
    """Time a build with nothing changed and every stage in the cache."""
    return site.build("--force")


def edited(site: Site) -> Times:
    """Time a build after a new line under entrypoints/: only the code layer is stale."""
    with (site.project / "entrypoints" / "main.py").open("a") as stream:
        stream.write("# one more line\n")
    return site.build()


def from_wheels(site: Site) -> Times:
    """Time a build with an empty cache: the base is converted, wheels are unpacked, compiled to bytecode and packed."""
    _forget(site, *STAGES)
    return site.build("--force")


def _plain(site: Site, *options: str) -> Times:
    _forget(site, LAYERS)
    rendered = _times(site.inv("image.render", IMAGE, "--format", "def"))
    built = _apptainer_build(site, *options)
    return {name: rendered[name] + built[name] for name in built}


def _apptainer_build(site: Site, *options: str) -> Times:
    target = site.folder / "plain.sif"
    target.unlink(missing_ok=True)
    # --notest: the fast build runs no test either, and a root that lacks a capability could not run it.
    argv = [
        "apptainer",
        "build",
        "--notest",
        *(["--no-https"] if make_plan(RECIPE, load_settings()).base.plain_http else []),
    ]
    return _times(spend([*argv, *options, target, site.definition]))


def _forget(site: Site, *kinds: str) -> None:
    for kind in kinds:
        shutil.rmtree(site.folder / "cache" / kind, ignore_errors=True)


def _times(spent: Spent) -> Times:
    return {"wall": spent.seconds, "cpu": spent.cpu_seconds}


def _environment(folder: Path) -> dict[str, str]:
    own: dict[str, str | Path] = {
        "SIFMARK_CACHE": folder / "cache",
        "SIFMARK_DIST": folder / "dist",
        "PYTHONPATH": folder / "project",
    }
    chosen = Path(os.environ.get("SIFMARK_SETTINGS", FILE_NAME)).absolute()
    own |= {"SIFMARK_SETTINGS": chosen} if chosen.is_file() else {}
    own |= {"PYTHONDONTWRITEBYTECODE": ""}  # a user's copy is compiled once
    return {name: str(path) for name, path in own.items()}


def main() -> None:
    """Measure, print and save. Raises SifmarkError."""
    options = parser(__doc__, pairs=3).parse_args()
    require_folder(options.json)
    target = options.json and options.json.absolute()
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        site = make_site(Path(name))
        fill(site)
        ways = (plain, plain_alike, assembled, forced, edited, from_wheels)
        sides = {way.__name__: partial(way, site) for way in ways}
        rounds = measure(options.pairs, sides)
    report(
        "build", rounds, "plain", {"bases": load_settings().bases, "compression": load_settings().compression}, target
    )


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
