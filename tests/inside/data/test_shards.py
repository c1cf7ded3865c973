"""Tar shards without decoding: counted, read in turns, and what is left of damaged ones."""

from __future__ import annotations

import itertools
import tarfile
import tempfile
from pathlib import Path

import packed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract.statuses import UsageError
from entrypoints.data.formats import open_source
from entrypoints.data.images import shards
from entrypoints.data.manifest import Manifest
from entrypoints.data.source import DataFile

COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)
IMAGE = b"photograph %d, long enough to fill more than one block of a tar" * 12


def opened(path):
    return open_source(path, "training", "pytorch")[1]


def contents(source, order=None, start=0):
    return [entry.read() for entry in source.entries(order or range(source.units), start)]


def test_samples_classes_names_and_labels(tmp_path):
    source = opened(packed.shards(tmp_path, [3, 2]))
    assert (source.samples, source.classes, source.units, source.lost) == (5, 3, 2, ())
    entries = list(source.entries([0, 1], 0))
    assert [entry.name for entry in entries][::4] == ["train-000000.tar/n0/0000.jpg", "train-000001.tar/n1/0004.jpg"]
    assert [(entry.number, entry.label, entry.read()) for entry in entries] == [
        (number, number % 3, b"image %d" % number) for number in range(5)
    ]


def test_a_single_shard_is_a_source(tmp_path):
    packed.shards(tmp_path, [3, 2])
    assert contents(opened(tmp_path / "train-000001.tar")) == [b"image 3", b"image 4"]


@given(COUNTS, st.data())
def test_a_turn_begins_anywhere_and_takes_every_sample_once(counts, data):
    with tempfile.TemporaryDirectory() as folder:
        source = opened(packed.shards(Path(folder), counts))
        order = data.draw(st.permutations(range(len(counts))))
        start = data.draw(st.integers(0, sum(counts) - 1))
        numbers = [entry.number for entry in source.entries(order, start)]
    firsts = list(itertools.accumulate([0, *counts]))
    straight = [number for unit in order for number in range(firsts[unit], firsts[unit + 1])]
    assert numbers == straight[start:] + straight[:start]


@given(COUNTS, st.integers(0, 20000), st.booleans())
def test_a_shard_cut_anywhere_loses_its_rest_and_nothing_else(counts, cut, counted):
    """Also where a manifest had counted before: then the rest has entries that cannot be read."""
    with tempfile.TemporaryDirectory() as name:
        folder = packed.shards(Path(name), counts, image=lambda number: IMAGE % ((number,) * 12))
        whole = contents(opened(folder))
        last = folder / f"train-{len(counts) - 1:06d}.tar"
        content = last.read_bytes()
        last.write_bytes(content[: cut % len(content)])
        if counted:
            files = tuple(DataFile(f"train-{at:06d}.tar", count) for at, count in enumerate(counts))
            source = shards.open_source(folder, [], "training", Manifest("shards", files, ("a", "b", "c")))
            entries = list(source.entries(range(source.units), 0))
            assert len(entries) == len(whole)
            kept = [entry for entry in entries if entry.label is not None]
            assert all("lost" in entry.name or "No such" in entry.name for entry in entries[len(kept) :])
        else:
            try:
                source = opened(folder)
            except UsageError as error:
                assert len(counts) == 1 and "hold no sample" in str(error)
                return
            kept = list(source.entries(range(source.units), 0))
            assert len(kept) == source.samples
            # Without the two blocks of zeros at its end a tar is not whole, though all its samples may be.
            assert source.lost or len(content) - cut % len(content) <= 10240
            assert len(kept) == len(whole) or "the rest is lost" in source.lost[0]
        assert [entry.read() for entry in kept] == whole[: len(kept)]
        # Of 512 bytes each: a header, two blocks of such an image, a header, and a block with two bytes of a label.
        ends = [512 * (5 * number - 1) + 2 for number in range(1, counts[-1] + 1)]
        assert len(kept) == sum(counts[:-1]) + sum(end <= cut % len(content) for end in ends)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=8))
def test_damaged_bytes_never_raise_but_a_usage_error(flips):
    with tempfile.TemporaryDirectory() as name:
        folder = packed.shards(Path(name), [3])
        file = folder / "train-000000.tar"
        content = bytearray(file.read_bytes())
        for at, flip in flips:
            content[at % 4096] ^= flip
        file.write_bytes(content)
        try:
            source = opened(folder)
        except UsageError:
            return
        assert len(contents(source)) == source.samples <= 3


