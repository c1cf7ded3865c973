"""Text made into tokens and passages: what lies in the files is what was written, and what cannot be is refused."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Bytes
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.trainers import BpeTrainer
from unit.preparing import LICENCE, prepare, text_file
from unit.refusals import refused

from entrypoints.contract import cards
from entrypoints.data.formats import open_for
from entrypoints.data.sequences.prepared import HEADER
from entrypoints.data.sequences.tokens import Tokens
from sifmark.core.errors import SifmarkError
from sifmark.core.locks import file_lock
from sifmark.datasets import text as text_source
from sifmark.datasets.text import LineRange, line_ranges


def tokens(folder: Path) -> list[int]:
    """Those of all files."""
    numbers: list[int] = []
    for file in sorted(folder.glob("*.tokens")):
        content = file.read_bytes()
        _, version, width, _, places, lines, count, _ = HEADER.unpack(content[: HEADER.size])
        assert (version, places, lines) == (1, 0, 0)
        numbers += struct.unpack(f"<{count}{'H' if width == 2 else 'I'}", content[HEADER.size :])
    return numbers


# Characters


@pytest.mark.parametrize("per_file", [1_000_000, 7, 1])
def test_characters_are_numbered_by_code_point(tmp_path: Path, per_file: int) -> None:
    text = "to be,\r\nor not\n\n to bé\n…" * 3
    manifest = prepare(text_file(tmp_path, text), tmp_path / "t", samples_per_file=per_file)
    symbols = json.loads((tmp_path / "t" / "characters.json").read_text())
    assert symbols == sorted(set(text))
    assert "".join(symbols[token] for token in tokens(tmp_path / "t")) == text
    assert manifest["text"]["vocabulary"] == len(symbols) and manifest["text"]["tokenizer"] == "characters"
    assert manifest["samples"] == len(text) and manifest["classes"] is None
    assert len(manifest["files"]) == -(-len(text.split("\n")) // per_file)


def test_an_image_reads_what_was_prepared(tmp_path: Path) -> None:
    text = "".join(letter for letter in LICENCE if letter.islower() or letter.isspace())
    prepare(text_file(tmp_path, text), tmp_path / "t", samples_per_file=50)
    card = cards.load()["gpt2"]
    for _ in range(2):
        name, source = open_for(card, tmp_path / "t", "training", "pytorch")
        assert isinstance(source, Tokens)
        assert (name, source.tokens, source.samples) == ("tokens", len(text), (len(text) - 1) // 128)
        assert source.vocabulary == len(set(text))
        (tmp_path / "t" / "manifest.json").unlink(missing_ok=True)


def test_other_text_by_the_same_characters(tmp_path: Path) -> None:
    prepare(text_file(tmp_path / "a", "abc\n"), tmp_path / "t")
    same = prepare(text_file(tmp_path / "b", "cab"), tmp_path / "e", tokenizer=tmp_path / "t" / "characters.json")
    assert tokens(tmp_path / "e") == [3, 1, 2]
    assert same["text"]["sha256"] == json.loads((tmp_path / "t" / "manifest.json").read_text())["text"]["sha256"]
    with refused(SifmarkError, "tokenizer-unusable", "'d'", " 4 ") as raised:
        prepare(text_file(tmp_path / "c", "dab"), tmp_path / "f", tokenizer=tmp_path / "t" / "characters.json")
    assert raised.value.remedy and not (tmp_path / "f" / "manifest.json").exists()


@given(st.text(alphabet="ab\n", max_size=40), st.integers(1, 5))
@settings(max_examples=examples(50))
def test_stretches_hold_every_line_once(tmp_path_factory: pytest.TempPathFactory, text: str, most: int) -> None:
    folder = tmp_path_factory.mktemp("s")
    files = [text_file(folder, text, name) for name in ("a.txt", "b.txt")]
    chunks = list(line_ranges(files, most))
    content = {file: file.read_bytes() for file in files}
    held = [(count, b"".join(content[s.file][s.begin : s.end] for s in stretches)) for count, stretches in chunks]
    assert b"".join(part for _, part in held) == b"".join(content.values())
    lines = [line for file in files for line in content[file].splitlines(keepends=True)]
    assert sum(count for count, _ in held) == len(lines)
    assert all(count == most for count, _ in held[:-1])
    firsts: list[LineRange] = [stretch for _, stretches in chunks for stretch in stretches]
    assert all(content[s.file][: s.begin].count(b"\n") == s.first - 1 for s in firsts)


# Tokenizers


@pytest.fixture(scope="module")
def byte_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vocab.json and merges.txt as GPT-2 has them, and tokenizer.json, of the licence's words."""
    folder = tmp_path_factory.mktemp("bpe")
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    special = BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    trained.train_from_iterator([LICENCE, "a \n\nb" * 200], special)
    trained.model.save(str(folder))
    trained.save(str(folder / "tokenizer.json"))
    return folder


