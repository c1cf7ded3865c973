"""What a model keeps in memory: bytes of its numbers, states of its optimizer, and what ranks divide."""

from __future__ import annotations

from typing import Any, Mapping

SINGLE = 4  # bytes of a weight, a gradient or an optimizer state
# Bytes of an activation, and of a weight in a product. FP8 is made of those in bf16 at each product.
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
STATES_PER_PARAMETER = {
    "sgd": 1,
    "rmsprop": 2,
    "adam": 2,
    "adamw": 2,
    "lamb": 2,
}  # numbers that the optimizer keeps for each parameter
# What replicas divide, by strategy.
DIVIDED = {
    "fsdp": ("weights", "gradients", "states"),
    "zero1": ("states",),
    "zero2": ("gradients", "states"),
    "zero3": ("weights", "gradients", "states"),
}


def states_of(optimizer: Mapping[str, Any]) -> int:
    """Return the numbers that a card's `problem.optimizer` keeps for each parameter."""
    return 0 if optimizer.get("momentum") == 0 else STATES_PER_PARAMETER[optimizer["name"]]
