"""The optimizer rules of the cards, by PyTorch's own optimizers."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import torch
from torch import nn

from entrypoints.contract.session import OptimizerRule

LAYERS = {
    "normalisation": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm),
    "embedding": (nn.Embedding,),
}
BIAS = "bias"  # prefix of the names of biases in every layer of PyTorch


def optimizer(model: nn.Module, rule: OptimizerRule, fused: bool = False) -> torch.optim.Optimizer:
    """Return the optimizer of a rule over all parameters of `model`; fused, if `fused` and PyTorch has it."""
    return RULES[rule.name](parameter_groups(model, rule), rule, fused)


def construct(kind: Any, groups: list[dict[str, Any]], fused: bool, **settings: Any) -> torch.optim.Optimizer:
    """Return a fused optimizer, or a multi-tensor one if this version of PyTorch does not have it fused."""
    has_fused = fused and "fused" in inspect.signature(kind).parameters
    optimizer: torch.optim.Optimizer = kind(groups, **{"fused" if has_fused else "foreach": True}, **settings)
    return optimizer


def sgd(groups: list[dict[str, Any]], rule: OptimizerRule, fused: bool) -> torch.optim.Optimizer:
    """Return stochastic gradient descent; momentum is added to the gradient before the learning rate applies."""
    settings = rule.settings
    chosen = {"momentum": settings["momentum"], "nesterov": settings["nesterov"]}
    return construct(torch.optim.SGD, groups, fused, lr=rule.learning_rate, **chosen)


def rmsprop(groups: list[dict[str, Any]], rule: OptimizerRule, fused: bool) -> torch.optim.Optimizer:
    """Return RMSprop; epsilon is added after the root, momentum after the division."""
    settings = rule.settings
    chosen = {"alpha": settings["smoothing"], "eps": settings["epsilon"], "momentum": settings["momentum"]}
    return construct(torch.optim.RMSprop, groups, fused, lr=rule.learning_rate, **chosen)


def adam(groups: list[dict[str, Any]], rule: OptimizerRule, fused: bool) -> torch.optim.Optimizer:
    """Return Adam with bias correction."""
    settings = rule.settings
    chosen = {"betas": tuple(settings["betas"]), "eps": settings["epsilon"]}
    return construct(torch.optim.Adam, groups, fused, lr=rule.learning_rate, **chosen)


def adamw(groups: list[dict[str, Any]], rule: OptimizerRule, fused: bool) -> torch.optim.Optimizer:
    """Return Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101)."""
    settings = rule.settings
    chosen = {"betas": tuple(settings["betas"]), "eps": settings["epsilon"]}
    return construct(torch.optim.AdamW, groups, fused, lr=rule.learning_rate, **chosen)


class Lamb(torch.optim.Optimizer):
    """LAMB: Adam with steps scaled to each tensor's norm (You et al., arXiv:1904.00962, algorithm 2)."""

    def __init__(self, groups: list[dict[str, Any]], rule: OptimizerRule, _: bool) -> None:
        super().__init__(groups, {"lr": rule.learning_rate})
        self.betas, self.epsilon = rule.settings["betas"], rule.settings["epsilon"]
        self.corrected, self.steps = rule.settings["bias_correction"], 0

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        self.steps += 1
        first, second = self.betas
        corrections = [1 - beta**self.steps if self.corrected else 1.0 for beta in self.betas]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter] or {
                    "mean": torch.zeros_like(parameter),
                    "square": torch.zeros_like(parameter),
                }
                self.state[parameter] = state
                state["mean"].lerp_(parameter.grad, 1 - first)
                state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                step = (state["mean"] / corrections[0]).div_(
                    (state["square"] / corrections[1]).sqrt_().add_(self.epsilon)
                )
                step.add_(parameter, alpha=group["weight_decay"])
                size, length = parameter.norm(), step.norm()
                trust = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
                parameter.sub_(step.mul_(trust), alpha=group["lr"])


RULES: dict[str, Callable[[list[dict[str, Any]], OptimizerRule, bool], torch.optim.Optimizer]] = {
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adamw,
    "lamb": Lamb,
}


def parameter_groups(model: nn.Module, rule: OptimizerRule) -> list[dict[str, Any]]:
    """Return two parameter groups for a PyTorch optimizer: with the rule's weight decay, and without."""
    exempt_layers = tuple(kind for name in rule.no_weight_decay_on for kind in LAYERS.get(name, ()))
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    grouped: set[int] = set()  # a shared parameter is in the group of its first layer
    for layer in model.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            bias = "bias" in rule.no_weight_decay_on and name.startswith(BIAS)
            if id(parameter) not in grouped:
                (exempt if bias or isinstance(layer, exempt_layers) else decayed).append(parameter)
                grouped.add(id(parameter))
    return [
        {"params": decayed, "weight_decay": rule.weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]
