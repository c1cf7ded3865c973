"""The benchmark of forgeries: every genuine result is valid, and no result that is impossible."""

import sys

import pytest

from sifmark.core.paths import CHECKOUT, import_shared
from sifmark.results.load import document_problems

sys.path.append(str(CHECKOUT / "benchmarks"))
import forgeries


@pytest.fixture(scope="module")
def genuine() -> list[tuple[str, forgeries.Document]]:
    return list(forgeries.genuine())


def test_genuine_results_are_valid(genuine: list[tuple[str, forgeries.Document]]) -> None:
    assert len(genuine) >= 25
    assert [file for file, document in genuine if document_problems(document)] == []


def test_every_kind_of_forgery_applies_and_is_refused(genuine: list[tuple[str, forgeries.Document]]) -> None:
    """Of a workload whose card is gone, or was never here, nobody knows the title."""
    cards = import_shared("rules.identity").cards_by_identity()
    without_card = {file for file, document in genuine if document["workload"]["identity"] not in cards}
    for kind, forged, accepted in forgeries.refusals():
        assert forged >= 2, f"{kind} applies to no result"
        assert set(accepted) == (without_card if "title" in kind else set()), kind


def test_genuine_results_are_far_from_the_limits() -> None:
    """A device that is new in the table may change that."""
    for what, value, limit, name in forgeries.margins():
        at_least, number = limit.startswith("at least"), float(limit.split()[-1])
        assert value >= 1.2 * number if at_least else value <= number / 1.2, f"{what} of {name}"
