"""What micro-benchmarks need and cannot do, and how large their buffers become."""

from __future__ import annotations

from typing import Any, Mapping

from entrypoints.contract.cards import Card
from entrypoints.contract.points import COLLECTIVES, HOST_DEVICE, MICROBENCHMARK, operation_of
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options

OF_SMOKE = 2  # smallest sizes, of a smoke run


def require(options: Options, card: Card, device: str) -> None:
    """Raise UsageError for what a micro-benchmark cannot do, and for its option with another task."""
    if options.task != MICROBENCHMARK:
        if options.largest_size is not None:
            raise UsageError(f"--largest-size is for micro-benchmarks, and {options.task} is none", "leave it out")
        return
    given = {
        "--compile": options.compile,
        "--batch-size": options.batch_size,
        "--batch-sizes": options.batch_sizes,
        "--micro-batch-size": options.micro_batch_size,
        "--find-max-batch": options.find_max_batch,
        "--epochs": options.epochs,
        "--samples-per-epoch": options.samples_per_epoch,
        "--data": options.data != "synthetic",
    }
    for name, value in given.items():
        if value:
            raise UsageError(f"{name}: {card.name} has buffers of its own sizes, no data and no model", "leave it out")
    _require_device(options, card, device)
    _require_precision(options, card)
    least = card.problem["input"]["sizes"][0]
    if options.largest_size is not None and options.largest_size < least:
        raise UsageError(
            f"--largest-size {options.largest_size}: {card.name} begins with {least}", f"give {least} or more"
        )


def _require_device(options: Options, card: Card, device: str) -> None:
    operation = operation_of(card.problem)
    if device == "ipu":
        raise UsageError(f"{card.name} is for GPUs and CPUs: PopTorch compiles whole models", "take another image")
    if operation == HOST_DEVICE and device == "cpu":
        raise UsageError(f"{card.name}: on a CPU the host is the device, and nothing is copied", "take memory_copy")
    if operation in COLLECTIVES and options.replicas == 1:
        raise UsageError(f"{card.name} is between ranks", "add --replicas 2 or more")
    if operation not in COLLECTIVES and options.replicas > 1:
        raise UsageError(f"--replicas {options.replicas}: {card.name} is of one device", "leave it out")


def _require_precision(options: Options, card: Card) -> None:
    elements = card.problem["input"]["elements"]
    if options.precision not in (None, *elements):
        cause = f"--precision {options.precision}: {card.name} has no such elements"
        raise UsageError(cause, f"give one of {', '.join(elements)}")


def largest_size(options: Options, card: Card, defaults: Mapping[str, Any]) -> int | None:
    """Return the largest size to measure; None if all are, or if the task has none."""
    if options.task != MICROBENCHMARK:
        return None
    sizes = card.problem["input"]["sizes"]
    usual: int | None = sizes[OF_SMOKE - 1] if options.smoke else defaults.get("largest_size")
    return options.largest_size or usual
