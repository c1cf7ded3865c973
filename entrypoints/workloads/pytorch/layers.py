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


class RMSNorm(nn.Module):
    """Division by the root mean square (Zhang and Sennrich, arXiv:1910.07467), in the precision of its weights."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))
        nn.init.ones_(self.weight)  # in place, so that it can be deferred

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) -> the same shape."""
        x = x.to(self.weight.dtype)
        if hasattr(functional, "rms_norm"):  # one operation, from torch 2.4 on
            return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


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


MULTIPLE = 64  # of classes, for which GPUs have faster matrix products
# Rows of logits at a time: on a CPU, and at least; elsewhere as many as take a share of the device's memory, since each
# chunk reads and writes the gradient of the whole decoder. A chunk takes at most so many bytes a logit.
CHUNK_ROWS, MEMORY_SHARE, CHUNK_BYTES = 1024, 1 / 32, 8
CASTING = ("cuda", "xpu")  # devices whose operations cast what they write; others write it twice


def chunked_cross_entropy(lazy: LazyLogits, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """Return the mean cross entropy of the logits, which are never in memory all at once.

    The gradients of both inputs are made with the loss, since logits would have to be computed again for them: backward
    only scales them. The result is exact: the softmax of each row is computed whole.
    """
    hidden, weight = lazy
    rows = hidden.flatten(0, -2)
    multiple = 1 if rows.device.type == "cpu" else MULTIPLE
    how = (smoothing, multiple, working_dtype(rows), is_compiling(), weight.requires_grad)
    loss: torch.Tensor = ChunkedLoss.apply(rows, weight, labels.flatten(), *how)
    return loss


def is_compiling() -> bool:
    """Return whether TorchInductor compiles the caller; False before torch 2.1, which does not say."""
    compiler = getattr(torch, "compiler", None)
    return hasattr(compiler, "is_compiling") and torch.compiler.is_compiling()


def working_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the precision of matrix products of x under the current autocast."""
    nothing = x.new_empty(0, 1)
    return (nothing @ nothing.t()).dtype


def chunk_rows(device: torch.device, classes: int) -> int:
    """Return how many rows of logits are computed at once: a power of two, so that chunks of most batches are alike."""
    properties = getattr(getattr(torch, device.type, None), "get_device_properties", None)
    memory = getattr(properties(device), "total_memory", 0) if properties else 0  # in bytes; the host's is not meant
    most = int(memory * MEMORY_SHARE / (CHUNK_BYTES * classes))
    return max(CHUNK_ROWS, 1 << max(0, most.bit_length() - 1))


def loss_and_gradients(
    rows: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    smoothing: float,
    multiple: int,
    dtype: torch.dtype,
    compiled: bool = False,
    trained: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the mean loss of rows (M, width), and the gradients of M times the loss by rows and by the weight.

    The latter is empty unless the weight is trained.

    Products are computed in `dtype`, and with as many classes as are a multiple of `multiple`; those that are too many
    count as nothing. M times the gradients are so large that half precision holds them.
    """
    classes = len(weight)
    decoder = functional.pad(weight.to(dtype), (0, 0, 0, -classes % multiple))
    by_rows = torch.empty_like(rows)
    total = torch.zeros((), device=rows.device, dtype=torch.promote_types(dtype, torch.float32))
    size = chunk_rows(rows.device, len(decoder))
    by_decoder = total.new_empty(0)
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size].to(dtype)
        logits = part @ decoder.t()
        if classes < len(decoder):
            logits[:, classes:] = -math.inf
        loss, differences = loss_and_differences(
            logits, labels[begin : begin + size, None], classes, smoothing, compiled
        )
        total += loss
        by_rows[begin : begin + size] = differences @ decoder
        if not trained:
            continue
        if begin == 0:
            by_decoder = (differences.t() @ part).to(total.dtype)
        elif by_decoder.dtype == dtype:
            by_decoder.addmm_(differences.t(), part)
        else:
            by_decoder += differences.t() @ part
    return total / len(rows), by_rows, by_decoder[:classes]


