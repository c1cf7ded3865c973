"""What every unit test needs: the settings of the test run, not of whoever sits here."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from entrypoints.rules.rule import RULES
from sifmark.core import paths
from sifmark.core.settings import Settings, load_settings
from sifmark.core.terminal import configure
from sifmark.engines import open_engine
from sifmark.results.rules import violations_of


@pytest.fixture(autouse=True)
def _fresh_settings(monkeypatch, tmp_path_factory):
    empty = tmp_path_factory.mktemp("settings") / "sifmark.toml"
    empty.write_text("")
    for name in [name for name in os.environ if name.startswith("SIFMARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SIFMARK_SETTINGS", str(empty))


@pytest.fixture(autouse=True)
def _reports_are_shown():
    configure()


@pytest.fixture
def site(monkeypatch, tmp_path):
    """Settings whose cache and folder of images are temporary."""
    monkeypatch.setenv("SIFMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIFMARK_DIST", str(tmp_path / "dist"))
    return load_settings()


@pytest.fixture
def any_command(monkeypatch):
    """Results are valid whatever their command is: those of tests are copies of examples."""
    violations_of()  # registers the rules
    monkeypatch.delitem(RULES, "command-is-what-was-configured")


@pytest.fixture
def made_by_0_1_0():
    """The folder of an image and results that 0.1.0 made, with what it answered about them."""
    return paths.CHECKOUT / "tests" / "fixtures" / "0.1.0"


@pytest.fixture
def trusting(site: Settings, made_by_0_1_0: Path) -> Settings:
    """Settings that trust the key of the image of 0.1.0, which the real engine reads."""
    if open_engine(site, "apptainer").version() is None:
        pytest.skip("Apptainer is not installed: ci/setup/apptainer")
    return replace(site, keys=(str(made_by_0_1_0 / "key.pub"),))


@pytest.fixture
def no_logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for Docker's configuration, where the only logins of this user lie."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("APPTAINER_CONFIGDIR", str(tmp_path / "empty"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path
