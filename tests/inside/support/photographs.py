"""A small tree of real photographs, the ones that scikit-image carries in its package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

NAMES = {"colour": ("astronaut", "chelsea", "coffee"), "grey": ("camera", "coins", "page")}


def write(folder):
    """Each photograph as JPEG and as PNG: twelve files in two classes. Skips the test where there are none."""
    image = pytest.importorskip("PIL.Image")
    package = importlib.util.find_spec("skimage")  # its files are wanted, not its code
    if package is None or not package.submodule_search_locations:
        pytest.skip("scikit-image is not installed, whose photographs are used")
    data = Path(package.submodule_search_locations[0]) / "data"
    for label, names in NAMES.items():
        (folder / label).mkdir()
        for name in names:
            for suffix in ("jpg", "png"):
                image.open(str(data / f"{name}.png")).save(str(folder / label / f"{name}.{suffix}"))
    return folder
