"""Reading SIF files, of other makers and damaged ones, writing them, and where two differ."""

import json
import os
import shutil
import struct
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused

from sifmark.core.files import sha256_file
from sifmark.engines.apptainer.diff import difference
from sifmark.engines.apptainer.sif import (
    DEFINITION,
    INSPECT_NAME,
    METADATA,
    PARTITION,
    Extent,
    SifError,
    SifObject,
    fingerprints,
    read_sif,
    write_sif,
)

DATA_START = 128 + 2 * 585
TIME_LIMIT = 60.0  # seconds


def sif_bytes(attributes: dict[str, Any], root: bytes = b"squashfs bytes", signature: bytes = b"") -> bytes:
    """A SIF with metadata and a system partition, as `apptainer sif new` and `add` lay it out."""
    metadata = json.dumps({"data": {"attributes": attributes}, "type": "container"}).encode()
    header = struct.pack("<32s10s3s3s16s8q", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", b"02\0",
                         bytes(16), 0, 0, 0, 2, 128, 2 * 585, DATA_START, 0)  # fmt: skip
    partition = struct.pack("<ii3s", 1, 2, b"02\0")
    return b"".join(
        [
            header,
            descriptor(METADATA, 1, DATA_START, len(metadata), b"inspect-metadata.json"),
            descriptor(PARTITION, 2, DATA_START + len(metadata), len(root), extra=partition),
            metadata,
            root,
            signature,
        ]
    )


def descriptor(kind: int, number: int, offset: int, size: int, name: bytes = b"", extra: bytes = b"") -> bytes:
    return struct.pack("<i?III7q128s384s", kind, True, number, 1, 0, offset, size, size, 0, 0, 0, 0, name, extra)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.sif"
    path.write_bytes(sif_bytes({"labels": {"a": "b"}}))
    return path


def test_labels_and_partition(image: Path, tmp_path: Path) -> None:
    sif = read_sif(image)
    assert sif.labels() == {"a": "b"}
    sif.copy(sif.system, tmp_path / "root")
    assert (tmp_path / "root").read_bytes() == b"squashfs bytes"


def test_metadata_that_apptainer_does_not_find_are_none(image: Path) -> None:
    """It would start the image to ask it for its labels."""
    image.write_bytes(image.read_bytes().replace(b"inspect-metadata.json\0\0", b"inspect-metadata.json\0x", 1))
    with refused(SifError, "file-damaged", "0 objects"):
        read_sif(image).labels()


def test_identity_ignores_what_is_added_behind(image: Path) -> None:
    before = read_sif(image).identity()
    image.write_bytes(image.read_bytes() + b"a signature")
    assert read_sif(image).identity() == before


@pytest.mark.parametrize("changed", [{"root": b"other bytes!!!"}, {"attributes": {"labels": {"a": "c"}}}])
def test_identity_follows_contents(image: Path, changed: dict[str, Any]) -> None:
    before = read_sif(image).identity()
    image.write_bytes(sif_bytes(**{"attributes": {"labels": {"a": "b"}}, **changed}))
    assert read_sif(image).identity() != before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: b"", "not a SIF"),
        (lambda whole: b"#!/bin/sh\necho no\n" * 20, "not a SIF"),
        (lambda whole: whole[:500], "table of contents"),
        (lambda whole: whole[:-4], "beyond the file's end"),
        (lambda whole: whole[:88] + struct.pack("<q", 10**12) + whole[96:], "counts"),
        (lambda whole: whole.replace(b'"data"', b'"dada"'), "does not read"),
    ],
)
def test_damage_is_named(image: Path, damage, said: str) -> None:
    image.write_bytes(damage(image.read_bytes()))
    with pytest.raises(SifError, match=said):
        read_sif(image).labels()


def test_missing_file_is_an_error_with_remedy(tmp_path: Path) -> None:
    with refused(SifError, "file-unreadable", "none.sif") as caught:
        read_sif(tmp_path / "none.sif")
    assert caught.value.remedy


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sif")
    with refused(SifError, "not-a-sif"):
        read_sif(tmp_path / "pipe.sif")


def stored(path: Path, content: bytes) -> Extent:
    """Store a file system beside an image, not at the start of its file."""
    beside = path.with_suffix(".stored")
    beside.write_bytes(b"before" + content)
    return Extent(beside, len(b"before"), len(content))


def written(path: Path, **changed) -> Path:
    attributes = {"labels": {"a": "b"}, **changed.pop("attributes", {})}
    metadata = json.dumps({"data": {"attributes": attributes}, "type": "container"}).encode()
    parts = [SifObject(DEFINITION, b"Bootstrap: docker\nFrom: x\n"), SifObject(METADATA, metadata, INSPECT_NAME)]
    write_sif(
        path,
        stored(path, b"squashfs bytes"),
        "x86_64",
        lambda _: parts,
        **{"seconds": 86400, "unique": bytes(16), **changed},
    )
    return path


