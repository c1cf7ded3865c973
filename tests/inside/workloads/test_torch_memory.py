"""The memory that training takes of a process, and what was estimated before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import measured_memory  # noqa: E402
import test_torch_decoding  # noqa: E402
import test_torch_diffusion  # noqa: E402
import test_torch_vit  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.planning.arguments import parse  # noqa: E402
from entrypoints.planning.resolve import resolve  # noqa: E402
from entrypoints.system.facts import MIB  # noqa: E402
from entrypoints.worker import memory_estimate  # noqa: E402

SAMPLES = 2
FREED = {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_WAIT_POLICY": "PASSIVE"}  # what is freed is the system's at once
KEPT = {
    "decoder": lambda problem: test_torch_decoding.numbers_kept(problem, problem["model"]["layers"]),
    "diffusion": lambda problem: test_torch_diffusion.kept(problem["model"]),
    "vit": lambda problem: test_torch_vit.kept(problem, problem["model"]["layers"]),
}


@pytest.mark.full
@pytest.mark.skipif(torch.__version__ < "2.1", reason="before, attention is not one operation on a CPU")
@pytest.mark.parametrize("workload", measured_memory.MEDIUM)
def test_training_takes_what_was_estimated(workload):
    card = measured_memory.medium(cards.load()[workload])
    numbers = KEPT[card.family](card.problem)
    card = card._replace(memory={**card.memory, "training_elements_per_unit": numbers})
    words = [workload, "--batch-size", str(SAMPLES), "--precision", "fp32", "--device", "cpu"]
    estimated = memory_estimate.estimate(card, resolve(parse(words), card, None)).total * MIB
    run = subprocess.run(
        [sys.executable, measured_memory.__file__, workload, str(SAMPLES)],
        env={**os.environ, **FREED},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert int(run.stdout) / estimated == pytest.approx(1.0, abs=0.1)
