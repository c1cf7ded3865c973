"""What every unit test needs: the settings of the test run, not of whoever sits here."""

import pytest
from properties import load_profile

from sifmark.core import settings

load_profile()


@pytest.fixture(autouse=True)
def _fresh_settings(monkeypatch, tmp_path_factory):
    empty = tmp_path_factory.mktemp("settings") / "sifmark.toml"
    empty.write_text("")
    monkeypatch.setenv("SIFMARK_SETTINGS", str(empty))
    settings.settings.cache_clear()
    yield
    settings.settings.cache_clear()
