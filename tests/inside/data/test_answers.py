"""Exact match and F1 against what the official script of SQuAD v1.1 says of the same answers."""

from __future__ import annotations

import pytest
from packed_text import header, passages, row, small

np = pytest.importorskip("numpy")

from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.data import formats  # noqa: E402
from entrypoints.data.sequences import answers  # noqa: E402
from entrypoints.data.sequences import passages as text_passages  # noqa: E402
from entrypoints.data.sequences.answers import likeliest, normalised, overlap  # noqa: E402

BERT = small("bert_base", 16)


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("The Cat,  sat!", "cat sat"),
        ("a an the", ""),
        ("theatre of an Anna", "theatre of anna"),
        ("it's the\tend.", "its end"),
        ("\u20131,000", "\u20131000"),
    ],
)
def test_what_does_not_count(answer, plain):
    assert normalised(answer) == plain


@pytest.mark.parametrize(
    ("answer", "expected", "f1"),
    [
        ("in the year 1066", "1066", 2 * (1 / 3) * 1 / (1 / 3 + 1)),
        ("1066", "in 1066", 2 * 1 * 0.5 / 1.5),
        ("cat cat dog", "cat dog dog", 2 / 3),
        ("The cat", "cat", 1.0),
        ("dog", "cat", 0.0),
        ("", "the", 0.0),
    ],
)
def test_words_that_both_have(answer, expected, f1):
    assert overlap(answer, expected) == pytest.approx(f1)


def logits(places, **high):
    scores = np.zeros((places, 2), np.float32)
    for which, column in (("first", 0), ("last", 1)):
        for place, value in high.get(which, {}).items():
            scores[place, column] = value
    return scores


def test_the_likeliest_answer_lies_within_the_passage_and_does_not_run_backwards():
    scores = logits(10, first={0: 99, 3: 5, 6: 7}, last={9: 99, 4: 6, 5: 5})
    assert likeliest(scores, 3, 8) == (3, 4, 11.0)
    assert likeliest(scores, 5, 8)[:2] == (6, 6)
    assert likeliest(logits(100, first={2: 9}, last={40: 9, 32: 5, 31: 1}), 1, 99)[:2] == (2, 31)  # thirty tokens


CONTEXT = "Norman dukes ruled in the year 1066."
WORDS = [(0, 6), (7, 12), (13, 18), (19, 21), (22, 25), (26, 30), (31, 35), (35, 36)]
ANSWERED = [(CONTEXT, [["1066", "year 1066"], ["dukes"]])]
ROWS = [
    row([3], range(10, 14), question=0, offsets=WORDS[:4]),
    row([3], range(14, 18), first=5, last=5, question=0, offsets=WORDS[4:]),
    row([4], range(10, 14), first=4, last=4, question=1, offsets=WORDS[:4]),
]


def grader(folder, rows=ROWS, answered=ANSWERED):
    return formats.grader(formats.open_for(BERT, passages(folder, rows, answered), "inference", "pytorch")[1])


def test_the_best_stretch_of_a_passage_answers(tmp_path):
    graded = grader(tmp_path)
    graded.add(np.array([0]), logits(16, first={1: 99, 3: 4}, last={3: 4, 7: 99})[None])  # 7 is what ends the row
    assert graded.quality() == (0.0, 0.0)  # "Norman" is wrong, and the other question is not answered
    # The second stretch is surer: "the year 1066".
    graded.add(
        np.array([1, 2]), np.stack([logits(16, first={3: 5}, last={5: 5}), logits(16, first={3: 1}, last={4: 1})])
    )
    exact_match, f1 = graded.quality()
    assert (exact_match, f1) == (0.5, pytest.approx((1.0 + 2 * 0.5 * 1 / 1.5) / 2))
    graded.add(np.array([0]), logits(16, first={3: 4}, last={3: 4})[None])
    assert graded.quality() == (exact_match, f1)


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ([(CONTEXT, [["1066"], []])], "a question without answers"),
        ([("x", "y")], "no answers to question"),
        ([], "no a"),
    ],
)
def test_answers_that_are_not_there(tmp_path, answered, said):
    with pytest.raises(RunError, match=said) as raised:
        grader(tmp_path, answered=answered).add(np.array([2]), logits(16)[None])
    assert raised.value.state == "data_error"


LINES = [b"\xff", b"[" * 100000, b"{}", b'{"context": 5, "answers": [["a"]]}', b"[1]"]


@pytest.mark.parametrize("line", LINES, ids=range(5))
def test_answers_that_cannot_be_read(tmp_path, line):
    lines = line + b"\n"
    begun = header(b"SIFSQUAD", len(ROWS), 50, 16, len(lines))
    folder = passages(tmp_path, ROWS, ANSWERED)
    (folder / "data-0.passages").write_bytes(begun + b"".join(ROWS) + lines)
    with pytest.raises(RunError, match="answers that cannot be read"):
        formats.grader(formats.open_for(BERT, folder, "inference", "pytorch")[1])


def test_other_data_are_graded_by_nobody(tmp_path):
    assert answers.SquadGrader is type(grader(tmp_path))
    assert formats.grader(formats.Source(tmp_path, 1, None)) is None


def test_answers_in_a_line_longer_than_any(tmp_path, monkeypatch):
    monkeypatch.setattr(text_passages, "LONGEST_LINE", 20)
    with pytest.raises(RunError, match="answers that cannot be read"):
        formats.grader(formats.open_for(BERT, passages(tmp_path, ROWS, ANSWERED), "inference", "pytorch")[1])
