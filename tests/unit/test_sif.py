"""The SIF reader, on files made to its layout and on damaged ones."""

import json
import struct
from pathlib import Path

import pytest

from sifmark.sif import METADATA, PARTITION, SifError, read_sif

DATA_START = 128 + 2 * 585


def sif_bytes(attributes: dict, root: bytes = b"squashfs bytes", signature: bytes = b"") -> bytes:
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


def test_identity_ignores_what_is_added_behind(image: Path) -> None:
    before = read_sif(image).identity()
    image.write_bytes(image.read_bytes() + b"a signature")
    assert read_sif(image).identity() == before


@pytest.mark.parametrize("changed", [{"root": b"other bytes!!!"}, {"attributes": {"labels": {"a": "c"}}}])
def test_identity_follows_contents(image: Path, changed: dict) -> None:
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
    with pytest.raises(SifError, match="No such file") as caught:
        read_sif(tmp_path / "none.sif")
    assert caught.value.remedy
