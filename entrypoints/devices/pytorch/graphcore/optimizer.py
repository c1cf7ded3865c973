"""PopTorch's optimizers."""

from __future__ import annotations

from typing import Any

import poptorch
from torch import nn

from entrypoints.contract.session import OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.workloads.pytorch.optimizers import parameter_groups

LOSS_SCALING = 128.0  # in half precision, so that small gradients do not vanish; PopTorch undoes it


def optimizer(model: nn.Module, rule: OptimizerRule, half: bool) -> Any:
    """Return PopTorch's optimizer for a rule. Raises RunError (`unsupported`) for what it cannot do."""
    groups, settings = parameter_groups(model, rule), rule.settings
    chosen: dict[str, Any] = {"lr": rule.learning_rate, "loss_scaling": LOSS_SCALING if half else 1.0}
    if rule.gradient_norm is not None:
        chosen["max_grad_norm"] = rule.gradient_norm
    if rule.name == "sgd":
        momentum = {"momentum": settings["momentum"], "nesterov": settings["nesterov"]}
        return poptorch.optim.SGD(groups, use_combined_accum=False, **momentum, **chosen)
    if rule.name == "rmsprop":
        own = {"alpha": settings["smoothing"], "eps": settings["epsilon"], "momentum": settings["momentum"]}
        return poptorch.optim.RMSprop(groups, use_tf_variant=False, **own, **chosen)
    kinds = {"adam": poptorch.optim.Adam, "adamw": poptorch.optim.AdamW}
    if rule.name not in kinds:
        raise RunError("unsupported", f"{rule.name} on ipu: PopTorch's does not limit the norm of gradients")
    return kinds[rule.name](groups, betas=tuple(settings["betas"]), eps=settings["epsilon"], **chosen)