@pytest.mark.parametrize(
    "content", [b"", b"no tar at all", bytes(10240), b"\x1f\x8b" + bytes(600)], ids=["nothing", "text", "empty", "gzip"]
)
def test_what_is_no_shard_is_refused_where_there_is_no_other(tmp_path, content):
    (tmp_path / "train.tar").write_bytes(content)
    with pytest.raises(UsageError, match=r"its shards hold no sample.* KEY\.cls"):
        opened(tmp_path)
    packed.shard(tmp_path / "more.tar", [("a", b"image", 0)])
    assert opened(tmp_path).samples == 1
    assert bool(opened(tmp_path).lost) == (content != bytes(10240))


def test_samples_that_lack_a_part_are_named_and_other_files_passed_over(tmp_path):
    files = [("a.jpg", b"1"), ("a.cls", b"0"), ("b.jpg", b"2"), ("c.cls", b"1"), ("d.json", b"{}"), ("e/f.g.jpg", b"3")]
    packed.tar(tmp_path / "x.tar", [*files, ("h.png", b"4"), ("h.json", b"{}"), ("h.cls", b" 7\n")])
    source = opened(tmp_path)
    assert source.lost == ("x.tar/b.jpg", "x.tar/c.cls")
    assert [(entry.name, entry.label) for entry in source.entries([0], 0)] == [("x.tar/a.jpg", 0), ("x.tar/h.png", 7)]


def test_a_label_that_is_no_number_is_none_and_its_file_named(tmp_path):
    packed.tar(tmp_path / "x.tar", [("a.jpg", b"1"), ("a.cls", b"cat"), ("b.jpg", b"2"), ("b.cls", b"1")])
    source = opened(tmp_path)
    assert (source.samples, source.classes) == (2, 1)
    assert [(entry.name, entry.label) for entry in source.entries([0], 0)] == [
        ("x.tar/a.cls", None),
        ("x.tar/b.jpg", 1),
    ]


@pytest.mark.parametrize("name", ["x" * 150 + "/" + "y" * 90, "ü/" + "z" * 300])
def test_long_and_foreign_names(tmp_path, name):
    packed.shard(tmp_path / "x.tar", [(name, b"image", 0)])
    assert [entry.name for entry in opened(tmp_path).entries([0], 0)] == [f"x.tar/{name}.jpg"]


@given(st.binary(max_size=20))
def test_labels_are_digits_alone(content):
    label = shards.as_label(content)
    assert label is None or str(label) == content.strip().decode().lstrip("0") or label == 0


# Headers that ask for more than a shard can have


def sparse(path, *members):
    """A tar of members (type, name, size, beginning), whose rest is a hole."""
    with path.open("wb") as stream:
        for kind, name, size, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, size
            stream.write(member.tobuf(tarfile.GNU_FORMAT))
            end = stream.tell() + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            stream.write(content)
            stream.seek(end)
        stream.truncate(stream.tell() + 2 * tarfile.BLOCKSIZE)
    return path


HUGE = 1 << 40
FILE = tarfile.REGTYPE


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_larger_than_any_ends_a_shard(tmp_path, kind):
    whole = [(FILE, "a.jpg", 1, b"x"), (FILE, "a.cls", 1, b"1")]
    source = opened(sparse(tmp_path / "s.tar", *whole, (kind, "header", HUGE, b""), (FILE, "b.jpg", 1, b"x")))
    assert source.samples == 1 and "the rest is lost" in source.lost[0]


def test_a_number_without_end_in_a_header_ends_a_shard(tmp_path):
    """Some versions of Python search it for all parts of it."""
    number = b"1" * (1 << 20)
    whole = [(FILE, "a.jpg", 1, b"x"), (FILE, "a.cls", 1, b"1")]
    source = opened(sparse(tmp_path / "s.tar", *whole, (tarfile.XHDTYPE, "header", len(number), number)))
    assert source.samples == 1


def test_of_an_image_and_a_label_no_more_is_read_than_any_has(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "LARGEST", 3)
    members = [(FILE, "a.jpg", HUGE, b"abcdef"), (FILE, "a.cls", HUGE, b"1" * 20)]
    (entry,) = opened(sparse(tmp_path / "s.tar", *members)).entries([0], 0)
    assert entry.read() == b"abc" and entry.label is None
