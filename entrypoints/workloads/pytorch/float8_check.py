"""How far linear layers in FP8 are from what they should compute, and a network with them from one in fp32.

Each layer is given, on the host, the input and the gradient that it had on the device, and computes once more with
numbers that are rounded to FP8 in arithmetic of its own (emulation): only the order of sums and the rounding to bf16
differ. Layers that are not to be in FP8 are compared with their product in bf16.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import warnings
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch
from torch import nn

from entrypoints.contract.float8 import (
    GRADIENTS,
    INPUT_GRADIENTS,
    OF_LAYERS,
    OTHERS,
    OUTPUT,
    OUTPUTS,
    WEIGHT_GRADIENTS,
)
from entrypoints.contract.session import Batch
from entrypoints.workloads.pytorch.build import Objective, without_effect
from entrypoints.workloads.pytorch.float8 import Float8Linear, Formats, fits, plain_class

HEAD = "head"  # the part of a network that has no layers in FP8
ADAPTER = ("down", "up")  # what adapters call their layers, which have none either


class Grid(NamedTuple):
    """The numbers of a format: explicit bits of the significand, least exponent of a normal number, largest number."""

    bits: int
    least: int
    largest: float


# OCP 8-bit floating point specification, revision 1.0; of those without a negative zero, ROCm's documentation.
GRIDS = {
    "float8_e4m3fn": Grid(3, -6, 448.0),
    "float8_e5m2": Grid(2, -14, 57344.0),
    "float8_e4m3fnuz": Grid(3, -7, 240.0),
    "float8_e5m2fnuz": Grid(2, -15, 57344.0),
}


class Seen(NamedTuple):
    """What a layer was given, and what it made of that, in the same pass."""

    given: torch.Tensor
    made: Any


class Watch:
    """The inputs and outputs of linear layers in a pass forward, and their gradients on the way back, by name."""

    def __init__(self, layers: Mapping[str, nn.Linear]) -> None:
        self.forward: dict[str, Seen] = {}
        self.backward: dict[str, Seen] = {}
        self.hooks: list[Any] = []
        for name, layer in layers.items():
            self.hooks.append(layer.register_forward_hook(functools.partial(self.went, name)))
            self.hooks.append(layer.register_full_backward_hook(functools.partial(self.came_back, name)))

    def went(self, name: str, _: nn.Module, inputs: Sequence[torch.Tensor], output: torch.Tensor) -> None:
        """Keep an input and its output."""
        self.forward[name] = Seen(inputs[0].detach(), output.detach())

    def came_back(self, name: str, _: nn.Module, of_inputs: Sequence[Any], of_outputs: Sequence[Any]) -> None:
        """Keep the gradients of an output and of its input, which has one after the first layer."""
        self.backward[name] = Seen(of_outputs[0], of_inputs[0])

    def close(self) -> None:
        """Watch no longer."""
        for hook in self.hooks:
            hook.remove()


class Emulation(NamedTuple):
    """The formats and scales that layers are to have."""

    formats: Formats
    by_row: bool

    def product(self, a: torch.Tensor, b: torch.Tensor, of_gradient: bool = False) -> torch.Tensor:
        """Return the products in fp32 of each row of a (R, C), which may be a gradient, with each of b (S, C)."""
        grids = [GRIDS[str(dtype).rpartition(".")[2]] for dtype in self.formats]
        left, right = self.rounded(a, grids[1] if of_gradient else grids[0]), self.rounded(b, grids[0])
        return left @ right.t()

    def rounded(self, tensor: torch.Tensor, grid: Grid) -> torch.Tensor:
        """Return a matrix (R, C) in fp32 with the numbers that it has in a format, once it is scaled back."""
        peaks = tensor.abs().max(1, keepdim=True).values if self.by_row else tensor.abs().max()
        quotients = grid.largest / torch.where(peaks > 0, peaks, torch.ones_like(peaks)).double()
        scale = quotients.float()  # whose last bit decides ties
        return on_grid(tensor * scale, grid) / scale

    def output(self, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """Return what a layer makes of x (..., inputs) in fp32."""
        product = self.product(in_bf16(x).flatten(0, -2), in_bf16(layer.weight))
        return product.view(*x.shape[:-1], -1) + without_product(layer)(host(x))

    def gradients(self, layer: nn.Linear, x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of x (..., inputs) and of the weight in fp32, given that of the output."""
        given = host(x).requires_grad_()
        (beside,) = torch.autograd.grad(without_product(layer)(given), given, host(gradient))
        rows, of_rows = in_bf16(x).flatten(0, -2), in_bf16(gradient).flatten(0, -2)
        of_x = self.product(of_rows, in_bf16(layer.weight).t(), of_gradient=True).view(x.shape) + beside
        return of_x, self.product(of_rows.t(), rows.t(), of_gradient=True)


