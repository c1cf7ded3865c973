"""Whether a batch can fit at all: what it needs at the least, against the memory that is left.

What cannot fit is refused before it is tried, since a host that runs out of memory takes others down with it.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.system.facts import MIB

STATES = {
    "sgd": 1,
    "rmsprop": 2,
    "adam": 2,
    "adamw": 2,
    "lamb": 2,
}  # numbers that an optimizer keeps for each parameter
SINGLE = 4  # bytes; weights, gradients and what the optimizer keeps
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}  # of an activation


class MemoryNeed(NamedTuple):
    """Memory in MiB: for the model whatever the batch, gradients too, and what the batch takes beyond that."""

    model: float
    batch: float

    @property
    def total(self) -> float:
        """Both."""
        return self.model + self.batch

    def __str__(self) -> str:
        """The whole, and both parts."""
        return f"{self.total:.0f} MiB ({self.model:.0f} for the model, {self.batch:.0f} for the batch)"


def estimate(card: Card, configuration: Configuration) -> MemoryNeed:
    """What a run needs at the least: no framework, no workspace of a kernel, no second batch on its way.

    In training weights, gradients, what the optimizer keeps, and the activations that backward wants; in inference the
    weights, and what goes in and comes out of the layer that has most of both; in sampling what a chain has at once.
    Backward frees activations while it makes gradients: where these do not accumulate, the larger of both counts.
    """
    training = configuration.task == "training"
    parameters = card.problem["parameters"] * SINGLE / MIB
    elements: int = card.memory[f"{configuration.task}_elements_per_unit"]
    streams = configuration.concurrency or 1
    batch = streams * configuration.micro_batch_size * elements * BYTES[configuration.precision] / MIB
    if not training:
        return MemoryNeed(parameters, batch)
    room = parameters if configuration.gradient_accumulation == 1 else 0.0  # that the gradients take later
    return MemoryNeed(parameters * (2 + _states(card.problem["optimizer"])), max(0.0, batch - room))


def _states(optimizer: Mapping[str, Any]) -> int:
    return 0 if optimizer.get("momentum") == 0 else STATES[optimizer["name"]]


def require_memory(card: Card, configuration: Configuration, free_mib: float | None) -> None:
    """Raise RunError (`out_of_memory`) where the batch cannot fit into what is left; None: nobody knows how much."""
    wanted = estimate(card, configuration)
    known = [mib for mib in (free_mib, configuration.memory_limit_mib) if mib is not None]
    if known and wanted.total > min(known):
        raise RunError("out_of_memory", f"not tried: at least {wanted} are needed, and {min(known):.0f} MiB are left")
