"""Images packed into files: the same bytes each time, whole after a kill, and readable by what goes into images."""

import contextlib
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from unit.refusals import refused

from entrypoints.data.formats import open_source
from entrypoints.data.images import records
from sifmark.commands.data import prepare as prepare_data
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.schemas import validator
from sifmark.datasets.image_files import SourceImage, find_images, grey_png, kind_of
from sifmark.datasets.images import example, record, sample_keys
from sifmark.datasets.source import DamagedError

# A JPEG of one segment, a scan and its end; nobody decodes it here.
JPEG = b"\xff\xd8\xff\xe0\x00\x06JF\x01\x02\xff\xda\x00\x03\x01 coded data \xff\x00 \xff\xd9"
MEMBERS = {"cat/a.jpg": JPEG, "cat/a.png": grey_png(3, 2, bytes(6)), "dog/b.c.JPEG": JPEG + b"1", "dog/d.jpg": JPEG}


def images(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return images(tmp_path / "source", MEMBERS)


def prepare(source: Path, target: Path, format: str = "shards", per_file: int = 3, seed: int = 0, strict: bool = False):  # noqa: A002
    prepare_data(str(source), str(target), format, per_file, seed, strict)
    return json.loads((target / "manifest.json").read_text())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_shards_hold_every_image_with_its_label(source: Path, tmp_path: Path) -> None:
    manifest = prepare(source, tmp_path / "t")
    validator("manifest-1.0").validate(manifest)
    members: dict[str, bytes] = {}
    for file in manifest["files"]:
        with tarfile.open(tmp_path / "t" / file["name"]) as archive:
            assert all((m.mtime, m.uid, m.gid, m.uname, m.gname) == (0, 0, 0, "", "") for m in archive)
            for member in archive:
                content = archive.extractfile(member)
                assert content is not None
                members[member.name] = content.read()
    assert members == {
        "cat/a.jpg": JPEG,
        "cat/a.cls": b"0",
        "cat/a_2.png": MEMBERS["cat/a.png"],
        "cat/a_2.cls": b"0",
        "dog/b_c.jpg": JPEG + b"1",
        "dog/b_c.cls": b"1",
        "dog/d.jpg": JPEG,
        "dog/d.cls": b"1",
    }
    assert (manifest["samples"], manifest["classes"], manifest["skipped"]) == (4, ["cat", "dog"], [])
    assert sorted(contents(tmp_path / "t")) == ["data-000000.tar", "data-000001.tar", "manifest.json"]


@pytest.mark.parametrize("format", ["shards", "records"])
def test_what_an_image_reads_is_what_was_prepared(source: Path, tmp_path: Path, format: str) -> None:  # noqa: A002
    prepare(source, tmp_path / "t", format)
    framework = {"shards": "pytorch", "records": "tensorflow"}[format]
    for manifest in (True, False):
        if not manifest:
            (tmp_path / "t" / "manifest.json").unlink()
        name, opened = open_source(tmp_path / "t", "training", framework)
        assert (name, opened.samples, opened.lost) == (format, 4, ())
        assert opened.classes == (2 if manifest or format == "shards" else None)
    if format == "shards":
        read = sorted((entry.label, entry.read()) for entry in opened.entries([0, 1], 0))
        assert read == sorted((int(name.startswith("dog")), content) for name, content in MEMBERS.items())


def test_the_same_source_gives_the_same_bytes_and_another_seed_another_order(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "one")
    os.utime(source / "cat" / "a.jpg", (1, 1))
    prepare(source, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    prepare(source, tmp_path / "three", seed=1)
    assert contents(tmp_path / "three")["data-000000.tar"] != contents(tmp_path / "one")["data-000000.tar"]


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    source = images(tmp_path / "source", {f"c{at % 3}/{at}.jpg": JPEG + b"%d" % at for at in range(40)})
    prepare(source, tmp_path / "whole", per_file=4)
    code = (
        "import os, sys\n"
        "from sifmark.commands.data import prepare\n"
        "from sifmark.datasets import packer\n"
        "written = packer.write_json\n"
        "def write_json(target, document):\n"
        "    if len(document['files']) == 6: os.kill(os.getpid(), 9)\n"
        "    written(target, document)\n"
        "packer.write_json = write_json\n"
        "prepare(*sys.argv[1:], 4)"
    )
    argv = [sys.executable, "-c", code, str(source), str(tmp_path / "t"), "shards"]
    killed = subprocess.run(argv, cwd=paths.ROOT, stderr=subprocess.DEVNULL, check=False)
    assert killed.returncode == -signal.SIGKILL
    finished = {path.name: path.stat().st_ino for path in (tmp_path / "t").glob("data-*.tar")}
    assert len(finished) == 5 and not (tmp_path / "t" / "manifest.json").exists()
    (tmp_path / "t" / "data-000002.tar").write_bytes(b"damaged meanwhile")
    prepare(source, tmp_path / "t", per_file=4)
    assert contents(tmp_path / "t") == contents(tmp_path / "whole")
    kept = [name for name, inode in finished.items() if (tmp_path / "t" / name).stat().st_ino == inode]
    assert sorted(kept) == ["data-000000.tar", "data-000001.tar", "data-000003.tar", "data-000004.tar"]


def test_a_finished_target_is_left_alone_and_mended(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "t")
    before = {path: path.stat().st_ino for path in (tmp_path / "t").glob("*.tar")}
    expected = contents(tmp_path / "t")
    prepare(source, tmp_path / "t")
    assert {path: path.stat().st_ino for path in before} == before
    (tmp_path / "t" / "data-000001.tar").unlink()
    prepare(source, tmp_path / "t")
    assert contents(tmp_path / "t") == expected


DAMAGED = {
    "cat/empty.jpg": (b"", "empty"),
    "cat/short.jpg": (JPEG[:-2], "cut short"),
    "cat/header.jpg": (JPEG[:5], "cut short"),
    "cat/short.png": (MEMBERS["cat/a.png"][:-3], "cut short"),
    "dog/flipped.png": (MEMBERS["cat/a.png"][:45] + b"?" + MEMBERS["cat/a.png"][46:], "a wrong checksum"),
    "dog/text.jpg": (b"no image at all", "no JPEG and no PNG"),
}


def test_damaged_images_are_skipped_and_listed(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images(source, {name: content for name, (content, _) in DAMAGED.items()})
    manifest = prepare(source, tmp_path / "t", per_file=2)
    assert manifest["skipped"] == sorted(DAMAGED) and manifest["samples"] == 4
    assert "skipped 6 damaged images: cat/empty.jpg, cat/header.jpg" in capsys.readouterr().err
    assert prepare(source, tmp_path / "t", per_file=2) == manifest
    with refused(SifmarkError, "data-damaged", "cat/empty.jpg"):
        prepare(source, tmp_path / "t", per_file=2, strict=True)


@pytest.mark.parametrize("name", DAMAGED)
def test_strict_refuses_and_says_why(source: Path, tmp_path: Path, name: str) -> None:
    images(source, {name: DAMAGED[name][0]})
    with refused(SifmarkError, "data-damaged", f"{name}: {DAMAGED[name][1]}"):
        prepare(source, tmp_path / "t", strict=True)
    assert not (tmp_path / "t" / "manifest.json").exists()


def test_nothing_whole_is_an_error(tmp_path: Path) -> None:
    source = images(tmp_path / "source", {"cat/a.jpg": b"", "cat/b.jpg": b"x"})
    with refused(SifmarkError, "data-damaged", " 2 images", "cat/a.jpg"):
        prepare(source, tmp_path / "t")
    assert contents(tmp_path / "t") == {}


@given(st.integers(0, len(JPEG) - 1), st.integers(0, len(MEMBERS["cat/a.png"]) - 1))
def test_an_image_cut_anywhere_is_damaged(jpeg: int, png: int) -> None:
    for content in (JPEG[:jpeg], MEMBERS["cat/a.png"][:png]):
        with pytest.raises(DamagedError):
            kind_of(content)


@given(st.binary(max_size=200))
def test_no_content_raises_anything_else(content: bytes) -> None:
    for start in (b"", JPEG[:3], MEMBERS["cat/a.png"][:8]):
        with contextlib.suppress(DamagedError):
            assert kind_of(start + content) in ("jpg", "png")


def test_a_grey_png_holds_its_pixels() -> None:
    pixels = random.Random(1).randbytes(300 * 400)
    png = grey_png(300, 400, pixels)
    assert kind_of(png) == "png" and struct.unpack(">II", png[16:24]) == (300, 400)
    rows = zlib.decompress(png[41 : -12 - 4])  # signature and header before, checksum and end behind
    assert b"".join(rows[at + 1 : at + 301] for at in range(0, len(rows), 301)) == pixels


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_are_a_source(tmp_path: Path, suffix: str) -> None:
    images = struct.pack(">4I", 2051, 3, 2, 2) + bytes(range(12))
    labels = struct.pack(">2I", 2049, 3) + bytes([1, 0, 1])
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        (tmp_path / f"train-{name}-ubyte{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    dataset = find_images(tmp_path)
    assert dataset.classes == ["0", "1"]
    assert [(image.name, image.label) for image in dataset.images] == [
        ("1/000000.png", 1),
        ("0/000001.png", 0),
        ("1/000002.png", 1),
    ]
    assert dataset.images[1].read() == grey_png(2, 2, bytes([4, 5, 6, 7]))
    assert prepare(tmp_path, tmp_path / "t")["samples"] == 3
    (tmp_path / f"train-labels-idx1-ubyte{suffix}").unlink()
    with refused(UsageError, "file-missing"):
        find_images(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("s", "t", "shardes", 1, 0), "no format 'shardes'"),
        (("nowhere", "t", "shards", 1, 0), "nowhere: no such file or folder"),
        (("empty", "t", "shards", 1, 0), "empty: no images"),
        (("s", "s", "shards", 1, 0), "s is not empty"),
        (("s", "t", "shards", 2, 1), "t holds data prepared from another source"),
        (("s", "bad", "shards", 1, 0), "bad/manifest.json"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str, str, int, int], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source.rename("s")
    Path("empty").mkdir()
    images(Path("bad"), {"manifest.json": b"{"})
    prepare(Path("s"), Path("t"))
    path, target, form, per_file, seed = arguments
    with pytest.raises(UsageError, match=said) as raised:
        prepare_data(path, target, form, per_file, seed)
    assert raised.value.remedy


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "x_2", "x.y", "x_y", "x.jpg"])), max_size=12))
def test_keys_differ_and_have_no_dots(names: list[tuple[str, str]]) -> None:
    originals = [SourceImage(f"{folder}/{stem}.jpg", 0, 1, bytes) for folder, stem in names]
    keys = list(sample_keys(originals))
    assert len(set(keys)) == len(names)
    assert all("." not in key and key.split("/")[1].startswith("x") for key in keys)


