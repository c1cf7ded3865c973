"""How a model is compiled: the mode of torch.compile, and whether its steps are replayed as CUDA graphs."""

from __future__ import annotations

from typing import NamedTuple

from entrypoints.contract.choices import (
    AUTO_MODE,
    DEFAULT_MODE,
    INDUCTOR,
    NOT_COMPILED,
    REDUCE_OVERHEAD,
    WITH_GRAPHS,
    compiler_of,
)
from entrypoints.contract.statuses import UsageError

# Steps until a graph is replayed: Inductor runs the first call without graphs, and records the second.
GRAPH_WARMUP = 3


class Steps(NamedTuple):
    """What decides whether the steps of a run can be CUDA graphs."""

    framework: str
    device: str
    task: str
    accumulation: int
    ranks: int
    concurrency: int | None

    @property
    def obstacle(self) -> str | None:
        """Why they cannot, or None if they can.

        Micro-batches: the graph of one overwrites the gradients of the one before (github.com/pytorch/pytorch, issue
        96693). Ranks exchange gradients while they are computed. Graphs belong to the thread that recorded them.
        """
        obstacles = (
            (self.device != "cuda", f"CUDA graphs are for GPUs of NVIDIA and AMD, and not for {self.device}"),
            (self.task not in ("training", "inference"), f"{self.task} has no CUDA graphs"),
            (self.accumulation > 1, "micro-batches of one update cannot be CUDA graphs"),
            (self.ranks > 1, "steps of several ranks cannot be CUDA graphs"),
            (self.concurrency is not None, "requests of several threads cannot be CUDA graphs"),
        )
        return next((why for holds, why in obstacles if holds), None)


def asked_for(option: str | None) -> str | None:
    """Return the mode that an option asks for; None if it is not given, or asks for none."""
    return None if option == NOT_COMPILED else option


def mode(asked: str | bool | None, steps: Steps) -> str | None:
    """Return the mode in which a model is compiled, or None if it is not. True, as studies have it, asks for the best.

    Raises UsageError for a mode that cannot have any effect.
    """
    asked = AUTO_MODE if asked is True else asked or None
    if asked is None:
        return None
    compiler = "XLA" if steps.framework == "tensorflow" else compiler_of(steps.device)
    if compiler != INDUCTOR:
        if asked not in (AUTO_MODE, DEFAULT_MODE):
            raise UsageError(f"--compile {asked}: {compiler} has no modes", "take --compile")
        return DEFAULT_MODE
    if asked == AUTO_MODE:
        return DEFAULT_MODE if steps.obstacle else REDUCE_OVERHEAD
    if asked == REDUCE_OVERHEAD and steps.obstacle:
        raise UsageError(f"--compile {asked}: {steps.obstacle}", f"take --compile {DEFAULT_MODE}")
    return asked


def replayed(compiled: str | None, steps: Steps) -> bool:
    """Return whether steps in this mode are replayed as CUDA graphs, unless PyTorch finds a reason against it."""
    return compiled in WITH_GRAPHS and steps.framework == "pytorch" and steps.obstacle is None
