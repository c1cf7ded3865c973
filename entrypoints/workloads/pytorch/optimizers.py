"""The optimizer rules of the cards, by PyTorch's own optimizers."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence

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


Norms = Callable[[Sequence[torch.Tensor], Sequence[nn.Parameter]], Sequence[torch.Tensor]]


class Lamb(torch.optim.Optimizer):
    """LAMB: Adam with steps scaled to each tensor's norm (You et al., arXiv:1904.00962, algorithm 2).

    Of distributed tensors, it updates this rank's shards; `shard_norms` then returns the norms of whole tensors, given
    those of the rank and their parameters.
    """

    shard_norms: Norms | None = None

    def __init__(self, groups: list[dict[str, Any]], rule: OptimizerRule, _: bool) -> None:
        super().__init__(groups, {"lr": rule.learning_rate})
        self.betas, self.epsilon = rule.settings["betas"], rule.settings["epsilon"]
        self.corrected, self.steps = rule.settings["bias_correction"], 0

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        self.steps += 1
        for group in self.param_groups:
            parameters = group["params"]
            # One by one, since steps take memory; shards together, since each exchange of norms takes time.
            for some in [parameters] if self.shard_norms else [[parameter] for parameter in parameters]:
                self.update(some, group["lr"], group["weight_decay"])

    def update(self, parameters: Sequence[nn.Parameter], rate: float, decay: float) -> None:
        """Update some parameters."""
        if not parameters:
            return
        steps = [self.adam_step(parameter).add_(local(parameter), alpha=decay) for parameter in parameters]
        norms = self.shard_norms or _norms
        sizes, lengths = (norms(tensors, parameters) for tensors in ([local(each) for each in parameters], steps))
        for parameter, step, size, length in zip(parameters, steps, sizes, lengths):
            trust = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
            if parameter.grad is not None:
                local(parameter).sub_(step.mul_(trust), alpha=rate)

    def adam_step(self, parameter: nn.Parameter) -> torch.Tensor:
        """Return the step of Adam, and 0 without a gradient."""
        if parameter.grad is None:
            return torch.zeros_like(local(parameter))
        gradient, (first, second) = local(parameter.grad), self.betas
        corrections = [1 - beta**self.steps if self.corrected else 1.0 for beta in self.betas]
        state = self.state[parameter] or {"mean": torch.zeros_like(gradient), "square": torch.zeros_like(gradient)}
        self.state[parameter] = state
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        return (state["mean"] / corrections[0]).div_((state["square"] / corrections[1]).sqrt_().add_(self.epsilon))


def local(tensor: Any) -> torch.Tensor:
    """Return this rank's shard of a distributed tensor, in the same memory; another tensor is returned itself."""
    shard: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard


def _norms(tensors: Sequence[torch.Tensor], _: Sequence[nn.Parameter]) -> Sequence[torch.Tensor]:
    return [tensor.norm() for tensor in tensors]


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
