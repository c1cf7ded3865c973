"""idx files without decoding."""

from __future__ import annotations

import gzip
import random
import struct
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import packed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract import cards
from entrypoints.contract.group import ALONE
from entrypoints.contract.statuses import UsageError
from entrypoints.data.formats import open_source
from entrypoints.data.images import idx
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.worker import child

IMAGES = [[[10 * at + row, 10 * at + row + 5, 255] for row in range(2)] for at in range(6)]
LABELS = [0, 1, 2, 0, 1, 2]


def opened(path, task="training"):
    name, source = open_source(path, task, "pytorch")
    assert name == "idx"
    source.share()
    return source


@pytest.mark.parametrize("zipped", [False, True])
def test_images_are_given_as_portable_grey_maps(tmp_path, zipped):
    source = opened(packed.idx(tmp_path, IMAGES, LABELS, packed=zipped))
    assert (source.samples, source.classes, source.lost) == (6, 3, ())
    entries = list(source.entries([5, 0, 1, 2, 3, 4], 1))
    assert [(entry.number, entry.label) for entry in entries] == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2)]
    assert entries[1].read() == b"P5 3 2 255\n" + bytes([10, 15, 255, 11, 16, 255])
    assert entries[1].name == f"train-images-idx3-ubyte{'.gz' if zipped else ''}/1"


def test_a_task_takes_its_own_set(tmp_path):
    packed.idx(tmp_path, IMAGES, LABELS)
    assert opened(tmp_path, "inference").part == "train-images-idx3-ubyte", "there is no other"
    packed.idx(tmp_path, IMAGES[:2], LABELS[:2], prefix="t10k-", packed=True)
    assert (opened(tmp_path).part, opened(tmp_path).samples) == ("train-images-idx3-ubyte", 6)
    assert opened(tmp_path, "inference").part == "t10k-images-idx3-ubyte.gz"
    assert opened(tmp_path / "t10k-images-idx3-ubyte.gz").samples == 2
    packed.idx(tmp_path, IMAGES[:1], LABELS[:1], packed=True)
    assert opened(tmp_path).part == "train-images-idx3-ubyte", "the plain one, of two alike"


def test_of_several_sets_one_must_be_named(tmp_path):
    packed.idx(tmp_path, IMAGES, LABELS, prefix="letters-train-")
    packed.idx(tmp_path, IMAGES, LABELS, prefix="digits-train-")
    with pytest.raises(UsageError, match="Name one of the files: digits-train-images-idx3-ubyte, letters"):
        opened(tmp_path)
    assert opened(tmp_path / "letters-train-images-idx3-ubyte").samples == 6


def test_labels_must_be_there(tmp_path):
    packed.idx(tmp_path, IMAGES, LABELS)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(UsageError, match="Put train-labels-idx1-ubyte beside it"):
        opened(tmp_path)


@pytest.mark.parametrize(("kind", "right"), [("images-idx3", 2051), ("labels-idx1", 2049)])
def test_a_wrong_magic_number_is_named_with_its_file(tmp_path, kind, right):
    file = packed.idx(tmp_path, IMAGES, LABELS) / f"train-{kind}-ubyte"
    file.write_bytes(struct.pack(">I", 2052) + file.read_bytes()[4:])
    with pytest.raises(UsageError, match=rf"train-{kind}-ubyte: its magic number is 2052, .* is {right}"):
        opened(tmp_path)


def test_images_and_labels_that_do_not_belong_together(tmp_path):
    packed.idx(tmp_path, IMAGES[:4], LABELS[:4])
    images = (tmp_path / "train-images-idx3-ubyte").read_bytes()
    packed.idx(tmp_path, IMAGES, LABELS)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(images)
    with pytest.raises(UsageError, match="says that it has 4 images, and train-labels-idx1-ubyte 6 labels"):
        opened(tmp_path)


@given(st.sampled_from(["images-idx3", "labels-idx1"]), st.booleans(), st.integers(0, 10**4))
def test_a_file_cut_anywhere_keeps_its_whole_samples(kind, zipped, cut):
    noise = random.Random(1)
    images = [[[noise.randrange(256) for _ in range(4)] for _ in range(4)] for _ in range(40)]
    labels = [noise.randrange(9) for _ in images]
    with tempfile.TemporaryDirectory() as name:
        folder = packed.idx(Path(name), images, labels, packed=zipped)
        file = folder / f"train-{kind}-ubyte{'.gz' if zipped else ''}"
        whole = opened(folder)
        expected = [(entry.read(), entry.label) for entry in whole.entries(range(40), 0)]
        content = file.read_bytes()
        file.write_bytes(content[: cut % len(content)])
        try:
            source = opened(folder)
        except UsageError as error:
            assert str(file) in str(error) or "no complete sample" in str(error)
            return
        samples = [(entry.read(), entry.label) for entry in source.entries(range(source.samples), 0)]
        assert samples == expected[: len(samples)]
        # A compressed file may lose no more than its own checksum.
        assert len(samples) == 40 or source.lost == (f"{file.name} (cut short: {len(samples)} of 40 are there)",)


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\x1f\x8bno gzip", gzip.compress(b"short", mtime=0)])
def test_what_has_not_even_a_header(tmp_path, content):
    packed.idx(tmp_path, IMAGES, LABELS, packed=True)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(UsageError, match="it ends within its header"):
        opened(tmp_path)


def test_a_header_of_nothing(tmp_path):
    packed.idx(tmp_path, IMAGES, LABELS, count=0)
    with pytest.raises(UsageError, match="0 x 2 x 3"):
        opened(tmp_path)


def test_what_was_trained_on_is_evaluated_where_nothing_else_is_named(tmp_path):
    packed.idx(tmp_path, IMAGES, LABELS)
    packed.idx(tmp_path, IMAGES[:2], LABELS[:2], prefix="t10k-")
    card = cards.load()["image_compression"]
    words = ["--data", str(tmp_path), "--target-loss", "1", "--steps", "9", "--batch-size", "2", "--warmup-steps", "1"]
    for more, part in (
        ([], "train-images-idx3-ubyte"),
        (["--evaluation-data", str(tmp_path)], "t10k-images-idx3-ubyte"),
    ):
        configuration = resolve(parse(["image_compression", *words, *more]), card, None)
        loader: Any = SimpleNamespace(evaluation_batches=lambda _, source, *__: [source.part])
        send: Any = print
        judging = child.open_evaluation(loader, card, configuration, ALONE, send)
        assert judging and judging.batches() == [part]


def test_no_more_is_unpacked_than_the_header_says(tmp_path):
    """A few kilobytes would become gigabytes."""
    packed.idx(tmp_path, IMAGES, LABELS, packed=True)
    for file in tmp_path.iterdir():
        with gzip.open(str(file), "ab") as stream:
            for _ in range(100):
                stream.write(bytes(1 << 20))
    source = opened(tmp_path)
    source.share()
    assert (source.samples, len(source.content), len(source.labels)) == (len(IMAGES), source.end, len(IMAGES))


def test_images_larger_than_memory_has_to_be(tmp_path, monkeypatch):
    packed.idx(tmp_path, IMAGES, LABELS)
    monkeypatch.setattr(idx, "LARGEST", 1)
    with pytest.raises(UsageError, match="at most 1 are read. Give the images as files"):
        opened(tmp_path)
