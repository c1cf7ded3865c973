"""Locks and the cache of wheels, against a folder of wheels made here."""

import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sifmark.core import paths, settings
from sifmark.core.console import Step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_file
from sifmark.layers import wheels
from sifmark.recipes.recipe import Recipe, Target, load_recipe, recipe_names

TARGET = Target("3.11", "x86_64")
STEP = Step("test", None)


def make_wheel(
    folder: Path, name: str = "tiny", version: str = "1.0", body: str = "x = 1\n", metadata: str = ""
) -> Path:
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", body)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A recipe without vendor index whose lock names one wheel, and an index that is a folder."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = make_wheel(index)
    locks = tmp_path / "locks"
    locks.mkdir()
    chosen = settings.Settings(cache=tmp_path / "cache", dist=tmp_path / "dist")
    monkeypatch.setattr(wheels, "settings", lambda: chosen)
    monkeypatch.setattr(paths, "LOCKS", locks)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    recipe = replace(load_recipe("cpu"), name="tiny", index=None)
    recipe.lock(TARGET).write_text(f"tiny==1.0 --hash={sha256_file(wheel)}\n")
    return recipe, wheel, tmp_path


def fetch(recipe: Recipe, folder: Path) -> tuple[Path, ...]:
    with wheels.fetch_wheels(recipe, TARGET, folder / "log") as found:
        return found


def test_fetch_and_unpack(site) -> None:
    recipe, _, tmp_path = site
    found = fetch(recipe, tmp_path)
    wheels.unpack(TARGET, found, tmp_path / "layer", STEP, tmp_path / "log")
    assert (tmp_path / "layer" / "tiny.py").read_text() == "x = 1\n"
    assert not (tmp_path / "layer" / "bin").exists(), "scripts would name this host's interpreter"
    texts = [path.read_text() for path in (tmp_path / "layer").rglob("*") if path.is_file()]
    assert not any(str(tmp_path) in text for text in texts)


