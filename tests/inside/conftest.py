"""Makes the in-image package importable from the checkout; the programs that tests run."""

from __future__ import annotations

import os
import sys

import pytest
from program import FEW, ROOT, Program, lay_double

sys.path.insert(0, str(ROOT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Skip what oneDNN refuses because it was told to use older instructions than those of the processor.

    PyTorch 1.13 asks the processor whether it computes in bf16, and not oneDNN.
    """
    try:
        return (yield)
    except RuntimeError as error:
        limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
        if limit and "could not create a primitive descriptor" in str(error):
            pytest.skip(f"oneDNN, limited to {limit}, does not compute this")
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
