"""TFRecord files, counted by their lengths."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract.statuses import UsageError
from entrypoints.data.formats import open_source
from entrypoints.data.images import records

# RFC 3720, appendix B.4, and the check value of the CRC catalogue.
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]
CONTENTS = [b"first", b"", b"the third" * 40]


def record(content):
    length = struct.pack("<Q", len(content))
    checks = [struct.pack("<I", records.masked(records.crc32c(part))) for part in (length, content)]
    return length + checks[0] + content + checks[1]


def opened(path):
    return open_source(path, "training", "tensorflow")[1]


@pytest.mark.parametrize(("content", "checksum"), VECTORS)
def test_known_checksums(content, checksum):
    assert records.crc32c(content) == checksum


def test_a_masked_checksum():
    """The definition: rotated right by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h)."""
    assert records.masked(0) == 0xA282EAD8
    assert records.masked(0x8000) == 0xA282EAD9
    assert records.masked(1) == 0xA284EAD8


def test_records_are_counted_by_file(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(record, CONTENTS)))
    (tmp_path / "b.tfrecord").write_bytes(record(b"x"))
    (tmp_path / "c.tfrecord").write_bytes(b"")
    source = opened(tmp_path)
    assert (source.samples, source.classes, source.lost) == (4, None, ())
    assert [tuple(file) for file in source.files] == [("a.tfrecord", 3), ("b.tfrecord", 1)]
    assert opened(tmp_path / "b.tfrecord").samples == 1


@given(st.integers(0, 500))
def test_a_file_cut_anywhere_loses_its_rest(cut):
    content = b"".join(map(record, CONTENTS))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.tfrecord").write_bytes(record(b"whole") + content[: cut % len(content)])
        source = opened(Path(folder))
    ends = [len(b"".join(map(record, CONTENTS[:count]))) for count in range(4)]
    assert source.samples == 1 + sum(end <= cut % len(content) for end in ends[1:])
    assert bool(source.lost) == (cut % len(content) not in ends)


@pytest.mark.parametrize("place", [0, 7, 8, 11])
def test_a_wrong_length_or_its_wrong_checksum(tmp_path, place):
    content = bytearray(b"".join(map(record, CONTENTS)))
    second = len(record(CONTENTS[0]))
    content[second + place] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(content)
    source = opened(tmp_path)
    assert source.samples == 1
    assert source.lost == (f"a.tfrecord (a wrong length at byte {second}: the rest is lost)",)


def test_wrong_contents_are_for_the_framework_to_find(tmp_path):
    """Counting reads no contents: TensorFlow holds each against its checksum when it is read."""
    content = bytearray(record(b"content") + record(b"x"))
    content[14] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(content)
    assert (opened(tmp_path).samples, opened(tmp_path).lost) == (2, ())


def test_files_without_records(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"no record at all")
    with pytest.raises(UsageError, match=r"contain no record \(a.tfrecord \(a wrong length at byte 0"):
        opened(tmp_path)