def test_fetching_again_asks_nobody(site, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, wheel, tmp_path = site
    first = fetch(recipe, tmp_path)
    wheel.unlink()
    assert fetch(recipe, tmp_path) == first


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of an index with the wheel of `site`, behind a password that it does not look at."""
    packages = tmp_path / "served" / "simple" / "tiny"
    packages.mkdir(parents=True)
    wheel = make_wheel(packages)
    (packages / "index.html").write_text(f'<a href="{wheel.name}#{sha256_file(wheel).replace(":", "=")}">tiny</a>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served"))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://user:hunter2@127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_site_s_own_index_is_asked_alone_and_its_password_stays_out_of_the_log(
    site, index: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recipe, _, _ = site
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")  # nobody answers there
    chosen = replace(wheels.settings(), wheel_indexes=(index,))
    monkeypatch.setattr(wheels, "settings", lambda: chosen)
    (found,) = fetch(replace(recipe, index="http://127.0.0.1:1/vendor"), tmp_path)
    assert found.name == "tiny-1.0-py3-none-any.whl"
    log = (tmp_path / "log").read_text()
    assert " download --require-hashes " in log and "hunter2" not in log
    recipe.lock(TARGET).unlink()
    monkeypatch.setattr(wheels, "load_recipe", lambda _: replace(recipe, requires=("tiny",)))
    assert "\ntiny==1.0 --hash=sha256:" in wheels.write_lock("tiny", "3.11", "x86_64").read_text()


def test_another_hash_stops_the_build_and_keeps_nothing(site) -> None:
    recipe, wheel, tmp_path = site
    make_wheel(wheel.parent, body="x = 'not what was locked'\n")
    with pytest.raises(SifmarkError, match="(?i)hash") as caught:
        fetch(recipe, tmp_path)
    assert "do not use it" in caught.value.remedy
    assert not list((tmp_path / "cache").rglob("*.whl"))


def test_a_damaged_cache_entry_is_found_and_removed(site) -> None:
    recipe, _, tmp_path = site
    (cached,) = fetch(recipe, tmp_path)
    cached.write_bytes(b"damaged")
    with pytest.raises(SifmarkError, match="has hash"):
        fetch(recipe, tmp_path)
    assert fetch(recipe, tmp_path) == (cached,)


@pytest.mark.parametrize("line", ["tiny", "tiny>=1", "tiny==1.0", "tiny==1.0 --hash=md5:00", "-r other.txt"])
def test_a_lock_line_without_hash_is_refused(site, line: str) -> None:
    recipe, _, _ = site
    recipe.lock(TARGET).write_text(f"{line}\n")
    with pytest.raises(SifmarkError, match="line 1"):
        wheels.read_lock(recipe.lock(TARGET))


@pytest.mark.parametrize("name", recipe_names())
def test_locks_hold_what_recipes_require(name: str) -> None:
    recipe = load_recipe(name)
    for lock in paths.LOCKS.glob(f"{name}-cp*.txt"):
        locked = {f"{w.name}=={w.version}" for w in wheels.read_lock(lock)}
        assert set(recipe.requires) <= locked, lock
    assert recipe.lock(Target(recipe.base.python, "x86_64")).is_file()


def test_conditions_are_read_as_the_python_of_the_base_would(site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that only old Pythons need is locked for those, whatever resolves."""
    recipe, wheel, _ = site
    needs = "Requires-Dist: older ; python_version < '3.9'\n"
    make_wheel(wheel.parent, "older")
    make_wheel(wheel.parent, "asking", metadata=needs)
    monkeypatch.setattr(wheels, "load_recipe", lambda _: replace(recipe, requires=("asking==1.0",)))
    monkeypatch.setattr(paths, "IS_CHECKOUT", True)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_PYTHON", sys.executable)  # it need not try every Python of this machine
    for python, expected in (("3.8", ["asking", "older"]), ("3.12", ["asking"])):
        path = wheels.write_lock("tiny", python, "aarch64")
        assert path.name == f"tiny-cp{python.replace('.', '')}-aarch64.txt"
        assert [wheel.name for wheel in wheels.read_lock(path)] == expected


@pytest.fixture
def pip_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of pip, without the variables of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # the user's own is not read
    path = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    path.write_text(
        "[global]\nindex-url = https://user:hunter2@packages.site.example/simple\ntrusted-host = a.example\n"
        "extra-index-url =\n  https://one.example/simple\n  https://two.example/simple\n"
        "find-links = /data/wheels /data/more\ncert = /etc/site.pem\nproxy = http://proxy.example:3128\n"
        "[download]\ntrusted-host = b.example\n[wheel]\ncert = /etc/other.pem\n"
    )
    return path


def test_uv_looks_where_pip_is_configured_to_look(pip_conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", "/etc/constraints.txt")
    monkeypatch.setenv("PIP_CERT", "")  # as pip takes it: not set
    assert (
        wheels.uv_variables(wheels.pip_configuration()).items()
        >= {
            "UV_DEFAULT_INDEX": "https://user:hunter2@packages.site.example/simple",
            "UV_INDEX": "https://one.example/simple https://two.example/simple",
            "UV_FIND_LINKS": "/data/wheels,/data/more",
            "UV_CONSTRAINT": "/etc/constraints.txt",
            "UV_INSECURE_HOST": "b.example",
            "SSL_CERT_FILE": "/etc/site.pem",
            "ALL_PROXY": "http://proxy.example:3128",
        }.items()
    )


def test_a_site_s_own_index_takes_the_place_of_pip_s(pip_conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = replace(settings.settings(), wheel_indexes=("https://own.example/simple",))
    monkeypatch.setattr(wheels, "settings", lambda: chosen)
    variables = wheels.uv_variables(wheels.pip_configuration())
    assert variables["UV_DEFAULT_INDEX"] == variables["UV_INDEX"] == "https://own.example/simple"


def test_a_lock_needs_no_index_where_pip_has_wheels_on_disk(
    site, pip_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, wheel, _ = site
    pip_conf.write_text(f"[global]\nno-index = true\nfind-links = {wheel.parent}\n")
    monkeypatch.setattr(wheels, "load_recipe", lambda _: replace(recipe, requires=("tiny",)))
    assert f"tiny==1.0 --hash={sha256_file(wheel)}" in wheels.write_lock("tiny", "3.9", "aarch64").read_text()


def test_a_lock_for_nowhere_is_refused(site) -> None:
    with pytest.raises(SifmarkError, match="no platform 'riscv'"):
        wheels.write_lock("cpu", platform="riscv")
    with pytest.raises(SifmarkError, match="no Python 'three'"):
        wheels.write_lock("cpu", python="three")
