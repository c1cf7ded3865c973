"""What lies at a path, and what a manifest says of it."""

from __future__ import annotations

import json
import os
import sys

import packed
import pytest

from entrypoints.contract import cards
from entrypoints.contract.statuses import UsageError
from entrypoints.data import manifest
from entrypoints.data.formats import open_source
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve

IMAGES, LABELS = [[[0, 1], [2, 3]]] * 3, [0, 1, 1]


def described(folder, samples=3, **changes):
    """The folder's shards with a manifest of them."""
    files = [
        {"name": file.name, "samples": samples, "bytes": file.stat().st_size, "sha256": "sha256:" + "0" * 64}
        for file in sorted(folder.glob("*.tar"))
    ]
    document = {
        "schema_version": "1.0",
        "plan": "sha256:" + "0" * 64,
        "format": "shards",
        "seed": 0,
        "samples_per_file": 3,
        "samples": 6,
        "bytes": sum(file["bytes"] for file in files),
        "classes": ["a", "b", "c"],
        "files": files,
        "skipped": [],
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps(document))
    return folder


def opened(path, task="training", framework="pytorch"):
    return open_source(path, task, framework)


def test_a_manifest_spares_the_counting(tmp_path):
    packed.shards(tmp_path, [3, 3])
    name, source = opened(described(tmp_path))
    assert (name, source.samples, source.classes) == ("shards", 6, 3)
    size = (tmp_path / "train-000000.tar").stat().st_size
    (tmp_path / "train-000000.tar").write_bytes(b"\0" * size)  # nobody looks
    assert opened(tmp_path)[1].samples == 6


def test_a_worker_reads_a_manifest_that_was_checked_without_jsonschema(tmp_path, monkeypatch):
    packed.shards(tmp_path, [3, 3])
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert open_source(described(tmp_path), "training", "pytorch", checked=True)[1].samples == 6
    with pytest.raises(ImportError):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "train-000001.tar").unlink(), r"train-000001.tar: No such file.*Prepare the data"),
        (lambda folder: (folder / "train-000001.tar").write_bytes(b"x"), "1 bytes, and manifest.json says 10240"),
        (lambda folder: described(folder, schema_version="1.1"), "'1.1', this image reads 1.0. Take a newer image"),
        (lambda folder: described(folder, schema_version="2.0"), "'2.0', this image reads 1.0"),
        (lambda folder: described(folder, classes=[]), r"\$.classes"),
        (lambda folder: described(folder, extra=1), "extra"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "it is no JSON"),
        (lambda folder: (folder / "manifest.json").write_bytes(b"\xff"), "it is no JSON"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 100000), "it is no JSON"),
        (lambda folder: os.truncate(str(folder / "manifest.json"), 1 << 36), "it is no JSON: it has 68719476736 bytes"),
        (lambda folder: described(folder, samples=11), "says 11 samples in 10240 bytes"),
        (lambda folder: described(folder, samples=10**30), "samples in 10240 bytes"),
    ],
)
def test_a_manifest_that_cannot_be_kept_to(tmp_path, change, said):
    packed.shards(tmp_path, [3, 3])
    change(described(tmp_path))
    with pytest.raises(UsageError, match=said):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"name": "an application"}'])
def test_a_manifest_of_something_else_is_passed_over(tmp_path, text):
    packed.shards(tmp_path, [3, 3])
    (tmp_path / "manifest.json").write_text(text)
    assert opened(tmp_path)[1].samples == 6


def test_a_manifest_names_nothing_outside_of_its_folder(tmp_path):
    packed.shards(tmp_path, [3])
    file = {"name": "../x.tar", "samples": 3, "bytes": 10240, "sha256": "sha256:" + "0" * 64}
    with pytest.raises(UsageError, match="files"):
        opened(described(tmp_path, files=[file]))


def test_a_folder_with_several_formats_is_refused(tmp_path):
    packed.shards(tmp_path, [3])
    packed.idx(tmp_path, IMAGES, LABELS)
    with pytest.raises(UsageError, match="it holds shards and idx. Give a folder with one of them"):
        opened(tmp_path)


def test_each_framework_reads_its_own(tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "records").mkdir()
    packed.shards(tmp_path / "shards", [3])
    (tmp_path / "records" / "a.tfrecord").write_bytes(b"")
    with pytest.raises(UsageError, match=r"shards, which pytorch reads and tensorflow does not.* folder, records, idx"):
        opened(tmp_path / "shards", framework="tensorflow")
    with pytest.raises(UsageError, match=r"records, which tensorflow reads and pytorch does not.* folder, shards, idx"):
        opened(tmp_path / "records")


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UsageError, match="of no known format"):
        opened(tmp_path / "notes.txt")


def configured(*words, card="image_compression"):
    return resolve(parse(list(map(str, words))), cards.load()[card], None)


def test_the_configuration_names_format_and_path(tmp_path):
    packed.idx(tmp_path, IMAGES, LABELS)
    resolved = configured("--data", tmp_path, "--batch-size", 2, "--epochs", 2)
    assert (resolved.data, resolved.data_path) == ("idx", str(tmp_path))
    assert (resolved.samples_per_epoch, resolved.steps_per_epoch, resolved.steps) == (3, 1, 2)
    with pytest.raises(UsageError, match="3 samples do not fill one step"):
        configured("--data", tmp_path, "--batch-size", 4)


def test_requests_need_single_samples(tmp_path):
    words = ("--task", "inference", "--concurrency", 2, "--data", tmp_path)
    packed.shards(tmp_path, [3])
    with pytest.raises(UsageError, match="shards are read from the front.* Give class folders or idx files"):
        configured(*words)
    (tmp_path / "train-000000.tar").unlink()
    packed.idx(tmp_path, IMAGES, LABELS)
    assert configured(*words).data == "idx"


def test_more_classes_than_the_workload_has(tmp_path):
    packed.shards(tmp_path, [3])
    card = cards.load()["resnet50"]
    few = card._replace(problem={**card.problem, "model": {"classes": 2}})
    with pytest.raises(UsageError, match="3 classes, resnet50 knows 2"):
        resolve(parse(["--data", str(tmp_path), "--batch-size", "2"]), few, None)


def test_a_whole_number_may_be_written_with_a_point(tmp_path):
    packed.shards(tmp_path, [3, 3])
    source = opened(described(tmp_path, samples=3.0))[1]
    assert [entry.number for entry in source.entries([0, 1], 0)] == list(range(6))


def test_of_a_manifest_with_a_million_errors_one_is_told_after_a_few(tmp_path, monkeypatch):
    packed.shards(tmp_path, [3, 3])
    described(tmp_path, skipped=[1] * 1000)
    monkeypatch.setattr(manifest, "MOST_ERRORS", 5)
    with pytest.raises(UsageError, match=r"skipped\[4\]"):  # the last of those that are looked at
        opened(tmp_path)


def test_what_is_no_ordinary_file_is_not_read(tmp_path):
    (tmp_path / "train.tar").symlink_to("/dev/null")
    with pytest.raises(UsageError, match="no such file or folder"):
        opened(tmp_path / "train.tar")
    packed.shards(tmp_path, [3])
    file = {"name": "train.tar", "samples": 1, "bytes": 1, "sha256": "sha256:" + "0" * 64}
    with pytest.raises(UsageError, match="train.tar: 0 bytes, and manifest.json says 1"):
        opened(described(tmp_path, files=[file]))
