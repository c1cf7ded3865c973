"""Questions and passages made into rows: as the library cuts them, and what is refused."""

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from unit.preparing import prepare, text_file
from unit.refusals import refused

from entrypoints.contract import cards
from entrypoints.data.formats import open_for
from entrypoints.data.sequences.passages import Passages
from entrypoints.data.sequences.prepared import HEADER
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.datasets.squad import STRIDE, Question, SquadSource
from sifmark.datasets.tokenizer import Subwords, open_tokenizer

PIECES = ["un", "##want", "##ed", "runn", "##ing", ",", ".", "?", "who", "the", "normans", "were", "ruled", "in", "10"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES, "##66", "a", "b", "c", "d", "e"]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path / "vocab.txt"


def test_word_pieces_are_those_of_bert(vocabulary: Path) -> None:
    """The example of google-research/bert, tokenization.py; accents and case do not count."""
    opened = open_tokenizer(vocabulary)
    (tokens,) = opened.encode(["UNwantéd, running 木"])
    assert [VOCABULARY[token] for token in tokens] == ["un", "##want", "##ed", ",", "runn", "##ing", "[UNK]"]


class Read(NamedTuple):
    """A row as it lies in a file."""

    tokens: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    context: int
    length: int
    first: int
    last: int
    question: int


def rows(file: Path) -> tuple[list[Read], list[dict[str, Any]]]:
    content = file.read_bytes()
    _, _, width, _, places, lines, count, _ = HEADER.unpack(content[: HEADER.size])
    assert width == 2
    form = struct.Struct(f"<{3 * places}H4HI")
    entries = []
    for row in form.iter_unpack(content[HEADER.size : HEADER.size + count * form.size]):
        tokens, begins, ends = (row[at : at + places] for at in range(0, 3 * places, places))
        entries.append(Read(tokens, begins, ends, *row[3 * places :]))
    texts = content[HEADER.size + count * form.size :]
    assert len(texts) == lines
    return entries, [json.loads(line) for line in texts.splitlines()]


def squad(*paragraphs: tuple[str, list[tuple[str, str, Sequence[tuple[str, float]]]]]) -> dict[str, Any]:
    """As the file has it: of each paragraph its text, and id, question and answers of each question."""
    records = [
        {
            "context": context,
            "qas": [
                {"id": id, "question": text, "answers": [{"text": t, "answer_start": at} for t, at in answers]}
                for id, text, answers in asked  # noqa: A001
            ],
        }
        for context, asked in paragraphs
    ]
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": records}]}


NORMANS = "The Normans ruled in 1066."
ASKED = ("q1", "Who ruled?", [("Normans", 4), ("The Normans", 0)])
LATER = ("q2", "Ruled in?", [("1066", 21)])


def questions(folder: Path, document: Any) -> Path:
    (folder / "dev.json").write_text(json.dumps(document))
    return folder / "dev.json"


def test_a_row_is_question_passage_and_answer(tmp_path: Path, vocabulary: Path) -> None:
    source = questions(tmp_path, squad((NORMANS, [ASKED, LATER]), ("a b", [("q3", "c", [("b", 2)])])))
    manifest = prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary, length=68)
    assert (manifest["samples"], manifest["text"]["places"], manifest["text"]["stride"]) == (3, 68, 128)
    entries, contexts = rows(tmp_path / "t" / "data-000000.passages")
    assert [row.question for row in entries] == [0, 1, 2]
    first = entries[0]
    words = [VOCABULARY[token] for token in first.tokens[: first.length]]
    assert words == [
        *("[CLS]", "who", "ruled", "?", "[SEP]"),
        *("the", "normans", "ruled", "in", "10", "##66", ".", "[SEP]"),
    ]
    assert (first.context, first.first, first.last) == (5, 6, 6) and set(first.tokens[first.length :]) == {0}
    assert (entries[1].first, entries[1].last) == (9, 10)
    assert NORMANS[entries[1].begins[9] : entries[1].ends[10]] == "1066"
    assert contexts == [
        {"context": NORMANS, "answers": [["Normans", "The Normans"], ["1066"]]},
        {"context": "a b", "answers": [["b"]]},
    ]


