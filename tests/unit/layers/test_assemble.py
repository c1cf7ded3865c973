"""Layers that are the same wherever they are assembled: bytecode, and what wheels tell of themselves."""

import marshal
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.registry_double import base_of, put_image, serving
from unit.wheel_files import SITE, STEP, TARGET, make_wheel

from sifmark.core import git, paths
from sifmark.core.environment import source_date
from sifmark.core.files import FIXED_MTIME
from sifmark.layers import assemble, offline
from sifmark.layers.wheels import unpack
from sifmark.recipes import render

BODY = "kinds = {'a', 'b', 'c', 'd'}\ndef f(x):\n    return x in {'a', 'b', 'c', 'd'} and __file__\n"


def compiled(folder: Path) -> Iterator[bytes]:
    """The bytecode of some packages."""
    for name in ("one", "two", "three"):
        (folder / render.SITE / name / "tests").mkdir(parents=True)
        (folder / render.SITE / name / "__init__.py").write_text(BODY)
    (folder / render.SITE / "one" / "tests" / "test_it.py").write_text("x = 1\n")
    (folder / render.SITE / "two" / "newer.py").write_text("def f(: pass\n")
    assemble._compile(sys.executable, folder, render.SITE, SITE)
    return (path.read_bytes() for path in sorted(folder.rglob("*.pyc")))


def test_bytecode_is_the_same_in_any_folder_whatever_the_user_wishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = list(compiled(tmp_path / "first"))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(assemble, "_SOURCES_PER_PROCESS", 2)  # the lists differ, what they hold of a file must not
    assert list(compiled(tmp_path / "second")) == first and len(first) == 3
    assert marshal.loads(first[0][16:]).co_filename == f"/{render.SITE}/one/__init__.py"
    assert int.from_bytes(first[0][4:8], "little") == 1  # by hash, and nobody looks at the source: PEP 552


def test_a_wheel_tells_nothing_of_the_folder_it_was_unpacked_from(tmp_path: Path) -> None:
    trees = []
    for name in ("first", "second"):
        (tmp_path / name / "site").mkdir(parents=True)
        unpack([make_wheel(tmp_path / name)], TARGET, tmp_path / name / "site", SITE, STEP, None)
        trees.append({path.name: path.read_bytes() for path in (tmp_path / name / "site").rglob("*") if path.is_file()})
    assert trees[0] == trees[1]
    assert set(trees[0]) == {"tiny.py", "METADATA", "WHEEL", "RECORD", "INSTALLER", "REQUESTED", "entry_points.txt"}
    assert b"direct_url" not in trees[0]["RECORD"] and b"bin/" not in trees[0]["RECORD"]


def test_images_are_dated_by_their_commit_or_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert source_date() is None and git.source_date_of_build.__wrapped__() > FIXED_MTIME
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert git.source_date_of_build.__wrapped__() == 86400
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr(paths, "IS_CHECKOUT", False)
    assert git.source_date_of_build.__wrapped__() == FIXED_MTIME


@pytest.mark.parametrize(
    ("created", "seconds"),
    [
        ("2026-08-21T10:00:00.123456789Z", 1787306400),
        ("1970-01-01T00:00:00Z", FIXED_MTIME),
        (None, FIXED_MTIME),
        ("soon", FIXED_MTIME),
    ],
)
def test_a_base_is_as_old_as_its_configuration_says(created: str | None, seconds: int) -> None:
    with serving(api=True) as server:
        digest = put_image(server, {"created": created}, b"a layer")
        assert offline.base_creation_time(base_of(server, digest), None) == seconds
    assert os.environ.get("SOURCE_DATE_EPOCH") is None
