"""Questions and the passages that answer them, as SQuAD v1.1 has them, in rows of one length.

As google-research/bert run_squad.py cuts them: the question, then a stretch of the passage; the next row begins so many
tokens later.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jsonschema_rs

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_file, sha256_json
from sifmark.datasets.source import DamagedError, OutputFile, SkipSample
from sifmark.datasets.token_file import PASSAGES, TokenFileHeader, token_width, tokenizer_manifest
from sifmark.datasets.tokenizer import Subwords, Word, open_tokenizer

LENGTH, STRIDE, MOST_ASKED = 384, 128, 64  # tokens: of a row, from row to row, and of a question
SHORTEST_ROW, LONGEST_ROW = MOST_ASKED + 4, (1 << 16) - 1  # three tokens that are no text; numbers of two bytes
PADDING, BEGIN, BETWEEN = "[PAD]", "[CLS]", "[SEP]"
_TEXT = {"type": "string", "minLength": 1}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(fields), "properties": fields}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


_ANSWER = _object(text=_TEXT, answer_start={"type": "integer", "minimum": 0})
_ASKED = _object(id=_TEXT, question=_TEXT, answers=_list(_ANSWER))
_FORM = jsonschema_rs.Draft202012Validator(
    _object(data=_list(_object(paragraphs=_list(_object(context=_TEXT, qas=_list(_ASKED))))))
)


class Question(NamedTuple):
    """A question about a passage, what people answered, and where in the passage the first answer stands."""

    id: str
    context: str
    text: str
    answers: Sequence[str]
    begin: int

    @property
    def end(self) -> int:
        """One past the last character of the first answer."""
        return self.begin + len(self.answers[0])


class PassageRow(NamedTuple):
    """A question and a stretch of its passage, and where in the row the answer is; 0 where it is in another row."""

    asked: Sequence[int]
    stretch: Sequence[Word]
    first: int
    last: int


class SquadSource:
    """A file of questions, which counts by its content, and a tokenizer."""

    noun = "questions"

    def __init__(self, source: Path, tokenizer: str, length: int, samples_per_file: int) -> None:
        self.length, self.samples_per_file = length, samples_per_file
        self.tokenizer = open_for_passages(tokenizer)
        self.questions, self.digest = read_questions(source), sha256_file(source)
        self.total = len(self.questions)

    @property
    def plan(self) -> str:
        """As `Order.plan`."""
        cut = [self.length, STRIDE, MOST_ASKED]
        return sha256_json(["passages", self.samples_per_file, cut, tokenizer_manifest(self.tokenizer), self.digest])

    def described(self) -> dict[str, Any]:
        """As `Order.described`."""
        return {
            "format": "passages",
            "seed": 0,
            "samples_per_file": self.samples_per_file,
            "classes": None,
            "text": {**tokenizer_manifest(self.tokenizer), "places": self.length, "stride": STRIDE},
        }

    def beside(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def chunks(self) -> Iterator[OutputFile]:
        """As `Order.chunks`."""
        for number, at in enumerate(range(0, self.total, self.samples_per_file)):
            questions = self.questions[at : at + self.samples_per_file]
            yield OutputFile(f"data-{number:06d}.passages", len(questions), partial(self.write, questions))

    def write(self, questions: Sequence[Question], stream: BinaryIO, skip: SkipSample) -> int:
        """The rows of some questions, and their answers."""
        header = TokenFileHeader(PASSAGES, self.tokenizer, self.length)
        header.write(stream, 0)
        answered: list[bytes] = []
        rows = number = 0
        for context, asked in groupby(questions, attrgetter("context")):
            words, kept = self.tokenizer.words(context), list[Sequence[str]]()
            for question in asked:
                try:
                    cut = list(self.cut(question, words))
                except DamagedError as error:
                    skip(question.id, str(error))
                    continue
                for row in cut:
                    stream.write(self.packed(row, number))
                rows, number = rows + len(cut), number + 1
                kept.append(question.answers)
                skip()
            if kept:
                answered.append(json.dumps({"context": context, "answers": kept}).encode() + b"\n")
        stream.writelines(answered)
        header.write(stream, rows, sum(map(len, answered)))
        return rows

    def cut(self, question: Question, words: Sequence[Word]) -> Iterator[PassageRow]:
        """The rows of a question. Raises DamagedError where its passage or its answer cannot be told."""
        if len(question.context) >= 1 << 8 * token_width(self.tokenizer):
            raise DamagedError(f"a passage of {len(question.context)} characters")
        first, last = answer_span(question, words)
        asked = self.tokenizer.encode([question.text])[0][:MOST_ASKED]
        room, before = self.length - len(asked) - 3, len(asked) + 2
        begin = 0
        while True:
            stretch = words[begin : begin + room]
            inside = begin <= first and last < begin + len(stretch)
            places = (first - begin + before, last - begin + before) if inside else (0, 0)
            yield PassageRow(asked, stretch, *places)
            if begin + len(stretch) >= len(words):
                return
            begin += min(len(stretch), STRIDE)

    def packed(self, row: PassageRow, number: int) -> bytes:
        """A row as it lies in a file."""
        known, stretch = self.special, row.stretch
        asked = [known[BEGIN], *row.asked, known[BETWEEN]]
        tokens = [*asked, *(word.token for word in stretch), known[BETWEEN]]
        columns = [
            tokens,
            [0] * len(asked) + [word.begin for word in stretch],
            [0] * len(asked) + [word.end for word in stretch],
        ]
        padded = [value for column in columns for value in [*column, *[0] * (self.length - len(column))]]
        whole = (len(asked), len(tokens), row.first, row.last)
        return self.form.pack(*padded, *whole, number)

    @cached_property
    def form(self) -> struct.Struct:
        """A row: three numbers a place, four of two bytes and one of four."""
        return struct.Struct(f"<{3 * self.length}{'H' if token_width(self.tokenizer) == 2 else 'I'}4HI")

    @cached_property
    def special(self) -> Mapping[str, int]:
        """Numbers of the tokens that are no text."""
        return {name: self.tokenizer.tokens[name] for name in (PADDING, BEGIN, BETWEEN)}


def open_for_passages(tokenizer: str) -> Subwords:
    """The tokenizer at a path. Raises UsageError where it is none of BERT's kind."""
    if not tokenizer:
        raise UsageError("--format passages needs a tokenizer", "--tokenizer vocab.txt, as it comes with BERT")
    opened = open_tokenizer(Path(tokenizer))
    known = opened.tokens if isinstance(opened, Subwords) else {}
    missing = [name for name in (PADDING, BEGIN, BETWEEN) if name not in known]
    if missing or known[PADDING] != 0:
        what = f"it has no {', '.join(missing)}" if missing else f"{PADDING} is not its first token"
        raise UsageError(f"--tokenizer {tokenizer}: {what}", "name the vocab.txt that comes with BERT")
    assert isinstance(opened, Subwords)  # noqa: S101 - others know no such tokens
    return opened


