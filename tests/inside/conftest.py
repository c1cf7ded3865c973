"""Makes the in-image package importable from the checkout; the programs that tests run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from program import FEW, ROOT, Program, lay_double

sys.path.insert(0, str(ROOT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Skip what oneDNN refuses on older processors, or because it was told to use older instructions.

    PyTorch 1.13 asks the processor whether it computes in bf16, and not oneDNN; no PyTorch asks about an LSTM, which
    needs AVX-512.
    """
    try:
        return (yield)
    except RuntimeError as error:
        old = "" if "avx512" in Path("/proc/cpuinfo").read_text() else "the instructions of this processor"
        limit = os.environ.get("ONEDNN_MAX_CPU_ISA", old)
        if limit and "could not create a primitive descriptor" in str(error):
            pytest.skip(f"oneDNN does not compute this with {limit}")
        raise


@pytest.fixture()
def program(tmp_path):
    """The program of this checkout."""
    return Program(ROOT, tmp_path)


@pytest.fixture(scope="session")
def double_tree(tmp_path_factory):
    """A tree whose device and framework are doubles."""
    return lay_double(tmp_path_factory.mktemp("image") / "sifmark")


@pytest.fixture()
def double(double_tree, tmp_path):
    """The program on a device that can be told to fail: runs take a fraction of a second."""
    return Program(double_tree, tmp_path)


@pytest.fixture(scope="session")
def few_tree(tmp_path_factory):
    return lay_double(tmp_path_factory.mktemp("image") / "sifmark", workloads=FEW)


@pytest.fixture()
def few(few_tree, tmp_path):
    """The same in an image of a few workloads: one for each that differs in what it can do."""
    return Program(few_tree, tmp_path)


@pytest.fixture()
def clocked(double_tree, tmp_path):
    """The same with limits and graces that end when the test sends SIGUSR1, and not before."""
    return Program(double_tree, tmp_path, "clocked.py")
