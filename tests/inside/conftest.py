"""Makes the in-image package importable from the checkout; the programs that tests run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from program import IMAGE, ROOT, Program

sys.path.insert(0, str(ROOT))


@pytest.fixture()
def program(tmp_path):
    """The program of this checkout."""
    return Program(ROOT, tmp_path)


@pytest.fixture(scope="session")
def double_tree(tmp_path_factory):
    """A tree laid out as in an image whose device and framework are doubles: the parent is the real one."""
    tree = tmp_path_factory.mktemp("image") / "sifmark"
    shutil.copytree(str(ROOT / "entrypoints"), str(tree / "entrypoints"))
    shutil.copytree(str(ROOT / "schemas"), str(tree / "schemas"))
    for source in (Path(__file__).parent / "double").rglob("*.py"):
        target = tree / "entrypoints" / source.relative_to(Path(__file__).parent / "double")
        target.parent.mkdir(exist_ok=True)
        shutil.copy(str(source), str(target))
    shutil.copy(str(ROOT / "entrypoints" / "run"), str(tree / "run"))  # the door of an image
    (tree / "image.json").write_text(json.dumps(IMAGE))
    shutil.rmtree(str(tree / "entrypoints" / "references"))  # a double computes nothing that could match them
    return tree


@pytest.fixture()
def double(double_tree, tmp_path):
    """The program on a device that can be told to fail: runs take a fraction of a second."""
    return Program(double_tree, tmp_path)
