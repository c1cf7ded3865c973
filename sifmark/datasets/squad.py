"""Questions and the passages that answer them, from SQuAD v1.1, in rows of one length.

A row is cut as by run_squad.py of google-research/bert: the question, then a part of the passage. The part in the next
row begins STRIDE tokens later.
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
from sifmark.datasets.source import DamagedError, OutputFile, ReportItem, read_document
from sifmark.datasets.tokenizer import (
    PASSAGES,
    Subwords,
    TokenFileHeader,
    Word,
    open_tokenizer,
    token_width,
    tokenizer_manifest,
)

_TEXT = {"type": "string", "minLength": 1}
LENGTH, STRIDE, LONGEST_QUESTION = 384, 128, 64  # tokens: of a row, between two rows, and of a question
SHORTEST_ROW, LONGEST_ROW = LONGEST_QUESTION + 4, (1 << 16) - 1  # three special tokens; numbers of two bytes
PADDING, START, SEPARATOR = "[PAD]", "[CLS]", "[SEP]"


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(fields), "properties": fields}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


_ANSWER = _object(text=_TEXT, answer_start={"type": "integer", "minimum": 0})
_QUESTION = _object(id=_TEXT, question=_TEXT, answers=_list(_ANSWER))
_FILE = jsonschema_rs.Draft202012Validator(
    _object(data=_list(_object(paragraphs=_list(_object(context=_TEXT, qas=_list(_QUESTION))))))
)


class Question(NamedTuple):
    """A question about a passage, the answers of people, and the first answer's position in the passage."""

    id: str
    context: str
    text: str
    answers: Sequence[str]
    begin: int

    @property
    def end(self) -> int:
        """One past the last character of the first answer."""
        return self.begin + len(self.answers[0])


def read_questions(source: Path) -> list[Question]:
    """Return the questions of a file in order. Raises SifmarkError if it does not exist, or is not SQuAD v1.1."""
    if not source.is_file():
        remedy = "name train-v1.1.json or dev-v1.1.json of SQuAD"
        raise UsageError(f"{source}: no such file", remedy, code="file-missing")
    try:
        document = json.loads(read_document(source))
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # also of a lone surrogate
        raise SifmarkError(f"{source}: no JSON: {error}", "download it again", code="document-invalid") from None
    wrong = next(_FILE.iter_errors(document), None)
    if wrong is not None:
        path = ".".join(map(str, wrong.instance_path)) or "the whole"
        raise SifmarkError(
            f"{source}: {path}: {wrong.message[:200]}",
            "give SQuAD v1.1, in which every question has an answer; v2.0 has some without",
            code="document-invalid",
        )
    return [
        Question(
            question["id"],
            passage["context"],
            question["question"],
            [answer["text"] for answer in question["answers"]],
            int(question["answers"][0]["answer_start"]),  # for the schema, 515.0 is an integer too
        )
        for article in document["data"]
        for passage in article["paragraphs"]
        for question in passage["qas"]
    ]


def answer_span(question: Question, words: Sequence[Word]) -> tuple[int, int]:
    """Return the first and the last word of the first answer. Raises DamagedError if it is not in the passage."""
    if question.context[question.begin : question.end] != question.answers[0]:
        raise DamagedError("its answer is not at the stated position")
    answer = [index for index, word in enumerate(words) if word.end > question.begin and word.begin < question.end]
    if not answer:
        raise DamagedError("its answer has no tokens")
    return answer[0], answer[-1]


class PassageRow(NamedTuple):
    """The question, a part of its passage, and the answer's first and last token in the row; 0 if in another row."""

    question: Sequence[int]
    passage: Sequence[Word]
    first: int
    last: int


