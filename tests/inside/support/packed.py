"""Small files of many samples, as other tools would write them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib


def tar(path, files):
    """A tar of (name, content)."""
    with tarfile.open(str(path), "w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def shard(path, samples):
    """A shard of (key, image's bytes, label)."""
    files = [pair for key, image, label in samples for pair in ((f"{key}.jpg", image), (f"{key}.cls", b"%d\n" % label))]
    return tar(path, files)


def shards(folder, counts, image=lambda number: b"image %d" % number, label=lambda number: number % 3):
    """Shards of so many samples each: all numbers from 0 on."""
    number = 0
    for index, count in enumerate(counts):
        numbers = range(number, number + count)
        shard(folder / f"train-{index:06d}.tar", [(f"n{at % 3}/{at:04d}", image(at), label(at)) for at in numbers])
        number += count
    return folder


def idx(folder, images, labels, prefix="train-", packed=False, count=None):
    """A pair of idx files: `images` as rows of rows of bytes; `count` overrules what the header says."""
    said = len(images) if count is None else count
    height, width = len(images[0]), len(images[0][0])
    pixels = b"".join(bytes(row) for image in images for row in image)
    contents = {
        "images-idx3": struct.pack(">4I", 2051, said, height, width) + pixels,
        "labels-idx1": struct.pack(">2I", 2049, said) + bytes(labels),
    }
    for name, content in contents.items():
        path = folder / f"{prefix}{name}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content)
    return folder


def grey_png(width, height, depth, level):
    """A plain grey PNG of 8 or 16 bits."""
    row = b"\0" + level.to_bytes(depth // 8, "big") * width

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def example(encoded, label):
    """A record as TensorFlow's own tools write them."""
    import tensorflow as tf  # late: the other formats do without

    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
