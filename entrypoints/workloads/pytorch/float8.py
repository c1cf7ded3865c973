"""Linear layers that multiply numbers of eight bits (FP8): E4M3 on the way forward, E5M2 for gradients.

Micikevicius et al., FP8 formats for deep learning, arXiv:2209.05433. Each product scales both of its operands so that
the largest number of a tensor (tensorwise), or of each row (rowwise), becomes the largest of the format. Scales are
made anew from what is multiplied (dynamic scaling). Sums are in fp32, and what comes out in bf16. Weights, states and
everything between these layers are as in a run in bf16.
"""

from __future__ import annotations

import functools
from typing import Any, Iterator, NamedTuple

import torch
from torch import nn

from entrypoints.contract.choices import ROWWISE
from entrypoints.contract.statuses import RunError
from entrypoints.workloads.pytorch import roles

OLDEST = (2, 5)  # torch._scaled_mm with scales for each row, and without the maximum that it returned before
MULTIPLE = 16  # of both sizes of a matrix: what the products of GPUs take
SMALLEST = 1e-12  # that a largest number counts as: a tensor of zeros has a scale, too
CONVERTED = (roles.COLUMNS, roles.PACKED, roles.ROWS)  # the matrices of blocks; others are heads, tables and adapters
# GPUs whose formats have no negative zero, and other exponents: MI300 (OCP's own are those of MI350).
WITHOUT_NEGATIVE_ZERO = "gfx94"


class Formats(NamedTuple):
    """The types of activations and weights, and of gradients."""

    forward: torch.dtype
    backward: torch.dtype