# TFRecords


@given(st.binary(max_size=60), st.sampled_from([1, 7, 400]))
def test_both_sides_have_one_checksum(content: bytes, times: int) -> None:
    content *= times
    assert crc32c(content) == records.crc32c(content)
    framed = record(content)
    length, checksum = struct.unpack("<QI", framed[:12])
    assert (length, framed[12:-4]) == (len(content), content)
    assert checksum == records.masked(records.crc32c(framed[:8]))
    assert framed[-4:] == struct.pack("<I", records.masked(records.crc32c(content)))


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Protobuf's wire format, read as its documentation says: number of a field, and its bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        assert tag & 7 == 2
        size = varint()
        yield tag >> 3, message[at : at + size]
        at += size


def only(message: bytes, number: int) -> bytes:
    ((key, content),) = fields(message)
    assert key == number
    return content


@given(st.binary(max_size=400), st.integers(0, 2**31))
def test_an_example_reads_back(content: bytes, label: int) -> None:
    entries = {}
    for number, entry in fields(only(example(content, label), 1)):
        assert number == 1
        (_, name), (_, feature) = fields(entry)
        entries[name] = feature
    assert only(only(entries[b"image/encoded"], 1), 1) == content
    packed = only(only(entries[b"image/class/label"], 3), 1)
    assert sum((byte & 0x7F) << 7 * at for at, byte in enumerate(packed)) == label
    assert all(byte & 0x80 for byte in packed[:-1]) and not packed[-1] & 0x80
