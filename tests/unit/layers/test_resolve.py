"""Locks, resolved against a folder of wheels made here, and the configuration that pip and uv share."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from unit.layers.conftest import Site
from unit.refusals import refused
from unit.wheel_files import SITE, make_wheel

from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_file
from sifmark.layers.installers import pip_configuration, uv_variables
from sifmark.layers.resolve import lock_wheels
from sifmark.recipes.lockfile import read_lock
from sifmark.recipes.recipe import load_recipe


def test_conditions_are_read_as_the_python_of_the_base_would(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that only old Pythons need is locked for those, whatever resolves."""
    needs = "Requires-Dist: older ; python_version < '3.9'\n"
    make_wheel(site.wheel.parent, "older")
    make_wheel(site.wheel.parent, "asking", metadata=needs)
    recipe = replace(site.recipe, requires=("asking==1.0",))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_PYTHON", sys.executable)  # it need not try every Python of this machine
    for python, expected in (("3.8", ["asking", "older"]), ("3.12", ["asking"])):
        path = lock_wheels(recipe, site.settings, python, "aarch64")
        assert path.name == f"tiny-cp{python.replace('.', '')}-aarch64.txt"
        assert [wheel.name for wheel in read_lock(path)] == expected


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
        uv_variables(pip_configuration(SITE)).items()
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


def test_a_site_s_own_index_takes_the_place_of_pip_s(pip_conf: Path) -> None:
    variables = uv_variables(pip_configuration(replace(SITE, wheel_indexes=("https://own.example/simple",))))
    assert variables["UV_DEFAULT_INDEX"] == variables["UV_INDEX"] == "https://own.example/simple"


def test_a_lock_needs_no_index_where_pip_has_wheels_on_disk(site: Site, pip_conf: Path) -> None:
    pip_conf.write_text(f"[global]\nno-index = true\nfind-links = {site.wheel.parent}\n")
    lock = lock_wheels(site.recipe, site.settings, "3.9", "aarch64")
    assert f"tiny==1.0 --hash={sha256_file(site.wheel)}" in lock.read_text()


@pytest.mark.parametrize(("python", "platform"), [(None, "riscv"), ("three", None)])
def test_a_lock_for_nowhere_is_refused(python: str | None, platform: str | None) -> None:
    with refused(SifmarkError, "invalid-option", f"'{python or platform}'"):
        lock_wheels(load_recipe("cpu"), SITE, python, platform)
