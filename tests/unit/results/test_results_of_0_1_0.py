"""Results that 0.1.0 wrote are compared as 0.1.0 compared them."""

import json
from pathlib import Path

import pytest

from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.exports import as_json
from sifmark.results.comparison.query import Query


def test_the_comparison_of_a_result(made_by_0_1_0: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made_by_0_1_0)  # a comparison names its files as they were given
    assert json.loads(as_json(compare_results(["training.json"], Query()))) == json.loads(
        Path("expected-compare.json").read_text()
    )
