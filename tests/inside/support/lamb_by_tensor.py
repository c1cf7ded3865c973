"""LAMB by its rule, tensor by tensor: what the optimizer that takes many together is compared with."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from entrypoints.contract.session import OptimizerRule


class LambByTensor:
    """The rule of LAMB (You et al., arXiv:1904.00962, algorithm 2) over groups of parameters."""

    def __init__(self, groups: Sequence[Mapping[str, Any]], rule: OptimizerRule) -> None:
        self.groups, self.rule, self.steps = groups, rule, 0
        self.state: dict[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.steps += 1
        (first, second), settings = self.rule.settings["betas"], self.rule.settings
        due = [1 - beta**self.steps if settings["bias_correction"] else 1.0 for beta in (first, second)]
        for group in self.groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                mean, square = self.state.setdefault(weight, (torch.zeros_like(weight), torch.zeros_like(weight)))
                mean.lerp_(weight.grad, 1 - first)
                square.mul_(second).addcmul_(weight.grad, weight.grad, value=1 - second)
                step = (mean / due[0]).div_((square / due[1]).sqrt_().add_(settings["epsilon"]))
                step.add_(weight, alpha=group["weight_decay"])
                size, length = weight.norm(), step.norm()
                trust = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
                weight.sub_(step.mul_(trust), alpha=group["lr"])
