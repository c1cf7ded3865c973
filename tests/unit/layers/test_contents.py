"""A layer of wheels from the cache holds what the locked wheels list, or no build takes it."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from unit.layers.conftest import Site
from unit.refusals import refused
from unit.wheel_files import TARGET, make_wheel, record_hash

from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_file, sha256_tree, write_json
from sifmark.layers.assemble import listed_digests, site_layer
from sifmark.layers.cache import CHECKSUM_FILE, Checksum, Entry, _files
from sifmark.recipes import plan as plans
from sifmark.recipes.plan import make_plan
from sifmark.recipes.render import SITE

INFO = "tiny-1.0.dist-info"


@pytest.fixture
def layer(site: Site, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """The layer of a recipe with one wheel, made by an earlier build."""
    monkeypatch.setattr(plans, "find_python", lambda _: sys.executable)
    plan = make_plan("cpu", site.settings)
    plan = replace(plan, recipe=site.recipe, platform=TARGET.platform, base=replace(plan.base, python=TARGET.python))
    entry = site_layer(plan, site.settings)
    entry.ensure()
    return entry


def write_checksum(entry: Entry) -> None:
    """Make the checksum that fits the files, as whoever changed them would."""
    write_json(entry.folder / CHECKSUM_FILE, asdict(Checksum(sha256_tree(_files(entry.content)), 1, 1.0)))


def bytecode(folder: Path) -> Path:
    (path,) = folder.rglob("*.pyc")
    return path


def change_with_list(folder: Path) -> None:
    """Change a file, and its hash in the list that is in the layer too."""
    record = folder / INFO / "RECORD"
    (folder / "tiny.py").write_text("x = 2\n")
    record.write_text(record.read_text().replace(record_hash("x = 1\n"), record_hash("x = 2\n")))


ATTACKS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a module added": (lambda site: (site / "more.py").write_text("x = 1\n"), "more.py", "in no wheel"),
    "a file that Python runs": (lambda site: (site / "a.pth").write_text("import os\n"), "a.pth", "in no wheel"),
    "a module changed": (lambda site: (site / "tiny.py").write_text("x = 2\n"), "tiny.py", "as its wheel has it"),
    "a module and its list": (change_with_list, "tiny.py", "as its wheel has it"),
    "bytecode changed": (lambda site: bytecode(site).write_bytes(b"x"), ".pyc", "its source compiles to"),
    "bytecode without a source": (lambda site: (site / "more.pyc").write_bytes(b"x"), "more.pyc", "compiles to"),
    "a link": (lambda site: (site / "more").symlink_to("/tmp"), "more", "no ordinary file"),
    "a folder beside": (lambda site: _beside(site).write_text("x"), "etc/passwd", "in no wheel"),
    "metadata of nobody": (lambda site: _beside(site, "no-1.dist-info/METADATA").write_text("x"), "METADATA", "in no"),
}


def _beside(site: Path, name: str = "etc/passwd") -> Path:
    path = site.parent / name
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_layer_that_was_changed_with_its_checksum_is_refused(layer: Entry, attack: str) -> None:
    change, file, said = ATTACKS[attack]
    change(layer.content / SITE)
    write_checksum(layer)
    with refused(SifmarkError, "cache-altered") as error, layer.use():
        raise AssertionError
    assert file in error.value.cause and said in error.value.cause and "clean --cache" in error.value.remedy


def test_a_layer_that_nobody_changed_is_taken(layer: Entry) -> None:
    assert bytecode(layer.content).is_file()
    before = layer.checksum()
    write_checksum(layer)
    with layer.use() as content:
        assert (content / SITE / "tiny.py").read_text() == "x = 1\n"
    assert before is not None and sha256_tree(_files(layer.content)) == before.digest


def test_without_their_wheels_lists_prove_nothing(layer: Entry, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can change a layer can remove the wheels too: they are fetched again, by the hash of the lock."""
    change_with_list(layer.content / SITE)
    write_checksum(layer)
    shutil.rmtree(site.settings.cache / "wheels")
    with refused(SifmarkError, "cache-altered"), layer.use():
        raise AssertionError
    shutil.rmtree(site.settings.cache / "wheels")
    site.wheel.unlink()
    with pytest.raises(SifmarkError) as error, layer.use():
        raise AssertionError
    assert error.value.code != "cache-altered"


def test_what_was_made_just_now_is_not_compared(site: Site, tmp_path: Path) -> None:
    asked: list[str] = []
    entry = Entry(tmp_path, "layers", "key", lambda folder: None, lambda *_: asked.append("asked"))
    with entry.use():
        assert not asked
    with entry.use(check=False):
        assert not asked
    with entry.use():
        assert asked == ["asked"]


def test_lists_name_files_where_they_are_installed(tmp_path: Path) -> None:
    more = {"tiny-1.0.data/purelib/pure.py": "a", "tiny-1.0.data/data/share/man": "b"}
    other = make_wheel(tmp_path, "other", more={"tiny.py": "y = 1\n"})
    listed = listed_digests([make_wheel(tmp_path, more=more), other])
    (tmp_path / "a").write_text("a")
    assert listed["pure.py"] == {sha256_file(tmp_path / "a")} and "share/man" in listed
    assert len(listed["tiny.py"]) == 2 and f"{INFO}/RECORD" not in listed