def _only(part: SifObject, _system: str) -> list[SifObject]:
    return [part]


def test_the_hashes_of_what_is_written_are_those_of_the_file(tmp_path: Path) -> None:
    """More than one block, and an object that holds the hash of the file system."""
    path = tmp_path / "large.sif"
    system = stored(path, os.urandom(9 * 2**20 + 7))
    metadata = SifObject(METADATA, b'{"data": {"attributes": {"labels": {}}}}', INSPECT_NAME)
    hashes = write_sif(
        path, system, "x86_64", lambda digest: [metadata, SifObject(METADATA, digest.encode(), "x")], 0, bytes(16)
    )
    sif = read_sif(path)
    entry = sif.named("x")
    assert hashes == fingerprints(path) and entry is not None and sif.read(entry).decode() == hashes.system


def test_an_object_whose_size_depends_on_the_hash_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    system = stored(path, b"squashfs bytes")
    with pytest.raises(ValueError, match="sizes of a SIF's objects"):
        write_sif(
            path, system, "x86_64", lambda digest: [SifObject(METADATA, digest.strip("0").encode())], 0, bytes(16)
        )


def test_a_file_system_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    with refused(SifError, "file-damaged"):
        write_sif(path, replace(stored(path, b"squashfs"), size=9), "x86_64", lambda _: [], 0, bytes(16))


def test_what_is_written_reads_back_and_is_the_same_each_time(tmp_path: Path) -> None:
    sif = read_sif(written(tmp_path / "one.sif"))
    assert sif.labels() == {"a": "b"} and sif.path.read_bytes() == written(tmp_path / "two.sif").read_bytes()
    assert [sif.read(entry) for entry in sif.descriptors][:2] == [b"squashfs bytes", b"Bootstrap: docker\nFrom: x\n"]
    assert sif.system.offset % 4096 == 0
    prints = fingerprints(sif.path)
    assert (prints.identity, prints.digest) == (sif.identity(), sha256_file(sif.path))
    assert (prints.system, prints.metadata) == (sif.digest(sif.system).hex(), sif.digest(sif.metadata).hex())
    later = read_sif(written(tmp_path / "later.sif", seconds=2 * 86400, unique=bytes(range(16))))
    assert later.identity() == sif.identity() and later.path.read_bytes() != sif.path.read_bytes()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"seconds": 1}, "the header or the table before them is not"),
        ({"attributes": {"labels": {"a": "c"}}}, 'inspect-metadata.json: data: attributes: labels: a: "b" and "c"'),
        ({"attributes": {"more": 1}}, "inspect-metadata.json: data: attributes: more: null and 1"),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, changed: dict[str, Any], expected: str | None) -> None:
    actual = difference(written(tmp_path / "one.sif"), written(tmp_path / "two.sif", **changed), TIME_LIMIT)
    assert actual == expected or (expected and actual and expected in actual)


def test_an_object_of_one_image_alone_is_a_difference(tmp_path: Path, image: Path) -> None:
    ours = written(tmp_path / "one.sif")
    assert "has an object of type 0x4004 '' where the other has an object of type 0x4006" in str(
        difference(ours, image, TIME_LIMIT)
    )


@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools are not installed")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tree: (tree / "a").write_text("other"), "/a: its size is "),
        (lambda tree: (tree / "a").write_text("onf"), "/a: its content differs, byte 2 first"),
        (lambda tree: (tree / "b").write_text("new"), "/b is in one image only"),
        (lambda tree: (tree / "a").chmod(0o600), "/a: its mode is "),
        (lambda tree: os.utime(tree / "a", (0, 0)), "/a: its date is "),
    ],
)
def test_a_difference_is_followed_into_the_file_system(tmp_path: Path, change, expected: str) -> None:
    images: list[Path] = []
    for name in ("one", "two"):
        tree = tmp_path / name
        tree.mkdir()
        (tree / "a").write_text("one")
        if images:
            change(tree)
        if expected != "/a: its date is ":
            os.utime(tree / "a", (86400, 86400))
        image, squashfs = (tmp_path / f"{name}.{kind}" for kind in ("sif", "squashfs"))
        argv: list[str | Path] = ["mksquashfs", tree, squashfs, "-all-root", "-no-progress", "-noappend"]
        subprocess.run(argv, check=True, capture_output=True)
        metadata = json.dumps({"data": {"attributes": {"labels": {}}}}).encode()
        part = SifObject(METADATA, metadata, INSPECT_NAME)
        write_sif(image, Extent(squashfs, 0, squashfs.stat().st_size), "x86_64", partial(_only, part), 0, bytes(16))
        images.append(image)
    first, second = images
    assert str(difference(first, second, TIME_LIMIT)).startswith(expected)
