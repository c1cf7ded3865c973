"""What tests of trust share."""

from dataclasses import replace
from pathlib import Path

import pytest

from sifmark.core.settings import Settings
from sifmark.engines import open_engine


@pytest.fixture
def trusting(site: Settings, made_by_0_1_0: Path) -> Settings:
    """Settings that trust the key of the image of 0.1.0, which the real engine reads."""
    if open_engine(site, "apptainer").version() is None:
        pytest.skip("Apptainer is not installed: ci/setup/apptainer")
    return replace(site, keys=(str(made_by_0_1_0 / "key.pub"),))
