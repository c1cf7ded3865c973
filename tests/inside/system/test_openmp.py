"""How threads of OpenMP wait: the runtimes of a process, and what variables say to them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from entrypoints.system import openmp

MAPPED = """\
7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libc.so.6
7f01-7f02 r-xp 00000000 08:01 2 /opt/torch/lib/libgomp-a34b3233.so.1
7f02-7f03 r--p 00000000 08:01 2 /opt/torch/lib/libgomp-a34b3233.so.1
7f03-7f04 r-xp 00000000 08:01 3 /opt/intel/lib/libiomp5.so
7f04-7f05 r-xp 00000000 08:01 4 /opt/lib/libompitrace.so.40
7f05-7f06 rw-p 00000000 00:00 0 [heap]
"""


def test_runtimes_are_those_that_are_loaded(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(MAPPED)
    assert openmp.runtimes(maps) == ["libgomp", "libiomp5"]
    assert openmp.runtimes(tmp_path / "absent") == []


def test_a_process_that_loads_a_runtime_has_it():
    """In a process of its own, so that no other test loaded one before."""
    code = (
        "import ctypes.util, sys; from entrypoints.system.openmp import runtimes; before = runtimes()\n"
        "ctypes.CDLL('libgomp.so.1'); print(before, runtimes())"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False)
    if "libgomp.so.1: cannot open" in done.stderr:
        pytest.skip("this host has no libgomp")
    assert done.stdout == "[] ['libgomp']\n", done.stderr


@pytest.mark.parametrize(
    ("name", "variables", "text", "spins"),
    [
        ("libgomp", {}, "300000 spins (default)", True),
        ("libgomp", {"OMP_WAIT_POLICY": "PASSIVE"}, "0 spins (OMP_WAIT_POLICY)", False),
        ("libgomp", {"OMP_WAIT_POLICY": "active"}, "30000000000 spins (OMP_WAIT_POLICY)", True),
        ("libgomp", {"OMP_WAIT_POLICY": "lazy"}, "300000 spins (default)", True),
        ("libgomp", {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "INFINITY"}, "infinity (GOMP_SPINCOUNT)", True),
        ("libgomp", {"GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "9"}, "0 spins (GOMP_SPINCOUNT)", False),
        ("libgomp", {"GOMP_SPINCOUNT": "of zebra"}, "300000 spins (default)", True),
        ("libiomp5", {}, "200 ms (default)", True),
        ("libomp", {"OMP_WAIT_POLICY": "PASSIVE"}, "0 ms (OMP_WAIT_POLICY)", False),
        ("libiomp5", {"KMP_BLOCKTIME": "0"}, "0 ms (KMP_BLOCKTIME)", False),
        ("libiomp5", {"KMP_BLOCKTIME": "50us"}, "50us (KMP_BLOCKTIME)", True),
    ],
)
def test_a_wait_is_that_of_the_variables(name, variables, text, spins):
    assert openmp.waits([name], variables) == f"{name}: {text}"
    assert openmp.spins(f"{name}: {text}", threads=2) == spins


def test_what_spins_is_any_runtime_of_several_threads():
    both = openmp.waits(["libgomp", "libiomp5"], {"GOMP_SPINCOUNT": "0"})
    assert both == "libgomp: 0 spins (GOMP_SPINCOUNT), libiomp5: 200 ms (default)"
    assert openmp.spins(both, threads=2) and not openmp.spins(both, threads=1)
    assert not openmp.spins(None, threads=2)
    assert openmp.waits(["a library\n"], {}) == ""