def decoded(folder: Path, numbers: list[int]) -> str:
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.decoder = Bytes()
    return library.decode(numbers, skip_special_tokens=False)


@pytest.mark.parametrize("name", ["", "tokenizer.json"])
def test_byte_pairs_give_the_text_back(tmp_path: Path, byte_pairs: Path, name: str) -> None:
    manifest = prepare(text_file(tmp_path), tmp_path / "t", tokenizer=byte_pairs / name, samples_per_file=100)
    numbers = tokens(tmp_path / "t")
    assert decoded(byte_pairs, numbers) == LICENCE and len(numbers) < len(LICENCE) / 2
    assert manifest["text"]["vocabulary"] == 500
    assert manifest["text"]["tokenizer"] == ("tokenizers" if name else "bpe")
    assert not (tmp_path / "t" / "characters.json").exists()


def test_pieces_are_cut_where_no_token_is(tmp_path: Path, byte_pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE", 1)
    text = LICENCE + "two \nblank  \n\n lines\n\n"
    prepare(text_file(tmp_path, text), tmp_path / "t", tokenizer=byte_pairs)
    whole = Tokenizer.from_file(str(byte_pairs / "tokenizer.json")).encode(text).ids
    assert tokens(tmp_path / "t") == whole
    monkeypatch.setattr(text_source, "LONGEST_PIECE", 1)
    prepare(text_file(tmp_path, text), tmp_path / "s", tokenizer=byte_pairs)
    cut = tokens(tmp_path / "s")
    assert cut != whole and decoded(byte_pairs, cut) == text


def test_json_lines_are_texts_of_their_own(
    tmp_path: Path, byte_pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["first é\nof two lines", "", "second 😀"]
    lines = [json.dumps({"id": 1, "text": text}) for text in texts]
    bad = ["{", "[1]", '{"text": 3}', '{"text": "\\ud800"}', "[" * 100_000]
    source = tmp_path / "a.jsonl"
    source.write_bytes("\n".join([lines[0], *bad, *lines[1:]]).encode() + b'\n{"text": "\xff"}\n')
    manifest = prepare(source, tmp_path / "t", tokenizer=byte_pairs)
    assert decoded(byte_pairs, tokens(tmp_path / "t")) == "".join(f"{text}<|endoftext|>" for text in texts)
    assert manifest["skipped"] == [f"a.jsonl:{number}" for number in (2, 3, 4, 5, 6, 9)]
    assert "skipped 6 damaged lines: a.jsonl:2" in capsys.readouterr().err
    with refused(SifmarkError, "data-damaged", "a.jsonl:2: "):
        prepare(source, tmp_path / "s", tokenizer=byte_pairs, strict=True)


def test_characters_of_json_lines_end_with_a_line(tmp_path: Path) -> None:
    source = text_file(tmp_path, '{"text": "b\\na"}\n{"text": "a"}\n', "a.jsonl")
    prepare(source, tmp_path / "t")
    assert tokens(tmp_path / "t") == [2, 0, 1, 0, 1, 0]


def test_a_folder_of_text(tmp_path: Path) -> None:
    for name, text in (("b.txt", "two\n"), ("a.txt", "one\n"), ("c.md", "not this")):
        text_file(tmp_path / "s", text, name)
    prepare(tmp_path / "s", tmp_path / "t")
    symbols = json.loads((tmp_path / "t" / "characters.json").read_text())
    assert "".join(symbols[token] for token in tokens(tmp_path / "t")) == "one\ntwo\n"


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    library = Tokenizer(WordLevel({f"w{number}": number for number in range(70_000)}, unk_token="w0"))
    library.pre_tokenizer = Whitespace()
    library.save(str(tmp_path / "tokenizer.json"))
    source = text_file(tmp_path, "w5 w69999 w65536\n")
    manifest = prepare(source, tmp_path / "t", tokenizer=tmp_path / "tokenizer.json")
    assert tokens(tmp_path / "t") == [5, 69_999, 65_536]
    assert manifest["bytes"] == HEADER.size + 3 * 4


# What cannot be text


@pytest.mark.parametrize("name", ["oscar.jsonl.gz", "c4.json", "text"])
def test_a_file_whose_name_says_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with refused(SifmarkError, "data-missing", name) as raised:
        prepare(text_file(tmp_path, name=name), tmp_path / "t")
    assert ".jsonl" in raised.value.remedy and not (tmp_path / "t").exists()


def test_capitals_in_a_suffix_change_nothing(tmp_path: Path) -> None:
    prepare(text_file(tmp_path, '{"text": "ab"}\n', "OSCAR.JSONL"), tmp_path / "t")
    assert json.loads((tmp_path / "t" / "characters.json").read_text()) == ["a", "b"]


def test_a_mark_of_byte_order_is_no_text(tmp_path: Path) -> None:
    for name, text in (("a.txt", "\ufeffab"), ("b.jsonl", '\ufeff{"text": "ab"}')):
        manifest = prepare(text_file(tmp_path / name, text, name), tmp_path / f"of-{name}")
        assert (manifest["samples"], manifest["text"]["vocabulary"], manifest["skipped"]) == (2, 2, [])


def test_byte_pairs_without_all_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "vocab.json").write_text('{"a": 0, "b": 1, "ab</w>": 2}')
    (tmp_path / "old" / "merges.txt").write_text("#version: 0.2\n")
    with refused(SifmarkError, "tokenizer-unusable", " bytes are missing"):
        prepare(text_file(tmp_path), tmp_path / "t", tokenizer=tmp_path / "old")


def test_a_word_that_a_tokenizer_cannot_make_is_told(tmp_path: Path) -> None:
    trained = Tokenizer(WordLevel({"to": 0, "be": 1}, unk_token="[UNK]"))
    trained.pre_tokenizer = Whitespace()
    trained.save(str(tmp_path / "tokenizer.json"))
    with refused(SifmarkError, "tokenizer-unusable"):
        prepare(text_file(tmp_path, "to be or\n"), tmp_path / "t", tokenizer=tmp_path / "tokenizer.json")


def test_the_reason_why_nothing_is_whole_is_told(tmp_path: Path) -> None:
    with refused(SifmarkError, "data-damaged", "text.jsonl:1 (no field 'text'"):
        prepare(text_file(tmp_path, '{"content": "a"}\n', "text.jsonl"), tmp_path / "t")


def test_a_target_that_is_filled_is_named_before_the_source_is_read(tmp_path: Path) -> None:
    text_file(tmp_path / "t", "mine", "mine.txt")
    with refused(SifmarkError, "folder-not-empty"):
        prepare(tmp_path / "missing.txt", tmp_path / "t")


def test_two_runs_do_not_fill_one_folder(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with file_lock(tmp_path / "t" / ".prepare.lock"), refused(SifmarkError, "folder-in-use"):
        prepare(text_file(tmp_path), tmp_path / "t")
