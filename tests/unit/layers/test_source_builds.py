"""Wheels made here of sources: the same bytes each time, of the locked source alone, with the locked tools alone."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from unit.layers.conftest import Site
from unit.refusals import refused
from unit.wheel_files import STEP, TARGET, make_wheel

from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_file
from sifmark.layers.resolve import lock_wheels
from sifmark.layers.wheels import build_wheel, unpack
from sifmark.recipes.lockfile import read_lock
from sifmark.recipes.recipe import BuiltWheel, load_built_wheel, read_built_wheel

# A build system of its own, which notes what it sees: the tool, other packages of this host, a variable, the time.
BACKEND = """
import importlib.util, os, time, zipfile
import tiny  # the tool: the build fails without it


def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "made-1.0-py3-none-any.whl"
    strangers = [name for name in ("jsonschema", "pytest") if importlib.util.find_spec(name)]
    files = {
        "made.py": f"tool, strangers, word = {tiny.x}, {strangers}, {os.environ['WORD']!r}\\n",
        "made-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: made\\nVersion: 1.0\\n",
        "made-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "made-1.0.dist-info/RECORD": "made.py,,\\nmade-1.0.dist-info/METADATA,,\\nmade-1.0.dist-info/WHEEL,,\\n",
    }
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, time.localtime()[:6]), text)
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
MADE = "sha256:7a17f2fd9485be72359d2f3426e4fd65b095f7b63d39b3e4d92aaff92c95cdcd"  # on every host


def make_source(folder: Path) -> Path:
    """Write a source distribution that builds itself, without a build system of the index."""
    path = folder / "made-1.0.tar.gz"
    files = {"pyproject.toml": PROJECT, "backend.py": BACKEND, "PKG-INFO": "Metadata-Version: 2.1\nName: made\n"}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"made-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def built(site: Site) -> BuiltWheel:
    """A source in the index of `site`, whose recipe has the wheel that is made of it, and nothing else."""
    tool = f"tiny==1.0 --hash={sha256_file(site.wheel)}"
    source = sha256_file(make_source(site.wheel.parent))
    made = BuiltWheel("made", "1.0", source, MADE, (tool,), (), {"WORD": "given"})
    site.recipe = replace(site.recipe, requires=(), built=(made,))
    site.recipe.lock(TARGET).write_text(f"made==1.0 --hash={made.wheel}\n")
    return made


def test_a_lock_s_wheel_is_made_of_its_source_with_its_tools_alone(
    site: Site, built: BuiltWheel, tmp_path: Path
) -> None:
    unpack(site.fetch(), TARGET, tmp_path / "layer", site.settings, STEP, site.log)
    assert (tmp_path / "layer" / "made.py").read_text() == "tool, strangers, word = 1, [], 'given'\n"
    assert not list(site.settings.cache.rglob("*.partial*")) and "made-1.0.tar.gz" not in str(list(tmp_path.iterdir()))


def test_other_bytes_are_refused_and_named(site: Site, built: BuiltWheel, tmp_path: Path) -> None:
    other = replace(built, environment={"WORD": "another"})
    with refused(SifmarkError, "digest-mismatch", MADE):
        build_wheel(other, site.recipe, tmp_path, site.settings, STEP, site.log)
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize("changed", ["source", "tools"])
def test_another_source_or_tool_is_refused_and_nothing_stays(site: Site, built: BuiltWheel, changed: str) -> None:
    wrong = f"sha256:{'1' * 64}"
    altered = (
        replace(built, source=wrong) if changed == "source" else replace(built, tools=(f"tiny==1.0 --hash={wrong}",))
    )
    site.recipe = replace(site.recipe, built=(altered,))
    with pytest.raises(SifmarkError, match="(?i)hash") as caught:
        site.fetch()
    assert "do not use it" in caught.value.remedy
    assert not list(site.settings.cache.rglob("*.whl"))


def test_a_lock_has_it_beside_what_it_needs(site: Site, built: BuiltWheel) -> None:
    make_wheel(site.wheel.parent, "needed")
    recipe = replace(site.recipe, requires=("needed==1.0",))
    locked = read_lock(lock_wheels(recipe, site.settings, "3.11", "x86_64"))
    assert {wheel.name: wheel.sha256 for wheel in locked}["made"] == built.wheel.removeprefix("sha256:")
    assert [wheel.name for wheel in locked] == ["made", "needed"]


def test_a_description_is_read_by_its_name(tmp_path: Path) -> None:
    assert load_built_wheel("deepspeed").requirement.startswith("deepspeed==")
    with refused(UsageError, "document-invalid", "deepspeed"):
        text = (paths.BUILT / "deepspeed.toml").read_text()
        (tmp_path / "other.toml").write_text(text)
        read_built_wheel(tmp_path / "other.toml")
