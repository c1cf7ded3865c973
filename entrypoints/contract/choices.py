"""The words that the command line, configurations and results share."""

from __future__ import annotations

from typing import TypedDict

TASKS = ("training", "inference", "sampling", "microbenchmark")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
PIPELINED = "pipelined"  # stages that compute different micro-batches at the same time
STAGED = (PIPELINED, "sharded", "phased")  # how stages of a model take turns on devices
CPU_BINDINGS = ("auto", "none")
DDP = "ddp"  # ranks with a copy of the model each, which average their gradients
FSDP = "fsdp"  # ranks with a shard of each weight, which are gathered block by block
ZERO = ("zero1", "zero2", "zero3")  # ranks that divide optimizer states, gradients too, and weights too
RANKED = (DDP, FSDP, *ZERO)  # how ranks with different samples train one model together
OFFLOADED = (FSDP, *ZERO[1:])  # those that can keep in host memory what ranks divide
TENSOR = "tensor"  # ranks with a share of the matrices of each block
PARTED = (PIPELINED, TENSOR)  # how ranks with different parts of one model train it together
STRATEGIES = (*STAGED, *RANKED, TENSOR)


class MeasuredPeak(TypedDict):
    """Operations per second that a device of this name showed, and the identifier of the result that says so."""

    flops: float
    device: str
    result: str