def test_an_image_reads_passages(tmp_path: Path, vocabulary: Path) -> None:
    source = questions(tmp_path, squad((NORMANS, [ASKED, LATER])))
    prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary, samples_per_file=1)
    name, opened = open_for(cards.load()["bert_base"], tmp_path / "t", "training", "pytorch")
    assert isinstance(opened, Passages)
    assert (name, opened.samples, len(opened.files)) == ("passages", 2, 2)
    assert [[question.answers for question in file] for file in opened.questions()] == [
        [("Normans", "The Normans")],
        [("1066",)],
    ]


def subwords(vocabulary: Path) -> Subwords:
    tokenizer = open_tokenizer(vocabulary)
    assert isinstance(tokenizer, Subwords)
    return tokenizer


def cut(vocabulary: Path, context: str, text: str, answer: str, begin: int, length: int) -> Iterator[Any]:
    order = SquadSource.__new__(SquadSource)
    order.tokenizer, order.length = subwords(vocabulary), length
    return order.rows(Question("q", context, text, [answer], begin), order.tokenizer.words(context))


@pytest.mark.parametrize("count", [1, 250, 251, 500, 1001])
def test_stretches_are_those_of_the_library(vocabulary: Path, count: int) -> None:
    """Its truncation overlaps by so many tokens; ours begins anew every so many."""
    context = " ".join("abcde"[at % 5] for at in range(count))
    (place,) = [2 * (count // 2)]
    ours = list(cut(vocabulary, context, "who ?", context[place], place, 255))
    library = subwords(vocabulary).trained
    asked = library.encode("who ?", add_special_tokens=False).ids
    room = 255 - len(asked) - 3
    library.enable_truncation(room, stride=room - STRIDE)
    whole = library.encode(context, add_special_tokens=False)
    expected = [
        [token for token, _ in zip(part.ids, part.offsets, strict=True)] for part in [whole, *whole.overflowing]
    ]
    assert [[word.token for word in row.passage] for row in ours] == expected
    for row in ours:
        if row.first:
            word = row.passage[row.first - len(asked) - 2]
            assert (word.begin, row.last) == (place, row.first)
    assert any(row.first for row in ours)


def test_an_answer_is_the_tokens_that_it_touches(vocabulary: Path) -> None:
    for answer, begin, places in (("66", 23, (9, 9)), ("06", 22, (8, 9)), ("ruled in", 12, (6, 7))):
        (row,) = cut(vocabulary, NORMANS, "who ?", answer, begin, 80)
        assert (row.first, row.last) == places


def test_all_rows_of_a_question_have_its_number(tmp_path: Path, vocabulary: Path) -> None:
    context = " ".join(["a b c d e"] * 50)
    source = questions(
        tmp_path, squad((context, [("q1", "who?", [("b", 2)]), ("q2", "in?", [("e", len(context) - 1)])]))
    )
    prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary, length=100)
    entries, contexts = rows(tmp_path / "t" / "data-000000.passages")
    assert [row.question for row in entries] == [0] * 3 + [1] * 3 and contexts[0]["answers"] == [["b"], ["e"]]
    assert [bool(row.first) for row in entries] == [True, False, False, False, False, True]


def test_a_passage_beyond_what_a_place_can_tell(tmp_path: Path, vocabulary: Path) -> None:
    source = questions(tmp_path, squad(("a " * 32768, [("q1", "who?", [("a", 0)])]), (NORMANS, [ASKED])))
    with refused(SifmarkError, "data-damaged", "q1: ", "65536"):
        prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary, strict=True)


def test_a_long_question_is_cut(vocabulary: Path) -> None:
    (row,) = cut(vocabulary, "a b", " ".join("abcde" * 40), "b", 2, 100)
    assert len(row.question) == 64 and (row.first, row.last) == (67, 67)


SPOILT = squad((NORMANS, [ASKED, ("q9", "Who?", [("Saxons", 4)]), ("q8", "Who?", [("x", 99)]), LATER]))


