"""Makes the in-image package importable from the checkout, and runs it as users do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

IMAGE = {
    "recipe": "double",
    "framework": "double",
    "device": "double",
    "build_key": "sha256:" + "0" * 64,
    "base": {"reference": "registry.example/double:1", "digest": "sha256:" + "1" * 64},
    "stand_in": True,
    "lock": "sha256:" + "2" * 64,
    "revision": None,
    "platform": "x86_64",
    "version": "0.1.0",
}


class Program:
    """`main.py` of one tree, as a process of its own in an empty folder."""

    def __init__(self, tree, folder):
        self.main, self.folder = tree / "entrypoints" / "main.py", folder

    def start(self, *arguments, fault="", **environment):
        """The running process, with pipes."""
        return subprocess.Popen(
            [sys.executable, "-s", "-B", str(self.main), *map(str, arguments)],
            cwd=str(self.folder),
            env={**os.environ, "DOUBLE_FAULT": fault, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def run(self, *arguments, fault="", **environment):
        """(exit code, standard output, standard error)."""
        process = self.start(*arguments, fault=fault, **environment)
        output, errors = process.communicate()
        return process.returncode, output, errors

    def result(self, *arguments, fault="", **environment):
        """The document, after checks that hold for each: valid, alone on standard output, true to the exit code."""
        code, output, errors = self.run(*arguments, fault=fault, **environment)
        assert output, errors
        document = checked(output)
        assert document["status"]["exit_code"] == code
        return document


def checked(text):
    document = json.loads(text)
    schema = json.loads((ROOT / "schemas" / "result-1.0.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


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
    return tree


@pytest.fixture()
def double(double_tree, tmp_path):
    """The program on a device that can be told to fail: runs take a fraction of a second."""
    return Program(double_tree, tmp_path)
