"""The faults that `ci/faults` plants: each fits the code as it is, and so do the tests that look for it."""

from pathlib import Path

import pytest
from accelerator_faults import ACCELERATORS
from faults import Fault
from host_faults import HOST
from inside_faults import INSIDE
from patching import StaleFaultError, plant, planted
from plant_faults import Finding, report
from study_faults import STUDIES

from sifmark.core import paths

FAULTS = (*INSIDE, *ACCELERATORS, *HOST, *STUDIES)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault: Fault) -> None:
    path, text = planted(paths.CHECKOUT / fault.side, fault.symbol, fault.was, fault.becomes)
    assert text != path.read_text()
    files = [word for word in fault.tests if "/" in word]
    assert files and all((paths.CHECKOUT / name).exists() for name in files)


def test_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_findings_are_kept_beside_those_of_other_faults() -> None:
    first, second, third = FAULTS[:3]
    before = report([Finding(fault, "missed", "a | b", 1.0) for fault in (third, first)], "")
    assert "0 of 2 were caught" in before and before.index(first.name) < before.index(third.name)
    gone = before.replace(f"| {third.name} |", "| a fault that is no more |")
    after = report([Finding(first, "caught", "a test", 1.0), Finding(second, "caught", "a test", 1.0)], gone)
    rows = [line.split(" | ") for line in after.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == [f"| {first.name}", f"| {second.name}"] and "2 of 2 were caught" in after


def test_every_occurrence_in_the_symbol_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "def f(x):\n    é = (x  +  1)\n    return x + 1\n\n\ndef g(x):\n    return x + 1\n"
    )
    assert plant(tmp_path, "f", "x + 1", "x - 1").read_text() == (
        "def f(x):\n    é = ((x - 1))\n    return (x - 1)\n\n\ndef g(x):\n    return x + 1\n"
    )


@pytest.mark.parametrize(("symbol", "was"), [("h", "x + 1"), ("f", "x + 2"), ("C.f", "x + 1"), ("f", "x + 3")])
def test_what_is_not_in_the_code_exactly_once_is_stale(symbol: str, was: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(f"def f(x):\n    return x + 3\n\n\ndef {name}(x):\n    return x + 1\n")
    with pytest.raises(StaleFaultError, match=f"{symbol}: `"):
        plant(tmp_path, symbol, was, "x")