def test_questions_whose_answer_is_elsewhere_are_skipped(tmp_path: Path, vocabulary: Path) -> None:
    source = questions(tmp_path, SPOILT)
    manifest = prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary)
    assert manifest["skipped"] == ["q8", "q9"]
    entries, contexts = rows(tmp_path / "t" / "data-000000.passages")
    assert [row.question for row in entries] == [0, 1] and len(contexts[0]["answers"]) == 2
    with refused(SifmarkError, "data-damaged", "q9: "):
        prepare(source, tmp_path / "s", "passages", tokenizer=vocabulary, strict=True)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            squad((NORMANS, [ASKED, ("q2", "Who?", [])])),
            r"data\.0\.paragraphs\.0\.qas\.1\.answers: \[\] has less than 1",
        ),
        ({"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "1", "question": "b"}]}]}]}, "answers"),
        ({"data": []}, r"data: \[\] has less"),
        ([], "the whole: "),
    ],
)
def test_a_file_that_is_not_of_the_first_version(tmp_path: Path, vocabulary: Path, document: Any, said: str) -> None:
    with pytest.raises(SifmarkError, match=said) as raised:
        prepare(questions(tmp_path, document), tmp_path / "t", "passages", tokenizer=vocabulary)
    assert "SQuAD v1.1, in which every question has an answer" in raised.value.remedy
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[UNK]\n[CLS]\n[SEP]\na\n", r"it has no \[PAD\]"),
        ("[UNK]\n[PAD]\n[CLS]\n[SEP]\na\n", r"\[PAD\] is not its first token"),
        ("[PAD]\n[CLS]\n[SEP]\n", r"it has no \[UNK\]"),
    ],
)
def test_a_vocabulary_that_is_not_of_bert(tmp_path: Path, content: str, said: str) -> None:
    vocabulary = text_file(tmp_path, content, "vocab.txt")
    with pytest.raises(UsageError, match=said):
        prepare(questions(tmp_path, squad((NORMANS, [ASKED]))), tmp_path / "t", "passages", tokenizer=vocabulary)


@pytest.mark.parametrize(
    ("format", "source", "options", "said"),
    [
        ("tokens", "nowhere", {}, "nowhere: no such file or folder"),
        ("tokens", "empty", {}, "empty: no text"),
        ("tokens", "void.txt", {}, "void.txt: no text"),
        ("tokens", "text.txt", {"seed": "1"}, "--seed 1: --format tokens has no use for it"),
        ("tokens", "text.txt", {"length": 9}, "--length 9: --format tokens has no use for it"),
        ("tokens", "text.txt", {"tokenizer": "nowhere"}, "tokenizer nowhere: no such file or folder"),
        ("tokens", "text.txt", {"tokenizer": "empty"}, "tokenizer empty: vocab.json and merges.txt not there"),
        ("tokens", "text.txt", {"tokenizer": "dev.json"}, "tokenizer dev.json: "),
        ("tokens", "text.txt", {"tokenizer": "characters.json"}, "no list of different characters"),
        ("tokens", "latin.txt", {}, "none of the 1 lines is whole, for example latin.txt:1"),
        ("shards", "empty", {"tokenizer": "x"}, "--tokenizer x: --format shards has no use for it"),
        ("passages", "dev.json", {}, "--format passages needs a tokenizer"),
        (
            "passages",
            "dev.json",
            {"tokenizer": "vocab.txt", "length": 67},
            "--length 67 is not from 68",
        ),
        ("passages", "dev.json", {"tokenizer": "vocab.txt", "length": 65536}, "from 68 to 65535"),
        ("passages", "dev.json", {"tokenizer": "good/characters.json"}, r"it has no \[PAD\], \[CLS\], \[SEP\]"),
        ("passages", "text.txt", {"tokenizer": "vocab.txt"}, "text.txt: no JSON"),
        ("passages", "empty", {"tokenizer": "vocab.txt"}, "empty: no such file"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path,
    vocabulary: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,  # noqa: A002
    source: str,
    options: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("good").mkdir()
    contents = {"text.txt": b"abc\n", "void.txt": b"", "latin.txt": b"\xe9\n", "characters.json": b'["a", "a"]'}
    for name, content in {**contents, "good/characters.json": b'["a", "b"]'}.items():
        Path(name).write_bytes(content)
    questions(Path(), squad((NORMANS, [ASKED])))
    with pytest.raises(SifmarkError, match=said) as raised:
        prepare(Path(source), Path("t"), format, **options)
    assert raised.value.remedy


def test_an_answer_that_begins_at_a_whole_float(tmp_path: Path, vocabulary: Path) -> None:
    source = questions(tmp_path, squad((NORMANS, [("q1", "Who?", [("Normans", 4.0)])])))  # as pandas writes it
    assert prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary)["samples"] == 1


def test_half_a_character_is_told(tmp_path: Path, vocabulary: Path) -> None:
    source = questions(tmp_path, squad((NORMANS, [("q1", "Who \ud83d?", [("Normans", 4)])])))
    with refused(SifmarkError, "document-invalid", "dev.json"):
        prepare(source, tmp_path / "t", "passages", tokenizer=vocabulary)
