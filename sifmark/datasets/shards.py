"""Files of many samples: tar shards for WebDataset, and TFRecord files of tf.train.Example."""

import io
import struct
import tarfile
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple


class Sample(NamedTuple):
    """A sample of a file: its key, `jpg` or `png`, the image's bytes and the class's index."""

    key: str
    kind: str
    content: bytes
    label: int


def write_shard(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write a tar with `KEY.jpg` or `KEY.png` and `KEY.cls` per sample. Return the number of samples."""
    count = 0
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for sample in samples:
            for extension, content in ((sample.kind, sample.content), ("cls", b"%d" % sample.label)):
                member = tarfile.TarInfo(f"{sample.key}.{extension}")  # no owner, and the date 0
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            count += 1
    return count


def write_records(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write TFRecords with the features `image/encoded` and `image/class/label`. Return their number."""
    count = 0
    for sample in samples:
        stream.write(record(example(sample.content, sample.label)))
        count += 1
    return count


def example(content: bytes, label: int) -> bytes:
    """Return a serialised tf.train.Example (tensorflow/core/example/example.proto and feature.proto)."""
    encoded = _field(1, _field(1, content))  # Feature.bytes_list, its value
    labelled = _field(3, _field(1, _varint(label)))  # Feature.int64_list, its packed value
    features = {"image/class/label": labelled, "image/encoded": encoded}
    entries = [_field(1, _field(1, name.encode()) + _field(2, feature)) for name, feature in features.items()]
    return _field(1, b"".join(entries))  # Example.features


def record(content: bytes) -> bytes:
    """Return a TFRecord: length and content, each with its masked CRC-32C (tensorflow/core/lib/io/record_writer.h)."""
    length = struct.pack("<Q", len(content))
    return length + _masked_crc(length) + content + _masked_crc(content)


def _masked_crc(content: bytes) -> bytes:
    from crc32c import crc32c  # of the extra `data`, which shards do not need

    checksum = crc32c(content)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf's wire type 2: tag, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Return a number by seven bits a byte, the lowest first, with the eighth bit set if more follow."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
