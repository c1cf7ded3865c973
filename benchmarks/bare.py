"""The bare loop: the PyTorch code to train or apply the same model on a CPU, and nothing else.

    python3 bare.py CONFIGURATION     inside an image; CONFIGURATION is the JSON object that `--describe --json` prints

Model, loss, parameter groups and batch are the image's own, so that only the loop differs. It prints the seconds of
each timed step, from the end of the previous one to its own end, as a JSON array.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, "/sifmark")
sys.path.append("/sifmark-site")

import torch

from entrypoints.contract import cards
from entrypoints.contract.session import OptimizerRule
from entrypoints.workloads.pytorch import build, loader, optimizers


def training(
    model: torch.nn.Module, inputs: Any, targets: Any, rule: OptimizerRule, autocast: Any
) -> Callable[[], None]:
    """Return a training step: forward, backward, update."""
    model.train()
    optimizer = optimizers.optimizer(model, rule)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            _, loss = model(inputs, targets)
        loss.backward()
        optimizer.step()

    return step


def inference(
    model: torch.nn.Module, inputs: Any, _targets: Any, _rule: OptimizerRule, autocast: Any
) -> Callable[[], None]:
    """Return an inference step: forward in evaluation mode, normalisations folded into convolutions as in ours."""
    model = build.fold_batch_norms(model).to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.no_grad(), autocast():
            model(inputs)

    return step


def prepare(configuration: dict[str, Any]) -> Callable[[], None]:
    """Return the step of a configuration, over one synthetic batch in memory."""
    card = cards.load()[configuration["workload"]]
    size, seed = configuration["batch_size"], configuration["seed"]
    torch.set_num_threads(configuration["threads"])
    model = build.model(card, seed).to(memory_format=torch.channels_last)
    batch = loader.synthetic_batch(card, size, seed)
    inputs = batch.inputs.contiguous(memory_format=torch.channels_last)
    rule = OptimizerRule.from_problem(card.problem["optimizer"], size)
    bf16 = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    autocast = {"fp32": contextlib.nullcontext, "bf16": bf16}[configuration["precision"]]
    kind = {"training": training, "inference": inference}[configuration["task"]]
    return kind(model, inputs, batch.targets, rule, autocast)


def timed(step: Callable[[], None], warmup: int, steps: int) -> list[float]:
    """Return the seconds of the steps after the warm-up; `steps` counts both."""
    for _ in range(warmup):
        step()
    seconds = []
    last = time.perf_counter()
    for _ in range(steps - warmup):
        step()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    return seconds


if __name__ == "__main__":
    configuration = json.loads(sys.argv[1])
    seconds = timed(prepare(configuration), configuration["warmup_steps"], configuration["steps"])
    print(json.dumps(seconds))