class SquadSource:
    """A file of questions and a tokenizer. The hash of the file is in the plan."""

    noun = "questions"

    def __init__(self, source: Path, tokenizer: str, length: int, samples_per_file: int) -> None:
        self.length, self.samples_per_file = length, samples_per_file
        self.tokenizer = open_for_passages(tokenizer)
        self.questions, self.digest = read_questions(source), sha256_file(source)
        self.total = len(self.questions)

    @property
    def plan(self) -> str:
        """As `DatasetSource.plan`."""
        cut = [self.length, STRIDE, LONGEST_QUESTION]
        return sha256_json(["passages", self.samples_per_file, cut, tokenizer_manifest(self.tokenizer), self.digest])

    def manifest_fields(self) -> dict[str, Any]:
        """As `DatasetSource.manifest_fields`."""
        return {
            "format": "passages",
            "seed": 0,
            "samples_per_file": self.samples_per_file,
            "classes": None,
            "text": {**tokenizer_manifest(self.tokenizer), "places": self.length, "stride": STRIDE},
        }

    def sidecar_files(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def output_files(self) -> Iterator[OutputFile]:
        """As `DatasetSource.output_files`."""
        for number, start in enumerate(range(0, self.total, self.samples_per_file)):
            questions = self.questions[start : start + self.samples_per_file]
            yield OutputFile(f"data-{number:06d}.passages", len(questions), partial(self.write, questions))

    def write(self, questions: Sequence[Question], stream: BinaryIO, report: ReportItem) -> int:
        """Write the rows of some questions, and then their answers. Return the number of rows."""
        header = TokenFileHeader(PASSAGES, self.tokenizer, self.length)
        header.write(stream, 0)
        lines: list[bytes] = []
        row_count = number = 0
        for context, same_context in groupby(questions, attrgetter("context")):
            words, answers = self.tokenizer.words(context), list[Sequence[str]]()
            for question in same_context:
                try:
                    rows = list(self.rows(question, words))
                except DamagedError as error:
                    report(question.id, str(error))
                    continue
                for row in rows:
                    stream.write(self.row_bytes(row, number))
                row_count, number = row_count + len(rows), number + 1
                answers.append(question.answers)
                report()
            if answers:
                lines.append(json.dumps({"context": context, "answers": answers}).encode() + b"\n")
        stream.writelines(lines)
        header.write(stream, row_count, sum(map(len, lines)))
        return row_count

    def rows(self, question: Question, words: Sequence[Word]) -> Iterator[PassageRow]:
        """Yield the rows of a question. Raises DamagedError if its passage is too long or its answer is not in it."""
        if len(question.context) >= 1 << 8 * token_width(self.tokenizer):
            raise DamagedError(f"a passage of {len(question.context)} characters")
        first, last = answer_span(question, words)
        tokens = self.tokenizer.encode([question.text])[0][:LONGEST_QUESTION]
        passage_length, offset = self.length - len(tokens) - 3, len(tokens) + 2
        begin = 0
        while True:
            passage = words[begin : begin + passage_length]
            has_answer = begin <= first and last < begin + len(passage)
            answer = (first - begin + offset, last - begin + offset) if has_answer else (0, 0)
            yield PassageRow(tokens, passage, *answer)
            if begin + len(passage) >= len(words):
                return
            begin += min(len(passage), STRIDE)

    def row_bytes(self, row: PassageRow, number: int) -> bytes:
        """Return the bytes of a row of the question `number`."""
        special, passage = self.special, row.passage
        question = [special[START], *row.question, special[SEPARATOR]]
        tokens = [*question, *(word.token for word in passage), special[SEPARATOR]]
        columns = [
            tokens,
            [0] * len(question) + [word.begin for word in passage],
            [0] * len(question) + [word.end for word in passage],
        ]
        padded = [value for column in columns for value in [*column, *[0] * (self.length - len(column))]]
        return self.row_format.pack(*padded, len(question), len(tokens), row.first, row.last, number)

    @cached_property
    def row_format(self) -> struct.Struct:
        """A row: three numbers per token, four numbers of two bytes and one of four."""
        return struct.Struct(f"<{3 * self.length}{'H' if token_width(self.tokenizer) == 2 else 'I'}4HI")

    @cached_property
    def special(self) -> Mapping[str, int]:
        """The numbers of the special tokens."""
        return {name: self.tokenizer.tokens[name] for name in (PADDING, START, SEPARATOR)}


def open_for_passages(tokenizer: str) -> Subwords:
    """Return the tokenizer at a path. Raises UsageError if it is not one for BERT."""
    if not tokenizer:
        remedy = "--tokenizer vocab.txt, as it comes with BERT"
        raise UsageError("--format passages needs a tokenizer", remedy, code="invalid-option")
    opened = open_tokenizer(Path(tokenizer))
    tokens = opened.tokens if isinstance(opened, Subwords) else {}
    missing = [name for name in (PADDING, START, SEPARATOR) if name not in tokens]
    if missing or tokens[PADDING] != 0:
        reason = f"it has no {', '.join(missing)}" if missing else f"{PADDING} is not its first token"
        cause = f"tokenizer {tokenizer}: {reason}"
        raise UsageError(cause, "name the vocab.txt that comes with BERT", code="tokenizer-unusable")
    assert isinstance(opened, Subwords)  # noqa: S101 - others have no such tokens
    return opened
