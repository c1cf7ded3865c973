"""A rank that trains alone, as a member of a group of one.

one_rank.py STRATEGY WORKLOAD DEVICE PRECISION BATCH STEPS WARMUP

STRATEGY is none for no group at all. It prints the seconds of its timed steps, and its peak of memory in MiB, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from entrypoints.contract import cards
from entrypoints.contract.group import Place
from entrypoints.contract.session import BatchPartition, rule_of
from entrypoints.devices.pytorch.strategies import group
from entrypoints.system import host
from entrypoints.workloads.pytorch import build, loader

NONE = "none"


def main(strategy: str, workload: str, kind: str, precision: str, batch_size: int, steps: int, warmup: int) -> None:
    """Train by a strategy. Each step ends when its loss is on the host."""
    device = importlib.import_module(f"entrypoints.devices.pytorch.{kind}")
    device.prepare(precision, host.usable_cores())
    joined = {} if strategy == NONE else {"group": group.join(Place(0, 1, 0, 1), kind, strategy, False, lambda _: None)}
    card = cards.load()[workload]
    rule, model = rule_of(card.problem, batch_size), build.model(card, 0)
    session = device.open_session(model, rule, precision, None, BatchPartition(batch_size), **joined)
    batch = session.to_device(loader.synthetic_batch(card, batch_size, 0))
    seconds, last = [], time.perf_counter()
    for _ in range(steps):
        loss = session.train(batch).loss
        assert loss is not None
        loss()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    print(json.dumps({"seconds": seconds[warmup:], "memory": session.usage().peak_allocated}))
    session.close()
    for each in joined.values():
        each.close()


if __name__ == "__main__":
    _strategy, _workload, _kind, _precision, *_numbers = sys.argv[1:]
    main(_strategy, _workload, _kind, _precision, *map(int, _numbers))
