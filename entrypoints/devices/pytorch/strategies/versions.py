"""What divides a model, and the PyTorch that it needs."""

from __future__ import annotations

from typing import Iterator

import torch

from entrypoints.contract.choices import SHARDED
from entrypoints.contract.group import Parallelism
from entrypoints.contract.statuses import RunError

FULLY_SHARD, PARALLELIZE, PIPELINING = "fully_shard", "parallelize_module", "pipelining"
# Versions that have it as it is called here; and those that do it right with gloo, where earlier ones add up gradients
# that should be averaged, or abort.
LEAST = {FULLY_SHARD: (2, 6), PARALLELIZE: (2, 7), PIPELINING: (2, 8)}
LEAST_ON_CPU = {FULLY_SHARD: (2, 9), PARALLELIZE: (2, 9), PIPELINING: (2, 13)}


def needed(how: Parallelism) -> Iterator[tuple[str, str]]:
    """Yield what of PyTorch divides a model, and the option that asks for it."""
    if how.strategy in SHARDED:
        yield FULLY_SHARD, f"--strategy {how.strategy}"
    if how.tensor > 1:
        yield PARALLELIZE, f"--tensor {how.tensor}"
    if how.stages > 1:
        yield PIPELINING, f"--stages {how.stages}"


def require(how: Parallelism, kind: str) -> None:
    """Raise RunError (`unsupported`) if this PyTorch cannot divide a model so on a kind of device."""
    for part, option in needed(how):
        least = (LEAST_ON_CPU if kind == "cpu" else LEAST)[part]
        if torch.__version__ < least:
            version = ".".join(map(str, least))
            raise RunError(
                "unsupported",
                f"{option} on {kind}: PyTorch {torch.__version__} cannot do it, from {version} on it can. Take "
                "--strategy ddp or zero1, or another image",
            )
