"""A recipe with one wheel, and where it is fetched from."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from unit.registry_double import running
from unit.wheel_files import TARGET, make_wheel

from sifmark.core import paths
from sifmark.core.files import sha256_file
from sifmark.core.settings import Settings
from sifmark.layers.wheels import fetch_wheels
from sifmark.recipes.recipe import Recipe, load_recipe


@dataclass
class Site:
    """A recipe without vendor index whose lock names one wheel, and an index that is a folder."""

    recipe: Recipe
    wheel: Path
    settings: Settings
    log: Path

    def fetch(self) -> tuple[Path, ...]:
        with fetch_wheels(self.recipe, TARGET, self.settings, self.log) as files:
            return files


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    index, locks = tmp_path / "index", tmp_path / "locks"
    for folder in (index, locks):
        folder.mkdir()
    wheel = make_wheel(index)
    monkeypatch.setattr(paths, "LOCKS", locks)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    recipe = replace(load_recipe("cpu"), name="tiny", requires=("tiny",), index=None)
    recipe.lock(TARGET).write_text(f"tiny==1.0 --hash={sha256_file(wheel)}\n")
    settings = Settings(cache=tmp_path / "cache", dist=tmp_path / "dist")
    return Site(recipe, wheel, settings, tmp_path / "log")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of an index with the wheel of `site`, behind a password that it does not look at."""
    packages = tmp_path / "served" / "simple" / "tiny"
    packages.mkdir(parents=True)
    wheel = make_wheel(packages)
    (packages / "index.html").write_text(f'<a href="{wheel.name}#{sha256_file(wheel).replace(":", "=")}">tiny</a>')
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served")) as server,
        running(server),
    ):
        yield f"http://user:hunter2@127.0.0.1:{server.server_port}/simple"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass
