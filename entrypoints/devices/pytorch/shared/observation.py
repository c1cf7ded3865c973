"""What a training step of a network shows: its gradients, its samples and its dropouts."""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import nn

from entrypoints.contract.session import FirstStep
from entrypoints.devices.pytorch.shared.tensors import as_tuple
from entrypoints.workloads.pytorch.transformer import SelfAttention

ONES = 100_000  # numbers to which a dropout is applied
TEXTS, POSITIONS = 48, 64  # as many weights of attention, if each position attends to those before it


def used_fraction(gradient: torch.Tensor | None, axes: Sequence[int]) -> float:
    """Return the smallest fraction of units, over `axes`, with a gradient that is not 0; NaN if one is not finite.

    Without axes the whole gradient is one unit.
    """
    if gradient is None:
        return 0.0
    sizes = gradient.detach().abs()
    sizes = sizes.flatten(2).amax(2) if sizes.dim() > 2 else sizes  # (outputs, inputs), or a vector
    largest = [sizes.amax(1 - axis) for axis in axes] or [sizes.max()[None]]  # not a number if any is
    if not all(each.isfinite().all() for each in largest):
        return math.nan
    return min(float((each > 0).float().mean()) for each in largest)


class StepObserver:
    """Counts, by hooks, the samples that pass through a network, and notes which dropouts are applied."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.samples = network, 0
        self.applied: set[str] = set()
        self.dropped: dict[str, float] = {}
        self.hooks = [network.register_forward_hook(self.count)]
        for name, layer, _ in dropouts(network):
            self.hooks.append(layer.register_forward_hook(functools.partial(self.note, name)))

    def count(self, _: nn.Module, __: Any, output: Any) -> None:
        """Add the samples of an output."""
        self.samples += len(as_tuple(output)[0])

    def note(self, name: str, *_: object) -> None:
        """Note that a dropout was applied."""
        self.applied.add(name)

    def stop(self) -> None:
        """Leave the network as it was."""
        for hook in self.hooks:
            hook.remove()

    def observed(self) -> FirstStep:
        """Return what was seen, with the fraction that each dropout drops at the first call of this."""
        if not self.dropped:
            dropped = dropped_fractions(self.network)
            self.dropped = {name: dropped[name] if name in self.applied else 0.0 for name in dropped}
        return FirstStep(self.samples, self.dropped)


def dropped_fractions(network: nn.Module) -> dict[str, float]:
    """Return by dropout the fraction that it drops of what it is applied to."""
    return {name: measure() for name, _, measure in dropouts(network)}


def dropouts(network: nn.Module) -> Iterator[tuple[str, nn.Module, Callable[[], float]]]:
    """Yield each dropout by name, the layer that applies it, and what measures the fraction that it drops.

    Attention may apply its own within one operation.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, SelfAttention) and layer.drops:
            yield f"{name}.dropout", layer, functools.partial(dropped_attention, layer)
        elif isinstance(layer, nn.Dropout) and not isinstance(owner(network, name), SelfAttention):
            yield name, layer, functools.partial(dropped_ones, layer, next(network.parameters()))


def owner(network: nn.Module, name: str) -> nn.Module:
    """Return the module that has the layer of this name."""
    return network.get_submodule(name.rpartition(".")[0])


@torch.no_grad()
def dropped_ones(dropout: nn.Dropout, like: torch.Tensor) -> float:
    """Return the fraction of ones, on the device of `like`, that a dropout drops."""
    ones = torch.ones(ONES, device=like.device, dtype=like.dtype)  # `like` may be one rank's shard
    return float((dropout(ones) == 0).float().mean())


@torch.no_grad()
def dropped_attention(attention: SelfAttention) -> float:
    """Return the fraction of the weights of attention that are dropped, over texts whose positions are all alike."""
    like = attention.project.weight
    alike = torch.zeros(TEXTS, 1, POSITIONS, POSITIONS, device=like.device, dtype=like.dtype)
    weights = attention.attend(alike, alike, alike + torch.eye(POSITIONS, device=alike.device, dtype=alike.dtype), None)
    attended = POSITIONS * (POSITIONS + 1) // 2 if attention.causal else POSITIONS**2
    return 1 - float((weights != 0).sum()) / (TEXTS * attended)
