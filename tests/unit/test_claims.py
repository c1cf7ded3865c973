"""Numbers that README and documents state of this repository and its examples are those of the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documentation import README, ROOT, WRITTEN, name

from sifmark.recipes.names import workloads_of
from sifmark.results.numbers import format_interval, split_interval

MICROBENCHMARK = "microbenchmark"
RECIPES = {"pytorch": "cuda", "tensorflow": "cuda_tf"}
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_BRACKETS = re.compile(rf"(?<![\w.])({_NUMBER})x?(?: [a-z]+)? \[({_NUMBER}), ({_NUMBER})\]")
_PERCENT = re.compile(rf"(?<![\w.])({_NUMBER})(?:x(?: [a-z]+)?)? (± [\d.]+ %)")


def cards() -> Iterator[dict[str, Any]]:
    for file in (ROOT / "entrypoints" / "workloads").glob("*.json"):
        yield json.loads(file.read_text())


def numbers_in(words: str) -> list[int]:
    """Return the numbers in the line of README that has some words."""
    (line,) = [line for line in README.read_text().splitlines() if words in line]
    return [int(number) for number in re.findall(r"\b\d+\b", line)]


def test_readme_has_the_numbers_of_workloads() -> None:
    tasks = [card["tasks"] for card in cards()]
    micro = sum(task == [MICROBENCHMARK] for task in tasks)
    networks = {card["name"] for card in cards() if card["tasks"] != [MICROBENCHMARK]}
    frameworks = {framework: len(networks & set(workloads_of(recipe))) for framework, recipe in RECIPES.items()}
    assert numbers_in("networks and") == [frameworks["pytorch"], micro, frameworks["tensorflow"]]


def test_the_ratio_of_readme_is_that_of_its_table() -> None:
    (row,) = re.findall(rf"throughput \[images/s\]\s+({_NUMBER}) ± \S+ %\s+({_NUMBER}) ", README.read_text())
    (ratio,) = re.findall(rf"`({_NUMBER})x slower", README.read_text())
    baseline, other = map(float, row)
    assert float(ratio) == pytest.approx(baseline / other, abs=0.001)


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_examples_show_intervals_as_the_program_writes_them(page: Path) -> None:
    text = page.read_text()
    for number, low, high in _BRACKETS.findall(text):
        value, *ends = (float(each.replace(",", "")) for each in (number, low, high))
        assert "[" in split_interval(format_interval(value, *ends))[1], f"{number} [{low}, {high}] is narrow"
    for number, interval in _PERCENT.findall(text):
        assert len(number.replace(",", "").replace(".", "").lstrip("0")) >= 4, f"{number} {interval}: four digits"


def test_documents_name_the_parameters_of_models_whose_names_say_less() -> None:
    text = (ROOT / "docs" / "measure" / "llm-inference.md").read_text()
    for card in cards():
        if card["name"] in ("gpt_117m", "gpt_800m"):
            assert f"{card['problem']['parameters']:,}" in text
