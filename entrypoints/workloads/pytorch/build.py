"""A card's model together with its loss, and the groups an optimizer treats differently."""

from __future__ import annotations

import importlib
from typing import Any, Mapping

import numpy as np
import PIL
import torch
from torch import nn

from entrypoints.cards import Card
from entrypoints.data import formula
from entrypoints.messages import Software
from entrypoints.session import OptimizerRule
from entrypoints.statuses import RunError

LAYERS = {"normalisation": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm)}


class Objective(nn.Module):
    """A network and its loss as one module, since some compilers want the whole step in one graph."""

    def __init__(self, network: nn.Module, loss: Mapping[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.loss = LOSSES[loss["name"]](loss)

    def forward(
        self, inputs: torch.Tensor, targets: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Output, and the mean loss over the batch where targets are given."""
        output = self.network(inputs)
        return output, None if targets is None else self.loss(output, targets)


def cross_entropy(loss: Mapping[str, Any]) -> nn.Module:
    """Cross entropy over (N, classes) logits and (N,) labels, smoothed as the card says."""
    return nn.CrossEntropyLoss(label_smoothing=loss["label_smoothing"])


LOSSES = {"cross_entropy": cross_entropy}


def software() -> Software:
    """Versions of PyTorch and of what input data pass through."""
    return Software(torch.__version__, {"numpy": np.__version__, "pillow": PIL.__version__})


def model(card: Card, seed: int) -> Objective:
    """The card's model, initialised from `seed`. Raises RunError where its size is not the card's."""
    torch.manual_seed(seed)
    family = importlib.import_module(f"entrypoints.workloads.pytorch.{card.family}")
    built = Objective(family.network(card.problem["model"]), card.problem["loss"])
    count = sum(parameter.numel() for parameter in built.parameters())
    if count != card.problem["parameters"]:
        expected = card.problem["parameters"]
        raise RunError("crashed", f"{card.name} was built with {count} parameters, its card says {expected}")
    return built


def weights(model: Objective) -> dict[str, np.ndarray]:
    """Views of the network's parameters by name; they change with the next step."""
    return {name: weight.detach().numpy() for name, weight in model.network.named_parameters()}


def load_formula(model: Objective) -> None:
    """Set weights and buffers to what `data.formula` makes of their names."""
    with torch.no_grad():
        for name, value in model.network.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.from_numpy(formula.weight(name, value.shape)))


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
