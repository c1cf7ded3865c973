"""A layer appended beside a base gives the file system that an append to a copy of the base gives."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_file
from sifmark.engines.apptainer.append import append, append_in_place
from sifmark.engines.apptainer.squashfs import extract

pytestmark = pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools are not installed")
TIME_LIMIT = 60  # seconds
LARGE = os.urandom(300_000)  # more than a block, with a rest that goes into a fragment


def folder_with(path: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (path / name).mkdir(parents=True)
        (path / name / "file").write_bytes(content)
        (path / name / "small").write_bytes(content[:10])
    return path


def make_base(tmp_path: Path, *options: str) -> Path:
    base = tmp_path / "base.squashfs"
    tree = folder_with(tmp_path / "tree", one=LARGE, other=b"text" * 100)
    subprocess.run(["mksquashfs", tree, base, "-no-progress", *options], check=True, capture_output=True)
    return base


def appended(tmp_path: Path, base: Path, layer: Path, name: str) -> Path:
    system = append(layer, base, tmp_path / f"{name}.end", None, TIME_LIMIT)
    target = tmp_path / name
    with target.open("wb") as stream:
        system.send(stream.write)
    assert (system.base_digest(), system.size) == (sha256_file(base), target.stat().st_size)
    return target


@pytest.mark.parametrize("options", [(), ("-comp", "zstd", "-Xcompression-level", "3"), ("-no-fragments",)])
def test_it_is_the_file_system_of_an_append_in_place(tmp_path: Path, options: tuple[str, ...]) -> None:
    base, layer = make_base(tmp_path, *options), folder_with(tmp_path / "layer", new=os.urandom(200_000))
    copy = Path(shutil.copy(base, tmp_path / "copy"))
    append_in_place(layer, copy, None, TIME_LIMIT)
    assert appended(tmp_path, base, layer, "beside").read_bytes() == copy.read_bytes()


def test_a_flag_that_mksquashfs_no_longer_writes_does_not_come_back(tmp_path: Path) -> None:
    base, layer = make_base(tmp_path), folder_with(tmp_path / "layer", new=os.urandom(1000))
    with base.open("r+b") as stream:
        stream.seek(24)
        (flags,) = stream.read(1)
        stream.seek(24)
        stream.write(bytes([flags | 0x04]))  # SQUASHFS_CHECK, of images of 2009 and before
    copy = Path(shutil.copy(base, tmp_path / "copy"))
    append_in_place(layer, copy, None, TIME_LIMIT)
    assert appended(tmp_path, base, layer, "beside").read_bytes() == copy.read_bytes()


def test_again_and_again(tmp_path: Path) -> None:
    """The result of an append is a base for the next one, and every file can be read."""
    base = make_base(tmp_path)
    for number in range(3):
        layer = folder_with(tmp_path / f"layer{number}", **{f"new{number}": os.urandom(150_000)})
        base = appended(tmp_path, base, layer, f"image{number}")
    tree = extract(base, 0, tmp_path / "out", TIME_LIMIT)
    assert sorted(path.name for path in tree.iterdir()) == ["new0", "new1", "new2", "one", "other"]
    assert (tree / "one" / "file").read_bytes() == LARGE
    for number in range(3):
        name = f"new{number}/file"
        assert (tree / name).read_bytes() == (tmp_path / f"layer{number}" / name).read_bytes()


def test_files_that_the_base_has_already_are_stored_again(tmp_path: Path) -> None:
    """To find one, mksquashfs would read the base's data, which is not there, and fail."""
    base, layer = make_base(tmp_path), folder_with(tmp_path / "layer", same=LARGE, text=b"text" * 100)
    tree = extract(appended(tmp_path, base, layer, "image"), 0, tmp_path / "out", TIME_LIMIT)
    assert (tree / "same" / "file").read_bytes() == LARGE == (tree / "one" / "file").read_bytes()


def test_the_base_is_not_changed_and_nothing_of_its_size_is_written(tmp_path: Path) -> None:
    tree = folder_with(tmp_path / "tree", one=os.urandom(20_000_000))
    base = tmp_path / "base"
    subprocess.run(["mksquashfs", tree, base, "-no-progress"], check=True, capture_output=True)
    before = sha256_file(base)
    system = append(folder_with(tmp_path / "layer", new=b"new"), base, tmp_path / "end", None, TIME_LIMIT)
    assert sha256_file(base) == before and system.size > 20_000_000
    assert system.end.stat().st_blocks * 512 < 1_000_000


@pytest.mark.parametrize("content", [b"", b"hsqs", b"text" * 100, b"hsqs" + b"\xff" * 100])
def test_what_is_no_squashfs_is_named(tmp_path: Path, content: bytes) -> None:
    base = tmp_path / "base"
    base.write_bytes(content)
    with refused(SifmarkError, "file-damaged", base):
        append(tmp_path, base, tmp_path / "end", None, TIME_LIMIT)
