"""The words that the command line, configurations and results share."""

from __future__ import annotations

TASKS = ("training", "inference", "sampling")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
STAGED = ("pipelined", "sharded", "phased")  # how stages of a model take turns on devices
CPU_BINDINGS = ("auto", "none")
DDP = "ddp"  # ranks with a copy of the model each, which average their gradients
FSDP = "fsdp"  # ranks with a shard of each weight, which are gathered block by block
ZERO = ("zero1", "zero2", "zero3")  # ranks that divide optimizer states, gradients too, and weights too
RANKED = (DDP, FSDP, *ZERO)  # how ranks train one model together
STRATEGIES = (*STAGED, *RANKED)