def on_grid(numbers: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return numbers rounded to the nearest of a format, halfway to the even one, and to its largest beyond that."""
    exponents = torch.frexp(numbers).exponent - 1  # of a significand from 1 to 2
    step = torch.ldexp(torch.ones_like(numbers), exponents.clamp(min=grid.least) - grid.bits)
    return ((numbers / step).round() * step).clamp(-grid.largest, grid.largest)


def host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the host in fp32."""
    return tensor.detach().to("cpu", torch.float32)


def in_bf16(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the host in fp32, rounded as autocast rounds it."""
    return host(tensor.detach().to(torch.bfloat16))


def plain(layer: nn.Linear) -> nn.Linear:
    """Return a copy of a layer on the host in fp32, as it was before it was converted."""
    copied = copy.deepcopy(layer)
    if isinstance(copied, Float8Linear):
        copied.__class__ = plain_class(copied)
    return copied.to("cpu", torch.float32)


def without_product(layer: nn.Linear) -> nn.Linear:
    """Return what a layer computes beside the product with its weight: its bias, and an adapter."""
    copied = plain(layer)
    nn.init.zeros_(copied.weight)
    return copied


def in_half_precision(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Return what a layer makes of x in bf16, in sums of fp32."""
    copied = plain(layer)
    copied.weight.data = in_bf16(copied.weight)
    with torch.no_grad():
        return copied(in_bf16(x))


def to_be_converted(name: str, layer: nn.Linear) -> bool:
    """Return whether a layer of a network is to be in FP8, by its name: all but those of the head and of adapters."""
    parts = name.split(".")
    return parts[0] != HEAD and parts[-1] not in ADAPTER and fits(layer)


def of_layers(model: Objective, batch: Batch, autocast: Callable[[], Any], emulation: Emulation) -> Mapping[str, float]:
    """Return the largest deviation of any layer, relative in the L2 norm, by quantity of the check.

    `autocast` returns the context in which the model computes. Model and batch are on the hardware.
    """
    layers = {name: each for name, each in model.network.named_modules() if isinstance(each, nn.Linear)}
    found: dict[str, list[float]] = {name: [] for name in OF_LAYERS}
    answered, trained = watched(model, layers, batch, autocast)
    for name, layer in layers.items():
        x, made = answered.forward[name]
        if not to_be_converted(name, layer):
            found[OTHERS].append(deviation(made, in_half_precision(layer, x)))
            continue
        found[OUTPUTS].append(deviation(made, emulation.output(layer, x)))
        gradient, of_input = trained.backward[name]
        of_x, of_weight = emulation.gradients(layer, trained.forward[name].given, gradient)
        if of_input is not None:  # of what comes before there may be nothing to train
            found[INPUT_GRADIENTS].append(deviation(of_input, of_x))
        if layer.weight.requires_grad:
            found[WEIGHT_GRADIENTS].append(deviation(layer.weight.grad, of_weight))
    return {name: max(values, default=0.0 if found[OUTPUTS] else math.inf) for name, values in found.items()}


def watched(
    model: Objective, layers: Mapping[str, nn.Linear], batch: Batch, autocast: Callable[[], Any]
) -> tuple[Watch, Watch]:
    """Return what was seen of layers in a pass of inference, and in one of training, which leaves gradients."""
    with contextlib.closing(Watch(layers)) as answered, torch.no_grad(), autocast():
        model.eval()(batch.inputs)
    with contextlib.closing(Watch(layers)) as trained, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook")  # of inputs that need no gradient
        model.train().zero_grad()
        with autocast():
            _, loss = model(batch.inputs, batch.targets)
        loss.backward()  # type: ignore[union-attr]
    return answered, trained


def of_network(sessions: Sequence[Any], batch: Batch) -> Mapping[str, float]:
    """Return the deviation of the output, and the largest of the gradient of any weight, by quantity of the check.

    They are those of the first session's network from the second one's, which computes in fp32 from the same weights.
    """
    output, expected = (torch.from_numpy(each.infer_request(batch).output) for each in sessions)
    for session in sessions:
        session.train(batch)
    network, single = (session.model.network for session in sessions)
    without = set(map(id, without_effect(network)))
    gradients = [
        deviation(weight.grad, host(other.grad))
        for weight, other in zip(network.parameters(), single.parameters())
        if weight.requires_grad and id(weight) not in without
    ]
    return {OUTPUT: deviation(output, host(expected)), GRADIENTS: max(gradients)}


def deviation(values: torch.Tensor | None, expected: torch.Tensor) -> float:
    """Return |values - expected| / |expected| in the L2 norm; infinite without finite values."""
    if values is None:
        return math.inf
    distance = float((host(values) - expected.detach()).norm() / expected.detach().norm())
    return distance if math.isfinite(distance) else math.inf
