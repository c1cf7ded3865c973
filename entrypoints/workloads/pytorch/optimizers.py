"""The optimizer rules of the cards, by PyTorch's own optimizers."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

from entrypoints.session import OptimizerRule

LAYERS = {"normalisation": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm)}


def optimizer(model: nn.Module, rule: OptimizerRule) -> torch.optim.Optimizer:
    """The optimizer that a rule names, over all parameters of `model`."""
    return RULES[rule.name](parameter_groups(model, rule), rule)


def sgd(groups: list[dict[str, Any]], rule: OptimizerRule) -> torch.optim.Optimizer:
    """Stochastic gradient descent; momentum is added to the gradient before the learning rate applies."""
    settings = rule.settings
    return torch.optim.SGD(
        groups, lr=rule.learning_rate, momentum=settings["momentum"], nesterov=settings["nesterov"], foreach=True
    )


def rmsprop(groups: list[dict[str, Any]], rule: OptimizerRule) -> torch.optim.Optimizer:
    """RMSprop; epsilon is added after the root, momentum after the division."""
    settings = rule.settings
    return torch.optim.RMSprop(
        groups,
        lr=rule.learning_rate,
        alpha=settings["smoothing"],
        eps=settings["epsilon"],
        momentum=settings["momentum"],
        foreach=True,
    )


def adam(groups: list[dict[str, Any]], rule: OptimizerRule) -> torch.optim.Optimizer:
    """Adam with bias correction."""
    settings = rule.settings
    return torch.optim.Adam(
        groups, lr=rule.learning_rate, betas=tuple(settings["betas"]), eps=settings["epsilon"], foreach=True
    )


RULES: dict[str, Callable[[list[dict[str, Any]], OptimizerRule], torch.optim.Optimizer]] = {
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adam": adam,
}


def parameter_groups(model: nn.Module, rule: OptimizerRule) -> list[dict[str, Any]]:
    """Two parameter groups for a PyTorch optimizer: those with the rule's weight decay and those with none."""
    exempt_layers = tuple(kind for name in rule.no_weight_decay_on for kind in LAYERS[name])
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for layer in model.modules():
        group = exempt if isinstance(layer, exempt_layers) else decayed
        group.extend(layer.parameters(recurse=False))
    return [
        {"params": decayed, "weight_decay": rule.weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]
