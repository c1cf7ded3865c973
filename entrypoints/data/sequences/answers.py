"""Answers to questions about passages, compared with those of people: exact match and F1 of SQuAD v1.1.

As evaluate-v1.1.py of https://rajpurkar.github.io/SQuAD-explorer defines them: means over all questions, each against
the closest human answer; case, punctuation, articles and blanks do not count.
"""

from __future__ import annotations

import re
import string
from collections import Counter

import numpy as np

from entrypoints.contract.statuses import RunError
from entrypoints.contract.target import Quality
from entrypoints.data.sequences.passages import Passages
from entrypoints.data.sequences.prepared import REMEDY
from entrypoints.data.sequences.text_batches import mapped_rows

LONGEST = 30  # tokens of an answer, as in google-research/bert run_squad.py
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = frozenset(string.punctuation)


class SquadGrader:
    """Keeps the likeliest answer to each question over all stretches of its passage."""

    def __init__(self, source: Passages) -> None:
        self.questions = source.questions()
        self.mapped = mapped_rows(source)
        self.best: dict[tuple[int, int], tuple[float, str]] = {}

    def add(self, numbers: np.ndarray, logits: np.ndarray) -> None:
        """Add the model's output for the rows of these numbers: logits (N, T, 2) of beginning and end."""
        for number, file, row in zip(numbers, self.mapped.file_of(numbers), logits):
            asked = self.mapped.stretch(int(number), 1)[0]
            first, last, score = likeliest(row, int(asked["context"]), int(asked["length"]) - 1)
            question = (int(file), int(asked["question"]))
            if question[1] >= len(self.questions[question[0]]):
                path = self.mapped.files[question[0]].path
                raise RunError("data_error", f"{path}: no answers to question {question[1]}: it is damaged; {REMEDY}")
            if question not in self.best or score > self.best[question][0]:
                context = self.questions[question[0]][question[1]].context
                self.best[question] = (score, context[asked["begins"][first] : asked["ends"][last]])

    def quality(self) -> Quality:
        """Return exact match and F1, means over all questions; a question without an answer scores 0 in both."""
        exact = f1 = 0.0
        for file, questions in enumerate(self.questions):
            for number, question in enumerate(questions):
                _, answer = self.best.get((file, number), (0.0, ""))
                exact += max(normalised(answer) == normalised(expected) for expected in question.answers)
                f1 += max(overlap(answer, expected) for expected in question.answers)
        count = sum(map(len, self.questions))
        return Quality(exact / count, f1 / count)


def likeliest(logits: np.ndarray, begin: int, end: int) -> tuple[int, int, float]:
    """Return first and last position of the likeliest answer in `begin` to `end`, at most `LONGEST` long, and its
    score."""
    first, last = logits[begin:end].astype(np.float64).T
    pairs = first[:, None] + last
    length = np.arange(len(last)) - np.arange(len(first))[:, None]
    pairs[(length < 0) | (length >= LONGEST)] = -np.inf
    at, to = np.unravel_index(int(pairs.argmax()), pairs.shape)
    return begin + int(at), begin + int(to), float(pairs[at, to])


def normalised(answer: str) -> str:
    """Return an answer in lower case, without punctuation and articles, with one blank between words."""
    plain = "".join(letter for letter in answer.lower() if letter not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split())


def overlap(answer: str, expected: str) -> float:
    """Return the F1 of the words that both answers have."""
    words, wanted = normalised(answer).split(), normalised(expected).split()
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted)) if common else 0.0
