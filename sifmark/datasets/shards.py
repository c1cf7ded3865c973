"""Files of many samples: tar shards as WebDataset has them, and TFRecord files of tf.train.Example."""

import functools
import io
import operator
import struct
import tarfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple


class Sample(NamedTuple):
    """A sample as it goes into a file: key, `jpg` or `png`, the image's bytes and the class's index."""

    key: str
    kind: str
    content: bytes
    label: int


def write_shard(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """A tar with `KEY.jpg` or `KEY.png` and `KEY.cls` per sample; the same samples give the same bytes."""
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
    """TFRecords with the features `image/encoded` and `image/class/label`."""
    count = 0
    for sample in samples:
        stream.write(record(example(sample.content, sample.label)))
        count += 1
    return count


def example(content: bytes, label: int) -> bytes:
    """A serialised tf.train.Example (tensorflow/core/example/example.proto and feature.proto)."""
    encoded = _field(1, _field(1, content))  # Feature.bytes_list, its value
    labelled = _field(3, _field(1, _varint(label)))  # Feature.int64_list, its packed value
    features = {"image/class/label": labelled, "image/encoded": encoded}
    entries = [_field(1, _field(1, name.encode()) + _field(2, feature)) for name, feature in features.items()]
    return _field(1, b"".join(entries))  # Example.features


def record(content: bytes) -> bytes:
    """A TFRecord: length and content, each with its masked CRC-32C (tensorflow/core/lib/io/record_writer.h)."""
    length = struct.pack("<Q", len(content))
    return length + _masked_crc(length) + content + _masked_crc(content)


def crc32c(content: bytes) -> int:
    """CRC-32C (RFC 3720, appendix B.4), of an image about five times as fast as byte by byte.

    A CRC is linear: lanes of `_LANE` bytes are done side by side from zero, then put after each other.
    """
    head = len(content) % _LANE if len(content) >= _WORTH else len(content)
    checksum = _bytewise(0xFFFFFFFF, content[:head])
    for lane in _lanes(content[head:]):
        checksum = _past_a_lane(checksum) ^ lane
    return checksum ^ 0xFFFFFFFF


def _bytewise(checksum: int, content: bytes) -> int:
    for byte in content:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum


def _lanes(content: bytes) -> Iterator[int]:
    """Checksums of whole lanes, each from zero. The first bytes of all are looked up at once, then the second ones."""
    count = len(content) // _LANE
    planes = [0, 0, 0, 0]  # the checksums' bytes from the lowest on, those of all lanes in one number
    for at in range(_LANE if count else 0):
        index = (planes[0] ^ int.from_bytes(content[at::_LANE], "little")).to_bytes(count, "little")
        found = [int.from_bytes(index.translate(table), "little") for table in _TABLE_BYTES]
        planes = [plane ^ more for plane, more in zip([*planes[1:], 0], found, strict=True)]
    columns = [plane.to_bytes(count, "little") for plane in planes]
    return (int.from_bytes(bytes(column), "little") for column in zip(*columns, strict=True))


def _past_a_lane(checksum: int) -> int:
    """What a checksum becomes where a lane of zeros follows."""
    parts = zip(_shifts(), checksum.to_bytes(4, "little"), strict=True)
    return functools.reduce(operator.xor, (shift[byte] for shift, byte in parts))


@functools.cache
def _shifts() -> list[list[int]]:
    """By the place of a byte in a checksum and its value."""
    return [[_bytewise(value << 8 * place, bytes(_LANE)) for value in range(256)] for place in range(4)]


def _masked_crc(content: bytes) -> bytes:
    checksum = crc32c(content)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf's wire type 2: tag, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first, the eighth bit where more follow."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _remainder(value: int) -> int:
    """Of a byte, by the reversed polynomial."""
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_LANE, _WORTH = 256, 8192  # bytes of a lane, and from which on there are enough of them
_TABLE = tuple(map(_remainder, range(256)))
_TABLE_BYTES = [bytes(value >> 8 * place & 0xFF for value in _TABLE) for place in range(4)]
