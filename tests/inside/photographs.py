"""A small tree of real photographs, the ones that scikit-image carries in its package."""

from __future__ import annotations

import pytest

NAMES = {"colour": ("astronaut", "chelsea", "coffee"), "grey": ("camera", "coins", "page")}


def write(folder):
    """Each photograph as JPEG and as PNG: twelve files in two classes. Skips the test where there are none."""
    data = pytest.importorskip("skimage.data")
    image = pytest.importorskip("PIL.Image")
    for label, names in NAMES.items():
        (folder / label).mkdir()
        for name in names:
            for suffix in ("jpg", "png"):
                image.fromarray(getattr(data, name)()).save(str(folder / label / f"{name}.{suffix}"))
    return folder
