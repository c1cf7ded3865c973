"""Grouped convolutions of a model that only answers, with fewer groups: the same outputs, from larger products.

A group of ResNeXt-101 has 4 to 32 channels, and a GPU computes products of so few no faster than of more. Several
groups are one with zeros between them: that has more operations, and may take less time. So each shape of a layer is
timed with the first batch, and keeps its own groups where they are faster.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Iterator, Mapping, Tuple

import torch
from torch import nn

from entrypoints.devices.pytorch.shared.inference.fusing import Timing

WIDTHS = (16, 32, 64)  # channels of a group that are tried
SAMPLES = 128  # of the batch, at most, that are timed
Shape = Tuple[Any, ...]  # channels in and out, groups, size and stride of a layer


def shape_of(layer: nn.Conv2d) -> Shape:
    """Return what layers have in common that take the same time."""
    return layer.in_channels, layer.out_channels, layer.groups, layer.kernel_size, layer.stride


def grouped(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Conv2d]]:
    """Yield convolutions in groups of several channels, each with its owner and its name there."""
    for owner in list(model.modules()):
        for name, layer in list(owner.named_children()):
            if isinstance(layer, nn.Conv2d) and 1 < layer.groups < layer.in_channels:
                yield owner, name, layer


def fewer(layer: nn.Conv2d) -> list[int]:
    """Return the numbers of groups to try in place of a layer's own."""
    own = layer.in_channels // layer.groups
    wider = [width for width in WIDTHS if width > own and width % own == 0]
    return [layer.in_channels // width for width in wider if layer.groups % (width // own) == 0]


def merged(layer: nn.Conv2d, groups: int) -> nn.Conv2d:
    """Return a layer with the same outputs in fewer groups."""
    together, own = layer.groups // groups, layer.in_channels // layer.groups
    parts = layer.weight.detach().unflatten(0, (groups, together, -1))  # (groups, together, channels out, own, H, W)
    weight = parts.new_zeros(*parts.shape[:3], together * own, *layer.kernel_size)
    for place in range(together):
        weight[:, place, :, place * own : (place + 1) * own] = parts[:, place]
    made = copy.copy(layer)
    made._parameters = dict(layer._parameters)
    made.groups = groups
    last = layer.weight.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if last else torch.contiguous_format
    made.weight = nn.Parameter(weight.flatten(0, 2).contiguous(memory_format=memory_format), requires_grad=False)
    return made


def fastest_groups(model: nn.Module, call: Callable[[], Any], seconds: Timing) -> dict[Shape, int]:
    """Return the number of groups that takes the least time, for each shape of layer. `call` computes the model."""
    seen: dict[Shape, tuple[nn.Conv2d, torch.Tensor]] = {}

    def look(layer: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        seen.setdefault(shape_of(layer), (layer, inputs[0][:SAMPLES].clone()))

    hooks = [layer.register_forward_pre_hook(look) for _, _, layer in grouped(model) if fewer(layer)]
    if hooks:
        call()
    for hook in hooks:
        hook.remove()
    return {shape: _fastest(*each, seconds) for shape, each in seen.items()}


def _fastest(layer: nn.Conv2d, x: torch.Tensor, seconds: Timing) -> int:
    """Return the number of groups with which a layer takes the least time for an input."""
    tried = {layer.groups: layer, **{groups: merged(layer, groups) for groups in fewer(layer)}}
    times = {groups: seconds(lambda one=each: one(x)) for groups, each in tried.items()}  # type: ignore[misc]
    return min(times, key=lambda groups: times[groups])


def merge(model: nn.Module, choices: Mapping[Shape, int]) -> None:
    """Give the layers of a model that only answers the chosen numbers of groups."""
    for owner, name, layer in grouped(model):
        groups = choices.get(shape_of(layer), layer.groups)
        if groups != layer.groups:
            setattr(owner, name, merged(layer, groups))


def described(choices: Mapping[Shape, int]) -> str:
    """Return what a result says of the choices; nothing if all layers keep their own groups."""
    changed = {shape: groups for shape, groups in choices.items() if groups != shape[2]}
    each = sorted({f"{shape[2]} of {shape[0]} channels as {groups}" for shape, groups in changed.items()})
    return f"groups computed together: {', '.join(each)}" if each else ""
