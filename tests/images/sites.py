"""What the tests of built images share: a site of their own, and how answers are read."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sifmark.core import paths
from sifmark.core.locks import file_lock
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.sif import read_sif
from sifmark.recipes.names import cards, workloads_of
from sifmark.recipes.recipe import load_recipe
from sifmark.results.load import document_problems

INV = [str(Path(sys.executable).with_name("inv")), "--search-root", str(paths.ROOT)]
# Apptainer's own build, without its cache, which has no lock; what compresses best takes ten times as long.
PLAIN_BUILD = ("build", "--disable-cache", "--mksquashfs-args", "-comp lz4")
# A command without a network, in words before it.
NO_NETWORK = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-current-user"])]
NOBODY = 65534  # the uid and gid of the ordinary user whom every system has

Command = Callable[..., subprocess.CompletedProcess[str]]  # a program that a fixture starts, by its words
Refused = Callable[[str, str], None]  # the fixture of this name


@dataclass(frozen=True)
class Site:
    """A folder that every user may read, with finished images in `dist`; `recipe` is the one that `build` builds."""

    folder: Path
    environment: dict[str, str]
    recipe: str = "cpu"

    @property
    def dist(self) -> Path:
        return self.folder / "dist"

    def using(self, **environment: str) -> "Site":
        """The same site with other variables."""
        return replace(self, environment={**self.environment, **environment})

    def with_cache(self, cache: Path) -> "Site":
        """The same site with an empty cache, which knows the stand-ins alone."""
        (cache / "stand-in").mkdir(parents=True)
        shutil.copy(load_settings().stand_in_pins, cache / "stand-in")
        return self.using(SIFMARK_CACHE=str(cache))

    def inv(self, *words: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a verb as a user types it in a clone."""
        return call([*INV, *words], check=check, env={**self.environment, **environment}, cwd=self.folder)

    def start(self, *words: str, until: str = "") -> subprocess.Popen[str]:
        """The same, without waiting for its end; it has said `until` on stderr."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*INV, *words], stdout=pipe, stderr=pipe, text=True, env=self.environment, cwd=self.folder
        )
        assert not until or any(until in line for line in process.stderr or ()), "it ended before"
        return process

    def build(self, *options: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.inv("build", f"resnet50-{self.recipe}", *options, check=check, **environment)


def copy_project(target: Path) -> Path:
    """A copy of the project that a test may change; with PYTHONPATH on it, verbs run from there."""
    for name in ("recipes", "schemas", "entrypoints", "sifmark"):
        shutil.copytree(paths.ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tasks.py", "pyproject.toml"):
        shutil.copy(paths.ROOT / name, target)
    return target


def copy_images(source: Path, target: Path) -> None:
    """A folder of images once more, in which the names of a recipe are links to one file as well."""
    shutil.copytree(source, target, ignore=lambda _, names: [name for name in names if "-" in name and ".sif" in name])
    for path in source.glob("*-*.sif"):
        os.link(target / f"{path.stem.partition('-')[2]}.sif", target / path.name)


def docker_alone() -> AbstractContextManager[int]:
    """Hold the lock of tests that use the names in the Docker Engine: all processes of a test run share these."""
    return file_lock(load_settings().cache / "docker" / "tests.lock")


def call(
    argv: Sequence[str | os.PathLike[str]], *, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command and show what it said when it fails."""
    done = subprocess.run([os.fspath(word) for word in argv], capture_output=True, text=True, check=False, **options)
    if check:
        assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done


def set_up(name: str, brings: str) -> str:
    """Run a set-up of the project and return what it prints; skip the test where it cannot bring its programs."""
    done = call([paths.CHECKOUT / "ci" / "setup" / name], check=False)
    if done.returncode:
        pytest.skip(f"no {brings}: {done.stderr[-200:]}")
    return done.stdout.strip()


def make_site(folder: Path) -> Site:
    folder.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}  # it makes commands stricter
    return Site(folder, {**environment, "SIFMARK_DIST": str(folder / "dist"), "SIFMARK_BASES": "stand-in"})


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result that stands alone on stdout, checked against its schema."""
    document: dict[str, Any] = json.loads(done.stdout)
    assert document_problems(document) == []
    return document


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What a build with --json says of each recipe."""
    return {outcome["recipe"]: outcome for outcome in json.loads(done.stdout)}


def assert_all_answered(
    results: list[dict[str, Any]], recipe: str, task: str | None = None, refused: float = 1 / 2
) -> None:
    """Each workload of a recipe, of those that have a task, in order with a valid result.

    They completed, but for a share of at most `refused`: those were too large to be tried.
    """
    all_cards = cards()
    able = [name for name in workloads_of(recipe) if task in (None, *all_cards[name]["tasks"])]
    assert [result["workload"]["name"] for result in results] == able
    failures = [result["status"] for result in results if result["status"]["state"] != "completed"]
    assert {status["state"] for status in failures} <= {"out_of_memory"}
    assert all(status["message"].startswith("not tried: at least ") for status in failures)
    assert len(failures) <= len(results) * refused
    assert all(not document_problems(result) for result in results)


def assert_same_tree(fast: Path, plain: Path, folder: Path) -> None:
    """Two images hold the same files, but for the two that describe the build itself."""
    fast_tree, plain_tree = _tree(fast, folder / "fast"), _tree(plain, folder / "plain")
    # The plain build writes its whole definition and labels into the tree.
    own = {".singularity.d/Singularity", ".singularity.d/labels.json"}
    assert len(fast_tree) > 1_000
    assert {name: fast_tree.get(name) for name in {*fast_tree} ^ {*plain_tree}} == {}
    assert {name for name in fast_tree if fast_tree[name] != plain_tree[name]} == own


def _tree(image: Path, folder: Path) -> dict[str, tuple[str, int]]:
    """Type, mode, and content of everything in an image's file system."""
    call(["unsquashfs", "-quiet", "-no-progress", "-offset", str(read_sif(image).system.offset), "-d", folder, image])
    entries = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        entries[str(path.relative_to(folder))] = (oct(status.st_mode), hash(content))
    return entries


def lacks_wheels(recipe: str, errors: str) -> bool:
    """Whether a build failed since no index that this machine reaches has a wheel of the vendor's own index."""
    return load_recipe(recipe).index is not None and "ResolutionImpossible" in errors
