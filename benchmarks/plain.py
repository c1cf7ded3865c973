"""The plain loop: a workload as one writes it down with torchvision, and nothing done for speed.

    python plain.py WORKLOAD TASK PRECISION BATCH SECONDS THREADS [compiled]

torchvision's network (image_compression: the network written out from its card), the card's loss and optimizer by
PyTorch's own classes with their defaults, one synthetic batch. It prints steps and seconds of the timed window as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "inside"))

import torch
from torch import nn
from written import NETWORKS

from entrypoints import cards
from entrypoints.data import synthetic
from entrypoints.session import OptimizerRule

WARMUP = 4  # steps


def loss_of(problem: dict[str, Any]) -> nn.Module:
    """The card's loss."""
    if problem["loss"]["name"] == "mean_squared_error":
        return nn.MSELoss()
    return nn.CrossEntropyLoss(label_smoothing=problem["loss"]["label_smoothing"])


def optimizer_of(model: nn.Module, rule: OptimizerRule) -> torch.optim.Optimizer:
    """The card's optimizer; parameters of normalisation apart where they have no decay."""
    exempt = [p for layer in model.modules() if isinstance(layer, nn.BatchNorm2d) for p in layer.parameters()]
    others = [p for p in model.parameters() if not any(p is one for one in exempt)]
    decay = 0.0 if "normalisation" in rule.no_weight_decay_on else rule.weight_decay
    groups = [{"params": others, "weight_decay": rule.weight_decay}, {"params": exempt, "weight_decay": decay}]
    settings = rule.settings
    if rule.name == "sgd":
        return torch.optim.SGD(
            groups, lr=rule.learning_rate, momentum=settings["momentum"], nesterov=settings["nesterov"]
        )
    if rule.name == "rmsprop":
        return torch.optim.RMSprop(
            groups,
            lr=rule.learning_rate,
            alpha=settings["smoothing"],
            eps=settings["epsilon"],
            momentum=settings["momentum"],
        )
    return torch.optim.Adam(groups, lr=rule.learning_rate, betas=tuple(settings["betas"]), eps=settings["epsilon"])


def prepare(
    workload: str, task: str, precision: str, batch_size: int, made: Callable[[nn.Module], Any]
) -> Callable[[], Any]:
    """A step of the task; of training it returns the loss."""
    problem = dict(cards.load()[workload].problem)
    torch.manual_seed(0)
    network = NETWORKS[workload]()
    model = made(network)
    inputs, targets = map(torch.from_numpy, synthetic.images(problem, batch_size, seed=0))
    autocast: Callable[[], Any] = contextlib.nullcontext
    if precision == "bf16":
        autocast = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    if task == "inference":
        model.eval()

        def infer() -> None:
            with torch.no_grad(), autocast():
                model(inputs)

        return infer
    optimizer = optimizer_of(network, OptimizerRule.from_problem(problem["optimizer"], batch_size))
    return training(model.train(), loss_of(problem), optimizer, inputs, targets, autocast)


def training(
    model: nn.Module,
    loss_function: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    autocast: Callable[[], Any] = contextlib.nullcontext,
) -> Callable[[], float]:
    """A step of training, which returns the loss."""

    def train() -> float:
        optimizer.zero_grad()
        with autocast():
            loss = loss_function(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return train


def main() -> None:
    """Time steps for so many seconds after the warm-up."""
    workload, task, precision, batch_size, seconds, threads, *compiled = sys.argv[1:]
    torch.set_num_threads(int(threads))
    step = prepare(workload, task, precision, int(batch_size), torch.compile if compiled else lambda model: model)
    for _ in range(WARMUP):
        step()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < float(seconds):
        step()
        steps += 1
    sys.stdout.write(json.dumps({"steps": steps, "seconds": time.perf_counter() - began}) + "\n")


if __name__ == "__main__":
    main()
