"""A lower bound of the memory that a batch needs.

A batch that cannot fit is refused before it is tried, since a host that runs out of memory takes other jobs down too.
"""

from __future__ import annotations

from typing import NamedTuple

from entrypoints.contract.cards import Card, trained_parameters
from entrypoints.contract.choices import FP8, SERVING
from entrypoints.contract.statuses import RunError
from entrypoints.contract.storage import BYTES, DIVIDED, SINGLE, states_of
from entrypoints.planning.configuration import Configuration
from entrypoints.system.facts import MIB


class MemoryNeed(NamedTuple):
    """Memory in MiB: for the model with its gradients, and for the batch beyond that."""

    model: float
    batch: float

    @property
    def total(self) -> float:
        """Model and batch together."""
        return self.model + self.batch

    def __str__(self) -> str:
        """Return the total and both parts as text."""
        return f"{self.total:.0f} MiB ({self.model:.0f} for the model, {self.batch:.0f} for the batch)"


def estimate(card: Card, configuration: Configuration) -> MemoryNeed:
    """Return the least memory that a run needs, without the framework, kernel workspaces and prefetched batches.

    Training needs weights, gradients, optimizer states and the activations for backward; inference needs the weights
    and the largest sum of one layer's input and output; sampling needs what a chain holds at once. Backward frees
    activations while it makes gradients, so unless gradients accumulate, the larger of the two counts. Ranks may divide
    what a model needs; activations that are computed again count as nothing. A compiler fuses layers, and decides
    itself which activations it keeps and which it computes again: of a compiled model no activations count.
    """
    training = configuration.task == "training"
    parameters = card.problem["parameters"] * SINGLE / MIB
    if configuration.task == SERVING:  # an engine takes what is left for keys and values
        size = 1 if configuration.precision == FP8 else BYTES[configuration.precision]  # B; a few weights stay in bf16
        return MemoryNeed(parameters * size / SINGLE / configuration.tensor, 0.0)
    elements: int = card.memory[f"{configuration.task}_elements_per_unit"]
    streams = configuration.concurrency or 1
    kept_nowhere = configuration.compile or configuration.activation_checkpointing
    at_once = 0 if kept_nowhere else streams * configuration.micro_batch_size
    parts = configuration.stages * configuration.tensor if configuration.device != "ipu" else 1
    batch = at_once * elements * BYTES[configuration.precision] / MIB / parts
    if not training:  # whose weights may be kept in half precision
        return MemoryNeed(parameters * BYTES[configuration.precision] / SINGLE / parts, batch)
    trained = trained_parameters(card.problem) / card.problem["parameters"]
    # Gradients take the memory of activations as they are freed.
    room = parameters * trained / parts if configuration.gradient_accumulation == 1 else 0.0
    divided = DIVIDED.get(configuration.strategy or "", ())
    frozen = (1 - trained) * BYTES[configuration.precision] / SINGLE  # of weights that are only read
    counts = {
        "weights": trained + frozen,
        "gradients": trained,
        "states": trained * states_of(card.problem["optimizer"]),
    }
    shards = configuration.shards or configuration.replicas
    own = 0.0 if configuration.offload else 1 / shards  # of what is divided, on the device
    kept = sum(count * (own if part in divided else 1) for part, count in counts.items())
    return MemoryNeed(parameters * kept / parts, max(0.0, batch - room))


def require_memory(card: Card, configuration: Configuration, free_mib: float | None) -> None:
    """Raise RunError (`out_of_memory`) if the batch cannot fit into `free_mib` (None: unknown) or the memory limit."""
    need = estimate(card, configuration)
    limits = [mib for mib in (free_mib, configuration.memory_limit_mib) if mib is not None]
    if limits and need.total > min(limits):
        raise RunError("out_of_memory", f"not tried: at least {need} are needed, and {min(limits):.0f} MiB are left")
