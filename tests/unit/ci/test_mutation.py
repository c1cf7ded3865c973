"""The faults that `ci/mutants` seeds: each fits the code as it is, and the tests that should kill it are there."""

from pathlib import Path

import pytest
from faults import Fault
from patching import StaleFaultError, plant, planted
from run_mutants import FAULTS

from sifmark.core import paths


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault: Fault) -> None:
    path, text = planted(paths.CHECKOUT / fault.side, fault.symbol, fault.was, fault.becomes)
    assert text != path.read_text()
    files = [word for word in fault.tests if "/" in word]
    assert files and all((paths.CHECKOUT / name).exists() for name in files)


@pytest.mark.parametrize(("symbol", "was"), [("h", "x + 1"), ("f", "x + 2"), ("C.f", "x + 1"), ("f", "x + 3")])
def test_what_is_not_in_the_code_exactly_once_is_stale(symbol: str, was: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(f"def f(x):\n    return x + 3\n\n\ndef {name}(x):\n    return x + 1\n")
    with pytest.raises(StaleFaultError, match=f"{symbol}: `"):
        plant(tmp_path, symbol, was, "x")
