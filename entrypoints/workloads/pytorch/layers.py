"""Layers that several networks share, and the loss over a large vocabulary."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import torch
from torch import nn
from torch.nn import functional

ACTIVATIONS = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "hard_swish": nn.Hardswish,
    "gelu": nn.GELU,
    "gelu_tanh": functools.partial(nn.GELU, approximate="tanh"),
}
GATES = {"sigmoid": nn.Sigmoid, "hard_sigmoid": nn.Hardsigmoid}


def convolution(
    channels_in: int, channels_out: int, size: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Return a padded `size` x `size` convolution, He initialised by its outputs."""
    layer = nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, groups=groups, bias=bias)
    nn.init.normal_(layer.weight, std=math.sqrt(2 / (size * size * channels_out)))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def normalisation(channels: int, model: Mapping[str, Any]) -> nn.BatchNorm2d:
    """Return a batch normalisation with the card's epsilon and momentum; scale 1 and shift 0 at the start."""
    rule = model["normalisation"]
    return nn.BatchNorm2d(channels, eps=rule["epsilon"], momentum=rule["momentum"])


def rectified(
    layer: Any, normalisation: nn.Module, x: torch.Tensor, shortcut: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the ReLU of a normalised convolution, or of its sum with a shortcut.

    A device may have put a layer in its place for inference that does all of that.
    """
    at_once = getattr(layer, "rectified", None)
    if at_once is not None:
        return at_once(x, shortcut)  # type: ignore[no-any-return]
    y = normalisation(layer(x))
    return torch.relu_(y if shortcut is None else y + shortcut)


def unit(
    channels_in: int,
    channels_out: int,
    size: int,
    model: Mapping[str, Any],
    activation: str | None,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    """Return convolution, normalisation and, if there is one, activation."""
    layers = [convolution(channels_in, channels_out, size, stride, groups), normalisation(channels_out, model)]
    return nn.Sequential(*layers, *([ACTIVATIONS[activation](inplace=True)] if activation else []))


class SqueezeExcitation(nn.Module):
    """A factor for each channel, computed from the means of all channels (Hu et al., arXiv:1709.01507)."""

    def __init__(self, channels: int, squeezed: int, activation: str, gate: str) -> None:
        super().__init__()
        self.squeeze = convolution(channels, squeezed, 1, bias=True)
        self.activation = ACTIVATIONS[activation](inplace=True)
        self.excite = convolution(squeezed, channels, 1, bias=True)
        self.gate = GATES[gate]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) -> the same shape."""
        means = x.mean(dim=(2, 3), keepdim=True)  # (N, channels, 1, 1)
        return x * self.gate(self.excite(self.activation(self.squeeze(means))))


class StochasticDepth(nn.Module):
    """Drops all of a sample with probability `p` while training (Huang et al., arXiv:1603.09382)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> the same shape; what is kept is scaled so that the mean stays."""
        if not self.training or self.p == 0:
            return x
        kept = torch.empty(len(x), 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * kept.div_(1 - self.p)


class InvertedResidual(nn.Module):
    """1x1 up to `expanded` channels, a depthwise convolution, a gate for each channel, 1x1 down, plus the shortcut.

    Sandler et al., arXiv:1801.04381; with a gate Tan et al., arXiv:1807.11626.
    """

    def __init__(
        self,
        channels_in: int,
        expanded: int,
        channels_out: int,
        kernel: int,
        stride: int,
        gate: nn.Module | None,
        activation: str,
        model: Mapping[str, Any],
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.expand = unit(channels_in, expanded, 1, model, activation) if expanded != channels_in else nn.Identity()
        self.depthwise = unit(expanded, expanded, kernel, model, activation, stride, groups=expanded)
        self.gate = gate or nn.Identity()
        self.project = unit(expanded, channels_out, 1, model, None)
        self.drop = StochasticDepth(drop)
        self.shortcut = stride == 1 and channels_in == channels_out
        self.shift_is_lost = False  # whether what follows takes the shift of the last normalisation away again

    def without_effect(self) -> Iterator[nn.Parameter]:
        """Yield the last shift if it is lost. Then it has a gradient only where stochastic depth drops some samples."""
        if self.shift_is_lost:
            yield self.project[1].bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels_in, H, W) -> (N, channels_out, H / stride, W / stride)."""
        y = self.project(self.gate(self.depthwise(self.expand(x))))
        return x + self.drop(y) if self.shortcut else y


def mark_lost_shifts(blocks: Sequence[InvertedResidual]) -> None:
    """Mark the blocks whose last shift is lost, of all blocks in order; after them comes a unit of size 1.

    Such a unit has no padding, so that its normalisation takes away what moves a channel at all positions alike.
    """
    lost = True
    for block in reversed(blocks):
        block.shift_is_lost = lost
        lost = not isinstance(block.expand, nn.Identity) and (lost or not block.shortcut)


class SpatialMean(nn.Module):
    """The mean over all positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> (N, C)."""
        return x.mean(dim=(2, 3))


def chain(*layers: tuple[str, nn.Module]) -> nn.Sequential:
    """Return named layers in sequence."""
    return nn.Sequential(OrderedDict(layers))


class LazyLogits(NamedTuple):
    """What a linear layer without bias would make logits of: its input (..., width) and its weight (classes, width)."""

    hidden: torch.Tensor
    weight: torch.Tensor


AT_ONCE = 1024  # rows of logits in memory at a time
MULTIPLE = 64  # of classes, for which GPUs have faster matrix products


def chunked_cross_entropy(lazy: LazyLogits, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """Return the mean cross entropy of the logits, which are never in memory all at once.

    The gradients of both inputs are made with the loss, since logits would have to be computed again for them: backward
    only scales them. The result is exact: the softmax of each row is computed whole.
    """
    hidden, weight = lazy
    rows = hidden.flatten(0, -2)
    multiple = 1 if rows.device.type == "cpu" else MULTIPLE
    loss: torch.Tensor = ChunkedLoss.apply(rows, weight, labels.flatten(), smoothing, multiple, working_dtype(rows))
    return loss


def working_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the precision of matrix products of x under the current autocast."""
    number = x.new_ones(1, 1)
    return (number @ number).dtype


def loss_and_gradients(
    rows: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, smoothing: float, multiple: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the mean loss of rows (M, width), and the gradients of M times the loss by rows and by the weight.

    Products are computed in `dtype`, and with as many classes as are a multiple of `multiple`; those that are too many
    count as nothing. M times the gradients are so large that half precision holds them.
    """
    classes = len(weight)
    decoder = functional.pad(weight.to(dtype), (0, 0, 0, -classes % multiple))
    by_rows = torch.empty_like(rows)
    by_decoder = torch.zeros_like(decoder, dtype=torch.promote_types(dtype, torch.float32))
    total = torch.zeros((), device=rows.device, dtype=by_decoder.dtype)
    for begin in range(0, len(rows), AT_ONCE):
        part = rows[begin : begin + AT_ONCE].to(dtype)
        expected = labels[begin : begin + AT_ONCE, None]
        products = part @ decoder.t()
        logits = products[:, :classes].to(total.dtype)
        normaliser = logits.logsumexp(1, keepdim=True)
        total += (normaliser - (1 - smoothing) * logits.gather(1, expected)).sum()
        if smoothing:
            total -= smoothing / classes * logits.sum()
        shares = logits.sub_(normaliser).exp_()  # in the memory of the logits
        shares.scatter_add_(1, expected, shares.new_full((1, 1), smoothing - 1).expand_as(expected))
        if smoothing:
            shares -= smoothing / classes
        if shares.dtype != dtype:
            products[:, :classes] = shares
        products[:, classes:] = 0
        by_rows[begin : begin + AT_ONCE] = products @ decoder
        if by_decoder.dtype == dtype:
            by_decoder.addmm_(products.t(), part)
        else:
            by_decoder += products.t() @ part
    return total / len(rows), by_rows, by_decoder[:classes]


def shapes_of_loss_and_gradients(
    rows: torch.Tensor, weight: torch.Tensor, _: torch.Tensor, __: float, ___: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tensors like the results, without their values."""
    wide = torch.promote_types(dtype, torch.float32)
    return rows.new_empty((), dtype=wide), torch.empty_like(rows), weight.new_empty(weight.shape, dtype=wide)


# A compiler would keep the logits for the backward pass. To it, the whole is a single operation, as far as it has them.
as_one_operation = loss_and_gradients
if hasattr(torch.library, "custom_op"):
    as_one_operation = torch.library.custom_op(
        "sifmark::loss_and_gradients",
        loss_and_gradients,
        mutates_args=(),
        schema="(Tensor rows, Tensor weight, Tensor labels, float smoothing, int multiple, ScalarType dtype)"
        " -> (Tensor, Tensor, Tensor)",
    )
    as_one_operation.register_fake(shapes_of_loss_and_gradients)


class ChunkedLoss(torch.autograd.Function):
    """The mean loss of `loss_and_gradients`, with these gradients."""

    @staticmethod
    def forward(  # type: ignore[override]
        context: Any, rows: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, *how: Any
    ) -> torch.Tensor:
        """Return a scalar."""
        loss, by_rows, by_weight = as_one_operation(rows, weight, labels, *how)
        context.save_for_backward(by_rows, by_weight)
        return loss

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        """Return the gradients of rows and weight."""
        by_rows, by_weight = context.saved_tensors
        share = gradient / len(by_rows)
        return by_rows * share, by_weight * share, None, None, None, None