def loss_and_differences(
    logits: torch.Tensor, labels: torch.Tensor, classes: int, smoothing: float, compiled: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the summed loss of logits (M, N) with labels (M, 1), and its gradients by the logits (M, N).

    Compiled, logits are read twice and gradients written once; otherwise a log-softmax in single precision is written
    and read too, and gradients take the memory of the logits.
    """
    if compiled:
        kernel = compiled_differences(logits.shape, logits.dtype, logits.device, classes, smoothing)
        if kernel is not None:
            loss, differences = kernel(logits, labels)
            return loss, differences
    return differences_in(logits, logits, labels, classes, smoothing)


def differences_in(
    memory: torch.Tensor | None, logits: torch.Tensor, labels: torch.Tensor, classes: int, smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same by PyTorch's operations, with the gradients in `memory` or in new memory."""
    logs = logits.log_softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))  # GPUs cast while they read
    own = logs.gather(1, labels)
    loss = (smoothing - 1) * own.sum()
    if smoothing:
        loss = loss - smoothing / classes * logs[:, :classes].sum()
    differences = logs.exp().to(logits.dtype) if memory is None else exponentials(logs, memory)
    if smoothing:
        differences[:, :classes] -= smoothing / classes
    at_label = own.expm1() + (smoothing - smoothing / classes)  # before it is rounded
    return loss, differences.scatter_(1, labels, at_label.to(differences.dtype))


def exponentials(logs: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Return the exponentials of `logs`, in its memory or in `memory`, in the precision of `memory`."""
    if logs.dtype == memory.dtype:
        return logs.exp_()
    if logs.device.type in CASTING:
        return torch.exp(logs, out=memory)
    return memory.copy_(logs.exp_())


@functools.lru_cache(maxsize=None)
def compiled_differences(
    shape: torch.Size, dtype: torch.dtype, device: torch.device, classes: int, smoothing: float
) -> Any:
    """Return `differences_in` for logits of one shape as kernels of TorchInductor; None if it makes none here.

    Not by torch.compile, which would count as a graph of the model, and look for changes at each call.
    """
    examples = (
        torch.empty(shape, dtype=dtype, device=device),
        torch.zeros(shape[0], 1, dtype=torch.int64, device=device),
    )

    def differences(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return differences_in(None, logits, labels, classes, smoothing)

    try:
        from torch import _inductor
        from torch.fx.experimental.proxy_tensor import make_fx

        return _inductor.compile(make_fx(differences, tracing_mode="fake")(*examples), list(examples))
    except Exception:  # internal: other versions may have other names, and PyTorch's own kernels compute the same
        return None


def shapes_of_loss_and_gradients(
    rows: torch.Tensor,
    weight: torch.Tensor,
    _: torch.Tensor,
    __: float,
    ___: int,
    dtype: torch.dtype,
    ____: bool,
    trained: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tensors like the results, without their values."""
    wide, shape = torch.promote_types(dtype, torch.float32), weight.shape if trained else (0,)
    return rows.new_empty((), dtype=wide), torch.empty_like(rows), weight.new_empty(shape, dtype=wide)


# A compiler would keep the logits for the backward pass. To it, the whole is a single operation, as far as it has them.
as_one_operation = loss_and_gradients
if hasattr(torch.library, "custom_op"):
    as_one_operation = torch.library.custom_op(
        "sifmark::loss_and_gradients",
        loss_and_gradients,
        mutates_args=(),
        schema="(Tensor rows, Tensor weight, Tensor labels, float smoothing, int multiple, ScalarType dtype,"
        " bool compiled, bool trained=True) -> (Tensor, Tensor, Tensor)",
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
        context.others = (None,) * (1 + len(how))
        return loss

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        """Return the gradients of rows and weight."""
        by_rows, by_weight = context.saved_tensors
        share = gradient / len(by_rows)
        return (by_rows * share, by_weight * share if context.needs_input_grad[1] else None, *context.others)
