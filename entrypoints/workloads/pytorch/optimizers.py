"""The optimizer rules of the cards, by PyTorch's own optimizers."""

from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

from entrypoints.contract.session import OptimizerRule
from entrypoints.workloads.pytorch.layers import RMSNorm

LAYERS = {
    "normalisation": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm, RMSNorm),
    "embedding": (nn.Embedding,),
}
# Most numbers that LAMB updates at once: on a CPU, as many as stay in its caches from one operation to the next.
BUNDLE_LIMITS, BUNDLE_LIMIT = {"cpu": 1 << 20}, 1 << 25
MANY_STEPS = 1 << 24  # after which Adam's averages need no correction
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

    One kernel updates many tensors, as in PyTorch's own optimizers. Of distributed tensors, it updates this rank's
    shards; `shard_norms` then returns the norms of whole tensors, given those of the rank and their parameters.

    If it is fused, it skips by itself the steps in which a GradScaler finds gradients that are not finite, and no host
    waits for what the scaler has found.
    """

    shard_norms: Norms | None = None
    found_inf: torch.Tensor | None = None  # above 0 to skip the step; a GradScaler sets it, and deletes it

    def __init__(self, groups: list[dict[str, Any]], rule: OptimizerRule, fused: bool) -> None:
        super().__init__(groups, {"lr": rule.learning_rate})
        self.betas, self.epsilon = rule.settings["betas"], rule.settings["epsilon"]
        self.corrected, self.steps = rule.settings["bias_correction"], 0
        self.fused = fused and hasattr(torch, "_fused_adam_")
        self._step_supports_amp_scaling = self.fused  # torch.amp.GradScaler asks for it
        self.skipped: torch.Tensor | float = 0.0  # of the steps

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        self.steps += 1
        if self.found_inf is not None:
            place = next(each.device for group in self.param_groups for each in group["params"])
            self.found_inf = self.found_inf.to(place)  # which is the host for shards that are offloaded
            self.skipped = self.skipped + self.found_inf
        for group in self.param_groups:
            parameters = group["params"]
            # Bundle by bundle, since steps take memory; shards together, since each exchange of norms takes time.
            for some in [parameters] if self.shard_norms else bundles(parameters):
                self.update(some, group["lr"], group["weight_decay"])

    def update(self, parameters: Sequence[nn.Parameter], rate: float, decay: float) -> None:
        """Update some parameters."""
        moving = [parameter for parameter in parameters if parameter.grad is not None]
        steps = {
            id(parameter): step
            for bundle in bundles(moving)
            for parameter, step in zip(bundle, self.adam_steps(bundle, decay))
        }
        # Ranks exchange the norms of the same tensors, also of those without a gradient in a rank's shard.
        others = parameters if self.shard_norms else moving
        trust = dict(zip(map(id, others), self.trust(others, steps) if others else ()))
        if moving:
            of_moving = ([by_identity[id(parameter)] for parameter in moving] for by_identity in (steps, trust))
            torch._foreach_addcmul_([local(parameter) for parameter in moving], *of_moving, value=-rate)

    def trust(self, parameters: Sequence[nn.Parameter], steps: Mapping[int, torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return by how much each step is scaled: to its parameter's norm, not if either is 0, to 0 if skipped."""
        weights = [local(parameter) for parameter in parameters]
        changes = [
            steps[id(each)] if id(each) in steps else torch.zeros_like(weight)
            for each, weight in zip(parameters, weights)
        ]
        norms = self.shard_norms or _norms
        size, length = (torch.stack(list(norms(tensors, parameters))) for tensors in (weights, changes))
        trust = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
        return (trust if self.found_inf is None else trust * (1 - self.found_inf)).unbind()

    def adam_steps(self, parameters: Sequence[nn.Parameter], decay: float) -> Sequence[torch.Tensor]:
        """Return Adam's steps, with the decay of the weights."""
        gradients = [local(parameter.grad) for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients):
            if not self.state[parameter]:
                self.state[parameter] = {name: torch.zeros_like(gradient) for name in ("mean", "square")}
        means, squares = ([self.state[parameter][name] for parameter in parameters] for name in ("mean", "square"))
        steps = (self.fused_steps if self.fused else self.plain_steps)(gradients, means, squares)
        if decay:
            torch._foreach_add_(steps, [local(parameter) for parameter in parameters], alpha=decay)
        return steps

    def fused_steps(
        self, gradients: Sequence[torch.Tensor], means: Sequence[torch.Tensor], squares: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        """Update the averages and return Adam's steps, by PyTorch's kernel: of zeros, with a learning rate of -1."""
        steps = [torch.empty_like(gradient) for gradient in gradients]
        torch._foreach_zero_(steps)
        count = torch.full((), float(self.steps if self.corrected else MANY_STEPS), device=steps[0].device)
        if self.corrected and self.found_inf is not None:
            count -= self.skipped
        torch._fused_adam_(
            steps,
            gradients,
            means,
            squares,
            [],
            [count] * len(steps),
            lr=-1.0,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
            found_inf=self.found_inf,
        )
        return steps

    def plain_steps(
        self, gradients: Sequence[torch.Tensor], means: Sequence[torch.Tensor], squares: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        """Do the same by operations on many tensors."""
        first, second = self.betas
        _move_towards(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - second)
        roots = torch._foreach_sqrt(squares)
        if self.corrected:
            torch._foreach_div_(roots, math.sqrt(1 - second**self.steps))
        torch._foreach_add_(roots, self.epsilon)
        steps: Sequence[torch.Tensor] = torch._foreach_div(means, roots)
        if self.corrected:
            torch._foreach_div_(steps, 1 - first**self.steps)
        return steps


def bundles(parameters: Sequence[nn.Parameter]) -> Iterator[Sequence[nn.Parameter]]:
    """Yield parameters in order, as many together as an operation computes at once."""
    bundle: list[nn.Parameter] = []
    numbers = 0
    for parameter in parameters:
        numbers += local(parameter).numel()
        if bundle and numbers > BUNDLE_LIMITS.get(parameter.device.type, BUNDLE_LIMIT):
            yield bundle
            bundle, numbers = [], local(parameter).numel()
        bundle.append(parameter)
    if bundle:
        yield bundle


def _move_towards(tensors: Sequence[torch.Tensor], ends: Sequence[torch.Tensor], share: float) -> None:
    """Move tensors by a share of the way to others."""
    if hasattr(torch, "_foreach_lerp_"):  # from torch 2.0 on
        torch._foreach_lerp_(tensors, ends, share)
    else:
        torch._foreach_mul_(tensors, 1 - share)
        torch._foreach_add_(tensors, ends, alpha=share)


def local(tensor: Any) -> torch.Tensor:
    """Return this rank's shard of a distributed tensor, in the same memory; another tensor is returned itself."""
    shard: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard


def _norms(tensors: Sequence[torch.Tensor], _: Sequence[nn.Parameter]) -> Sequence[torch.Tensor]:
    norms: Sequence[torch.Tensor] = torch._foreach_norm(tensors)
    return norms


RULES: dict[str, Callable[[list[dict[str, Any]], OptimizerRule, bool], torch.optim.Optimizer]] = {
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adamw,
    "lamb": Lamb,
}


def parameter_groups(model: nn.Module, rule: OptimizerRule) -> list[dict[str, Any]]:
    """Return two groups of what is trained for a PyTorch optimizer: with the rule's weight decay, and without."""
    exempt_layers = tuple(kind for name in rule.no_weight_decay_on for kind in LAYERS.get(name, ()))
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    grouped: set[int] = set()  # a shared parameter is in the group of its first layer
    for layer in model.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            bias = "bias" in rule.no_weight_decay_on and name.startswith(BIAS)
            if id(parameter) not in grouped and parameter.requires_grad:
                (exempt if bias or isinstance(layer, exempt_layers) else decayed).append(parameter)
                grouped.add(id(parameter))
    return [
        {"params": decayed, "weight_decay": rule.weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]
