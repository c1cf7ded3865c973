"""The words that the command line, configurations and results share."""

from __future__ import annotations

from typing import TypedDict

SERVING = "serving"  # the task of an engine that batches requests by itself
TASKS = ("training", "inference", "sampling", "microbenchmark", SERVING)
FP8 = "fp8"  # linear layers of blocks in numbers of eight bits, and the rest as in bf16
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", FP8)
HALF = ("bf16", "fp16", FP8)
TENSORWISE, ROWWISE = "tensorwise", "rowwise"  # what has a scale of its own in FP8: each tensor, or each row
FP8_SCALINGS = (TENSORWISE, ROWWISE)
MIXED, PURE = "mixed", "pure"
PIPELINED = "pipelined"  # stages that compute different micro-batches at the same time
IPU_SCHEDULES = (PIPELINED, "sharded", "phased")  # how stages of a model take turns on devices
CPU_BINDINGS = ("auto", "none")
DEFAULT_MODE, REDUCE_OVERHEAD, MAX_AUTOTUNE = "default", "reduce-overhead", "max-autotune"  # of torch.compile
AUTO_MODE = "auto"  # the mode that fits device and workload
INDUCTOR, HPU_BACKEND = "TorchInductor", "hpu_backend"  # what torch.compile compiles with; Gaudi has its own
WITH_GRAPHS = (REDUCE_OVERHEAD, MAX_AUTOTUNE)  # in which Inductor records CUDA graphs, where there can be any
NOT_COMPILED = "none"  # also where the card says that a model is compiled
COMPILE_MODES = (DEFAULT_MODE, REDUCE_OVERHEAD, MAX_AUTOTUNE, AUTO_MODE, NOT_COMPILED)
DDP = "ddp"  # ranks with a copy of the model each, which average their gradients
FSDP = "fsdp"  # ranks with a shard of each weight, which are gathered block by block
ZERO = ("zero1", "zero2", "zero3")  # ranks that divide optimizer states, gradients too, and weights too
DATA_PARALLEL = (DDP, FSDP, *ZERO)  # how ranks with different samples train one model together
SHARDED = (FSDP, *ZERO[1:])  # those that divide gradients, which the host can keep
ALL = "all"  # replicas, as the number of shards
TENSOR = "tensor"  # ranks with a share of the matrices of each block
MODEL_PARALLEL = (PIPELINED, TENSOR)  # how ranks with different parts of one model train it together
STRATEGIES = (*IPU_SCHEDULES, *DATA_PARALLEL, TENSOR)


def compiler_of(device: str) -> str:
    """Return what torch.compile compiles with for a kind of device."""
    return HPU_BACKEND if device == "hpu" else INDUCTOR


def precision_kind(precision: str, device: str, task: str) -> str | None:
    """Return how much a run computes in half precision; None without half precision, and for a single operation.

    `mixed`: matrix products and convolutions, from weights that training keeps and updates in single precision, as do
    CPUs and GPUs. `pure`: everything, with weights in half precision, as IPUs and engines do; the loss and states of
    the optimizer may be in single precision.
    """
    if precision not in HALF or task == "microbenchmark":
        return None
    return PURE if device == "ipu" or task == SERVING else MIXED


class MeasuredPeak(TypedDict):
    """Operations per second that a device of this name showed, and the identifier of the result that says so."""

    flops: float
    device: str
    result: str
