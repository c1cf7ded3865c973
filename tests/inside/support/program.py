"""Runs the in-image program as users do, and checks what it answers."""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema

from entrypoints.rules.check import violations

ROOT = Path(__file__).resolve().parents[3]
KEEP = "SIFMARK_KEEP_RESULTS"  # a folder for all results of a test run

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
    "python": "{}.{}".format(*sys.version_info),
    "version": "0.1.0",
}
# Workloads that differ in what they can do: images with and without labels, series, text that grows and that does not,
# and a density.
FEW = ("bert_base", "gpt2", "image_compression", "lstm", "mcmc", "resnet50")
FILE = {
    "identity": "sha256:" + "3" * 64,
    "digest": "sha256:" + "4" * 64,
    "signer": "site.pub",
    "seen_by": "sifmark run",
}

OF_CARDS = "known-name-is-that-of-its-card"  # the rule that knows the cards that we ship


def lay(tree, **image):
    """Lay out `tree` as in an image of which `image` says what is not as in IMAGE."""
    shutil.copytree(str(ROOT / "entrypoints"), str(tree / "entrypoints"), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(str(ROOT / "schemas"), str(tree / "schemas"))
    shutil.copy(str(ROOT / "entrypoints" / "run"), str(tree / "run"))  # the door of an image
    (tree / "image.json").write_text(json.dumps({**IMAGE, **image}))
    return tree


def lay_double(tree, workloads=None):
    """Lay out `tree` as in an image whose device and framework are doubles: the parent is the real one.

    It has all workloads, or those that are named.
    """
    lay(tree)
    double = Path(__file__).resolve().parent / "double"
    for source in double.rglob("*.py"):
        target = tree / "entrypoints" / source.relative_to(double)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(source), str(target))
    for card in (tree / "entrypoints" / "workloads").glob("*.json"):  # it has every family, and computes none
        if workloads is not None and card.stem not in workloads:
            card.unlink()
            continue
        family = json.loads(card.read_text("utf-8"))["family"]
        (tree / "entrypoints" / "workloads" / "double" / f"{family}.py").touch()
    shutil.rmtree(str(tree / "entrypoints" / "references"))  # a double computes nothing that could match them
    # As in an image: tests start it hundreds of times. By hashes, so that a change of a file counts at once.
    checked_hashes = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(str(tree / "entrypoints"), quiet=1, invalidation_mode=checked_hashes)
    return tree


class Program:
    """`main.py` of one tree, or another script beside it, as a process of its own in an empty folder."""

    def __init__(self, tree, folder, script="main.py", cards_of_ours=True):
        self.main, self.folder = tree / "entrypoints" / script, folder
        self.cards_of_ours = cards_of_ours  # whether the tree has the cards that we ship

    def start(self, *arguments, fault="", within=None, output=subprocess.PIPE, **environment):
        """The running process, in the folder of the program or another one; `output` takes the place of a pipe."""
        return subprocess.Popen(
            [sys.executable, "-s", "-B", str(self.main), *map(str, arguments)],
            cwd=str(within or self.folder),
            env={**os.environ, "DOUBLE_FAULT": fault, **environment},
            stdout=output,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def run(self, *arguments, fault="", **environment):
        """(exit code, standard output, standard error)."""
        process = self.start(*arguments, fault=fault, **environment)
        output, errors = process.communicate()
        return process.returncode, output, errors

    def result(self, *arguments, fault="", **environment):
        """The document, after checks that hold for each: valid, alone on standard output, true to the exit code.

        A child that does not lie breaks no rule.
        """
        code, output, errors = self.run(*arguments, fault=fault, **environment)
        assert output, errors
        document = checked(output, self.cards_of_ours)
        assert fault or document["status"]["state"] != "inconsistent", document["status"]["message"]
        assert document["status"]["exit_code"] == code
        return document


def checked(text, cards_of_ours=True):
    """The document of a text, which fits its schema and breaks no rule; a copy is kept where KEEP says."""
    document = json.loads(text)
    schema = json.loads((ROOT / "schemas" / "result-1.2.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    broken = [each for each in violations(document) if cards_of_ours or OF_CARDS not in each]
    assert not broken, (broken, document)
    if KEEP in os.environ:
        Path(os.environ[KEEP], f"{document['id']}.json").write_text(text, "utf-8")
    return document


def lines(output):
    assert output.endswith("\n")
    return [checked(line) for line in output.splitlines()]
