"""Files of SQuAD v1.1: questions about passages, and the answers of people."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.datasets.source import DamagedError
from sifmark.datasets.tokenizer import Word

_TEXT = {"type": "string", "minLength": 1}


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
        document = json.loads(source.read_bytes())
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