def formats(architecture: str = "") -> Formats:
    """Return the formats of a GPU's architecture, or of another device.

    Raises RunError (`unsupported`) if this PyTorch has none.
    """
    if torch.__version__ < OLDEST:
        raise RunError(
            "unsupported",
            f"--precision fp8: PyTorch {torch.__version__} has no products of FP8, from "
            f"{'.'.join(map(str, OLDEST))} on it does. "
            "Take --precision bf16, or an image with a newer PyTorch",
        )
    if architecture.startswith(WITHOUT_NEGATIVE_ZERO):
        return Formats(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    return Formats(torch.float8_e4m3fn, torch.float8_e5m2)


def architecture(hardware: torch.device) -> str:
    """Return the architecture of a GPU of AMD; nothing of other devices, which have the same formats."""
    if hardware.type != "cuda" or torch.version.hip is None:
        return ""
    return str(getattr(torch.cuda.get_device_properties(hardware), "gcnArchName", ""))


def require(hardware: torch.device) -> None:
    """Raise RunError (`unsupported`) if the hardware, or this PyTorch on it, multiplies no numbers of FP8."""
    forward, backward = formats(architecture(hardware))
    ones = torch.ones(MULTIPLE, MULTIPLE, device=hardware, dtype=torch.bfloat16)
    try:
        product_of_rows(ones, ones, (backward, forward), by_row=False)
    except RuntimeError as error:
        name = "the CPU" if hardware.type == "cpu" else "this GPU"
        raise RunError(
            "unsupported",
            f"--precision fp8: PyTorch {torch.__version__} has no product of FP8 for {name} "
            f"({str(error).splitlines()[0][:200]}). Take --precision bf16",
        ) from None


def quantised(tensor: torch.Tensor, dtype: torch.dtype, by_row: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix (R, C) in FP8, and what its numbers are to be multiplied with in fp32: a scalar, or (R, 1)."""
    largest = tensor.abs().amax(1, keepdim=True) if by_row else tensor.abs().amax()
    most = torch.finfo(dtype).max
    # In double precision, as torchao: eager and compiled quotients in fp32 differ in the last bit, which decides ties.
    scale = (most / largest.double().clamp(min=SMALLEST)).float()
    return (tensor.float() * scale).clamp(-most, most).to(dtype).contiguous(), 1 / scale


def product_of_rows(
    a: torch.Tensor, b: torch.Tensor, dtypes: tuple[torch.dtype, torch.dtype], by_row: bool, fast: bool = False
) -> torch.Tensor:
    """Return the products of each row of a (R, C) with each of b (S, C) in bf16 (R, S), computed in two formats.

    With `fast`, GPUs of NVIDIA may add up in fewer bits, as libraries do on the way forward.
    """
    left, of_left = quantised(a, dtypes[0], by_row)
    right, of_right = quantised(b, dtypes[1], by_row)
    scales: Any = {"scale_a": of_left, "scale_b": of_right.t() if by_row else of_right}
    return torch._scaled_mm(left, right.t(), **scales, out_dtype=torch.bfloat16, use_fast_accum=fast)


class Product(torch.autograd.Function):
    """x (M, K) and a weight (N, K), both in bf16 -> x times the transposed weight (M, N), and both gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, dtypes: Formats, by_row: bool) -> torch.Tensor:
        """Do the product in the format of activations and weights."""
        ctx.save_for_backward(x, weight)
        ctx.dtypes, ctx.by_row = dtypes, by_row
        return product_of_rows(x, weight, (dtypes.forward, dtypes.forward), by_row, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Do both products with the gradient (M, N) in its own format; none for a weight that is not trained."""
        x, weight = ctx.saved_tensors
        dtypes = (ctx.dtypes.backward, ctx.dtypes.forward)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = product_of_rows(gradient, weight.t(), dtypes, ctx.by_row)
        if ctx.needs_input_grad[1]:
            of_weight = product_of_rows(gradient.t(), x.t(), dtypes, ctx.by_row)
        return of_x, of_weight, None, None


class Float8Linear(nn.Linear):
    """A linear layer whose product, and those of its gradients, are in FP8. Its bias is added in bf16."""

    dtypes: Formats
    by_row: bool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs) in bf16."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
        product: torch.Tensor = Product.apply(rows, self.weight.to(torch.bfloat16), self.dtypes, self.by_row)
        product = product if self.bias is None else product + self.bias.to(product.dtype)
        return product.view(*x.shape[:-1], -1)


@functools.lru_cache(maxsize=None)
def converted_class(kind: type[nn.Linear]) -> type[Float8Linear]:
    """Return a kind of linear layer with its product in FP8, and whatever else it computes as before."""
    return Float8Linear if kind is nn.Linear else type(f"Float8{kind.__name__}", (kind, Float8Linear), {})


def plain_class(layer: Float8Linear) -> type[nn.Linear]:
    """Return the kind that a converted layer was before."""
    kind: type[nn.Linear] = type(layer).__mro__[1]
    return kind


def convertible(network: nn.Module) -> Iterator[nn.Linear]:
    """Yield the matrices of blocks, which say by their roles what they are, of sizes that FP8 can have."""
    for module in network.modules():
        layers = dict(module.named_modules())
        for name, role in getattr(module, "roles", {}).items():
            layer = layers.get(name)
            if role in CONVERTED and isinstance(layer, nn.Linear) and fits(layer):
                yield layer


def fits(layer: nn.Linear) -> bool:
    """Return whether a layer has sizes that products of FP8 can have."""
    return layer.in_features % MULTIPLE == layer.out_features % MULTIPLE == 0


def convert(network: nn.Module, hardware: torch.device, scaling: str) -> None:
    """Let a network's blocks compute their linear layers in FP8. Names and weights stay what they are."""
    dtypes = formats(architecture(hardware))
    for layer in list(convertible(network)):
        kind: Any = type(layer)
        layer.__class__ = converted_class(kind)
        layer.dtypes, layer.by_row = dtypes, scaling == ROWWISE  # type: ignore[assignment]


def described(network: nn.Module) -> str | None:
    """Return what a result says of linear layers in FP8; None without any."""
    layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, nn.Linear)}
    converted = [layer for layer in layers.values() if isinstance(layer, Float8Linear)]
    if not converted:
        return None
    others = [name for name, layer in layers.items() if not isinstance(layer, Float8Linear)]
    names = [str(dtype).rpartition(".")[2] for dtype in converted[0].dtypes]
    scaling = "by row" if converted[0].by_row else "by tensor"
    left = f"; in bf16: {', '.join(sorted({name.rpartition('.')[2] for name in others}))}" if others else ""
    return (
        f"{len(converted)} of {len(layers)} linear layers in {names[0]}, gradients in {names[1]}, scaled dynamically "
        f"{scaling}, by torch._scaled_mm{left}"
    )
