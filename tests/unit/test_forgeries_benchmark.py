"""The benchmark of forgeries: every genuine result is valid, and no result that is impossible."""

import sys

import pytest

from sifmark.core.paths import CHECKOUT
from sifmark.results.load import document_problems

sys.path.append(str(CHECKOUT / "benchmarks"))
import forgeries

STAND_INS = "tests/fixtures/0.2.0/"  # of whose workload there is no card


@pytest.fixture(scope="module")
def genuine() -> list[tuple[str, forgeries.Document]]:
    return list(forgeries.genuine())


def test_genuine_results_are_valid(genuine: list[tuple[str, forgeries.Document]]) -> None:
    assert len(genuine) >= 25
    assert [file for file, document in genuine if document_problems(document)] == []


def test_every_kind_of_forgery_applies_and_is_refused() -> None:
    for kind, forged, accepted in forgeries.refusals():
        assert forged >= 2, f"{kind} applies to no result"
        known = {name for name in accepted if name.startswith(STAND_INS)} if "title" in kind else set[str]()
        assert set(accepted) == known, kind


def test_genuine_results_are_far_from_the_limits() -> None:
    """A device that is new in the table may change that."""
    for what, value, limit, name in forgeries.margins():
        at_least, number = limit.startswith("at least"), float(limit.split()[-1])
        assert value >= 1.2 * number if at_least else value <= number / 1.2, f"{what} of {name}"
