"""Sources that are made to exhaust memory or to hang: pipes, devices, files without end, numbers that lie."""

import gzip
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.preparing import prepare, text_file
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.datasets import image_files, source, speech
from sifmark.datasets import text as text_source
from sifmark.datasets.image_files import SourceImage, grey_png
from sifmark.datasets.images import sample_keys

BERT = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nyes\n"
DEEP = "[" * 100_000


def device(path: Path) -> Path:
    """What is no ordinary file. This one has an end, so that a test that finds it read fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/null")
    return path


def questions(**answer: Any) -> str:
    asked = {"id": "1", "question": "yes?", "answers": [{"text": "yes", "answer_start": 0, **answer}]}
    return json.dumps({"data": [{"paragraphs": [{"context": "yes", "qas": [asked]}]}]})


def word_level(folder: Path, vocabulary: dict[str, int], **fields: Any) -> Path:
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    return text_file(folder, json.dumps({"version": "1.0", "model": model, **fields}), "tokenizer.json")


def recording(samples: int, announced: int | None = None) -> bytes:
    data = bytes(2 * samples)
    form = struct.pack("<IHHIIHH", 16, 1, 1, 22050, 44100, 2, 16)
    size = struct.pack("<I", len(data) if announced is None else 2 * announced)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + form + b"data" + size + data


# What has no end


def test_what_is_no_ordinary_file_is_no_text(tmp_path: Path) -> None:
    text_file(tmp_path / "s", "ab\n")
    os.mkfifo(tmp_path / "s" / "pipe.txt")
    device(tmp_path / "s" / "device.txt")
    (tmp_path / "s" / "folder.txt").mkdir()
    assert [path.name for path in text_source.find_texts(tmp_path / "s")] == ["text.txt"]
    with refused(SifmarkError, "data-missing"):
        prepare(device(tmp_path / "alone.txt"), tmp_path / "t")


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "characters.json"])
def test_what_is_no_ordinary_file_is_no_tokenizer(tmp_path: Path, name: str) -> None:
    with refused(SifmarkError, "tokenizer-unusable", "not an ordinary file"):
        prepare(text_file(tmp_path), tmp_path / "t", tokenizer=device(tmp_path / name))


def test_labels_that_are_no_ordinary_file_are_missing(tmp_path: Path) -> None:
    (tmp_path / "x-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 1, 2, 2) + bytes(4))
    device(tmp_path / "x-labels-idx1-ubyte")
    with refused(SifmarkError, "file-missing", "x-labels-idx1-ubyte"):
        image_files.find_images(tmp_path)


# What is too large


def of_image(folder: Path) -> tuple[Path, str]:
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "large.png").write_bytes(grey_png(30, 30, bytes(900)))
    (folder / "a" / "small.png").write_bytes(grey_png(2, 2, bytes(4)))
    return folder, "shards"


def of_recording(folder: Path) -> tuple[Path, str]:
    (folder / "wavs").mkdir(parents=True)
    (folder / "metadata.csv").write_text("large|yes\nsmall|yes\n")
    (folder / "wavs" / "large.wav").write_bytes(recording(500))
    (folder / "wavs" / "small.wav").write_bytes(recording(100))
    return folder, "speech"


@pytest.mark.parametrize("make", [of_image, of_recording])
def test_an_item_larger_than_any_is_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], tuple[Path, str]]
) -> None:
    monkeypatch.setattr(source, "LARGEST", 800)
    folder, kind = make(tmp_path / "s")
    manifest = prepare(folder, tmp_path / "t", kind)
    assert manifest["samples"] == 1 and [Path(name).stem for name in manifest["skipped"]] == ["large"]


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "characters.json", "both/vocab.json"])
def test_a_tokenizer_larger_than_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(source, "LARGEST", 100)
    tokenizer = text_file((tmp_path / name).parent, " " * 101, Path(name).name)
    with refused(SifmarkError, "file-unreadable", "100 B"):
        prepare(text_file(tmp_path), tmp_path / "t", tokenizer=tokenizer.parent if "/" in name else tokenizer)


def test_questions_larger_than_any_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, words = text_file(tmp_path, questions(), "q.json"), text_file(tmp_path, BERT, "vocab.txt")
    monkeypatch.setattr(source, "LARGEST", len(questions()) - 1)
    with refused(SifmarkError, "file-unreadable", asked):
        prepare(asked, tmp_path / "t", "passages", tokenizer=words)


def test_a_line_longer_than_any_is_skipped_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_source, "LONGEST_LINES", {".txt": 4, ".jsonl": 14})
    manifest = prepare(text_file(tmp_path, "abc\nabcde\n" + "x" * 13 + "\nb\nzzzzz"), tmp_path / "t")
    assert manifest["skipped"] == ["text.txt:2", "text.txt:3", "text.txt:5"]
    assert (manifest["samples"], manifest["text"]["vocabulary"]) == (len("abc\nb\n"), len("abc\n"))
    rows = '{"text": "a"}\n{"text": "abc"}\n{"text": "b"}'
    manifest = prepare(text_file(tmp_path, rows, "text.jsonl"), tmp_path / "j", samples_per_file=1)
    assert (manifest["samples"], manifest["skipped"]) == (2, ["text.jsonl:2"])


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("extents", "content", "said"),
    [
        ((2, 2, 2), 9, "8 bytes by its header, and more are there"),
        ((2, 2, 2), 7, "8 bytes by its header, and 7 are there"),
        ((2, 30000, 30000), 8, "1.7 GiB by its header, and at most 1.0 GiB are read"),
    ],
)
def test_idx_files_have_what_their_headers_say(
    tmp_path: Path, suffix: str, extents: tuple[int, ...], content: int, said: str
) -> None:
    pack = gzip.compress if suffix else bytes
    for name, parts in (("images-idx3", (0x803, *extents)), ("labels-idx1", (0x801, 2))):
        rest = bytes(content if name.startswith("images") else 2)
        (tmp_path / f"{name}-ubyte{suffix}").write_bytes(pack(struct.pack(f">{len(parts)}I", *parts) + rest))
    with refused(SifmarkError, "file-damaged", said):
        image_files.find_images(tmp_path)


# What lies


@pytest.mark.parametrize("name", ["manifest.json", ".manifest.json"])
def test_a_manifest_in_the_target_that_is_nested_too_deeply(tmp_path: Path, name: str) -> None:
    text_file(tmp_path / "t", DEEP, name)
    with refused(SifmarkError, "document-invalid", name):
        prepare(text_file(tmp_path), tmp_path / "t")


@pytest.mark.parametrize("characters", ['["a", "\\ud800"]', DEEP, '{"a": 1}', '["ab"]', "[]"], ids=range(5))
def test_characters_that_are_none(tmp_path: Path, characters: str) -> None:
    with refused(SifmarkError, "tokenizer-unusable", "characters.json"):
        prepare(text_file(tmp_path), tmp_path / "t", tokenizer=text_file(tmp_path, characters, "characters.json"))


def test_a_token_beyond_what_a_file_can_tell(tmp_path: Path) -> None:
    with refused(SifmarkError, "tokenizer-unusable", "4294967295"):
        prepare(text_file(tmp_path), tmp_path / "t", tokenizer=word_level(tmp_path, {"[UNK]": 0, "a": (1 << 32) - 1}))


def test_a_panic_of_the_library_is_told_as_its_errors_are(tmp_path: Path) -> None:
    searching = {"Regex": "(a*)*b|(a|a)*$"}  # gives up, and the library panics
    split = {"type": "Split", "pattern": searching, "behavior": "Isolated", "invert": False}
    tokenizer = word_level(tmp_path, {"[UNK]": 0}, pre_tokenizer=split)
    with refused(SifmarkError, "tokenizer-unusable"):
        prepare(text_file(tmp_path, "a" * 5000 + "!"), tmp_path / "t", tokenizer=tokenizer)


@pytest.mark.parametrize("start", [1e308, 10**4000, 3])
def test_answers_anywhere_are_none(tmp_path: Path, start: float) -> None:
    asked = text_file(tmp_path, questions(answer_start=start), "q.json")
    with refused(SifmarkError, "data-damaged"):
        prepare(asked, tmp_path / "t", "passages", tokenizer=text_file(tmp_path, BERT, "vocab.txt"))


def test_a_recording_that_announces_more_than_it_has(tmp_path: Path) -> None:
    folder, kind = of_recording(tmp_path / "s")
    (folder / "wavs" / "large.wav").write_bytes(recording(5, announced=(1 << 31) - 1))
    assert prepare(folder, tmp_path / "t", kind)["skipped"] == ["s/large.wav"]


def test_more_speakers_than_a_file_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "MOST_SPEAKERS", 1)
    for name in ("a", "b"):
        of_recording(tmp_path / "s" / name)
    with refused(SifmarkError, "data-missing", "2 speakers"):
        prepare(tmp_path / "s", tmp_path / "t", "speech")


def test_keys_of_one_stem_are_numbered_without_trying_all_again() -> None:
    """A set of so many names takes hours if each is compared with all numbers before it."""
    names = [f"c/{'a.' * 20}{number:017b}.png".replace("0", ".").replace("1", "_") for number in range(1 << 17)]
    keys = list(sample_keys([SourceImage(name, 0, 0, bytes) for name in names]))
    assert len(set(keys)) == len(keys) and keys[-1].endswith(f"_{1 << 17}")