def read_questions(source: Path) -> list[Question]:
    """The questions of a file in order. Raises UsageError where there is none, SifmarkError where it is not v1.1."""
    if not source.is_file():
        raise UsageError(f"{source}: no such file", "name train-v1.1.json or dev-v1.1.json of SQuAD")
    try:
        document = json.loads(source.read_bytes())
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # half a character too
        raise SifmarkError(f"{source}: no JSON: {error}", "fetch it anew") from None
    wrong = next(_FORM.iter_errors(document), None)
    if wrong is not None:
        place = ".".join(map(str, wrong.instance_path)) or "the whole"
        raise SifmarkError(
            f"{source}: {place}: {wrong.message[:200]}",
            "give SQuAD v1.1, in which every question has an answer; v2.0 has some without",
        )
    return [
        Question(
            asked["id"],
            passage["context"],
            asked["question"],
            [answer["text"] for answer in asked["answers"]],
            int(asked["answers"][0]["answer_start"]),  # 515.0 is an integer too
        )
        for article in document["data"]
        for passage in article["paragraphs"]
        for asked in passage["qas"]
    ]


def answer_span(question: Question, words: Sequence[Word]) -> tuple[int, int]:
    """First and last of the words in which the first answer lies. Raises DamagedError where it is not there."""
    if question.context[question.begin : question.end] != question.answers[0]:
        raise DamagedError("its answer does not stand where it is said to")
    inside = [at for at, word in enumerate(words) if word.end > question.begin and word.begin < question.end]
    if not inside:
        raise DamagedError("its answer has no tokens")
    return inside[0], inside[-1]
