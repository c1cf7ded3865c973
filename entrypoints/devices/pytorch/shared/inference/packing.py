"""Weights laid out for the products with few rows of text generation on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MKL, ONEDNN = "_mkl_linear", "_linear_pointwise"  # operations of PyTorch 2 that take packed weights


class PackedLinear(nn.Module):
    """A linear layer for inference, with its weights packed for a number of rows.

    MKL packs single precision, and has the plain weights for other numbers of rows. oneDNN packs bfloat16 for any.
    """

    def __init__(self, layer: nn.Linear, rows: int) -> None:
        super().__init__()
        self.weight, self.bias, self.rows = layer.weight, layer.bias, rows
        weight = layer.weight.detach().contiguous()
        self.half = weight.dtype == torch.bfloat16
        if self.half:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
            self.weight = nn.Parameter(weight.new_empty(0), requires_grad=False)
        else:
            self.packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs)."""
        if self.half:
            made = torch.ops.mkldnn._linear_pointwise(x.to(torch.bfloat16), self.packed, self.bias, "none", [], "")
        else:
            made = torch.ops.mkl._mkl_linear(x, self.packed, self.weight, self.bias, self.rows)
        return made  # type: ignore[no-any-return]


def packed(network: nn.Module, rows: int) -> bool:
    """Replace the linear layers of a network for inference, where this PyTorch can pack them. Return whether it can."""
    layers = [
        (owner, name, layer)
        for owner in network.modules()
        for name, layer in owner.named_children()
        if type(layer) is nn.Linear
    ]
    if not layers or not can_pack(layers[0][2].weight.dtype):
        return False
    try:
        replaced = [(owner, name, PackedLinear(layer, rows)) for owner, name, layer in layers]
    except (RuntimeError, TypeError):  # these operations are PyTorch's own, and their arguments are not promised
        return False
    for owner, name, layer in replaced:
        setattr(owner, name, layer)
    return True


def can_pack(dtype: torch.dtype) -> bool:
    """Return whether this PyTorch has packed products of a precision on this processor."""
    if dtype == torch.float32:
        return torch.backends.mkl.is_available() and _has(torch.ops.mkl, MKL)
    return dtype == torch.bfloat16 and _has(torch.ops.mkldnn, ONEDNN) and _computes_bfloat16()


def _has(operations: Any, name: str) -> bool:
    return hasattr(operations, name)


def _computes_bfloat16() -> bool:
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())
