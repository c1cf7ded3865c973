"""The loop of a rank that one would write by hand: DistributedDataParallel with its defaults, bound to its processors.

torchrun --nproc_per_node 2 bare_ranks.py WORKLOAD BATCH STEPS WARMUP

The first rank prints the seconds of its timed steps as JSON. Model, loss, optimizer and batch are those of the
workload.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from entrypoints.contract import cards
from entrypoints.contract.session import OptimizerRule, rule_of
from entrypoints.system import placement
from entrypoints.workloads.pytorch import build, loader, optimizers


def main(workload: str, batch_size: int, steps: int, warmup: int) -> None:
    """Train together with the other ranks."""
    local, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    own = placement.share_of(os.sched_getaffinity(0), local, world)
    placement.bind(own)
    torch.set_num_threads(len(own))
    dist.init_process_group("gloo")
    card, share = cards.load()[workload], batch_size // world
    rule = rule_of(card.problem, batch_size)
    assert isinstance(rule, OptimizerRule)
    model = build.model(card, 0).to(memory_format=torch.channels_last)
    batch = loader.slice_of(loader.synthetic_batch(card, batch_size, 0), local * share, share)
    trained, optimizer = DistributedDataParallel(model), optimizers.optimizer(model, rule, False)
    seconds = []
    for step in range(steps):
        if step in (0, warmup):
            dist.barrier()
            last = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        _, loss = trained(batch.inputs, batch.targets)
        loss.backward()
        if rule.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), rule.gradient_norm)
        optimizer.step()
        loss.item()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    if local == 0:
        print(json.dumps(seconds[warmup:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
