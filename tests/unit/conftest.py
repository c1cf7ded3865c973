"""What every unit test needs: the settings of the test run, not of whoever sits here."""

import pytest

from sifmark import settings


@pytest.fixture(autouse=True)
def _fresh_settings():
    settings.settings.cache_clear()
    yield
    settings.settings.cache_clear()
