"""The words that the command line, configurations and results share."""

from __future__ import annotations

TASKS = ("training", "inference", "sampling", "microbenchmark")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
STAGED = ("pipelined", "sharded", "phased")  # how stages of a model take turns on devices
DDP = "ddp"  # ranks with a copy of the model each, which average their gradients
STRATEGIES = (*STAGED, DDP)
