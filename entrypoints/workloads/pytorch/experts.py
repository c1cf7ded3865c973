"""Mixtures of experts: feed-forward networks, a few for each token (Shazeer et al., arXiv:1701.06538).

Rows of all tokens are sorted by their experts, so that one grouped product computes all experts: no capacity, and no
token is dropped. Where PyTorch has no grouped products, a product for each expert computes the same.
"""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn
from torch.nn import functional

from entrypoints.workloads.pytorch.layers import working_dtype

# One product of rows that are grouped by experts, each with its matrix: public from torch 2.10 on. On GPUs of NVIDIA
# it is one kernel, in bf16; elsewhere PyTorch loops, too.
GROUPED: Any = getattr(functional, "grouped_mm", None) or (
    torch.__version__ >= (2, 9) and getattr(torch, "_grouped_mm", None)
)
CAPABILITY = (8, 0)  # of GPUs, at the least
SHARPNESS = 1.702  # of the sigmoid of a clamped gate


class GroupedLinear(nn.Module):
    """A linear layer of each expert; their matrices (outputs, inputs) are one below another in one weight."""

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts * outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts * outputs)) if bias else None

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Rows (M, inputs), of each expert in turn as many as `counts` (experts,) says -> (M, outputs)."""
        weight = self.weight.to(x.dtype).unflatten(0, (self.experts, -1))
        bias = None if self.bias is None else self.bias.to(x.dtype).unflatten(0, (self.experts, -1))
        if not has_grouped_products(x.device, x.dtype):
            return in_a_loop(x, weight, bias, counts)
        made: torch.Tensor = GROUPED(x, weight.transpose(1, 2), offs=counts.cumsum(0, dtype=torch.int32))
        if bias is None:
            return made
        numbers = torch.arange(self.experts, device=x.device).repeat_interleave(counts, output_size=len(x))
        return made + functional.one_hot(numbers, self.experts).to(x.dtype) @ bias  # whose gradient is a product, too


def has_grouped_products(device: torch.device, dtype: torch.dtype | None) -> bool:
    """Return whether PyTorch has a kernel for grouped products on a device, in a precision."""
    if not GROUPED or device.type != "cuda" or torch.version.hip or dtype != torch.bfloat16:
        return False
    return torch.cuda.get_device_capability(device) >= CAPABILITY


def in_a_loop(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, counts: torch.Tensor) -> torch.Tensor:
    """Return the products of rows (M, inputs) with weights (experts, outputs, inputs), expert by expert.

    The host waits for the counts.
    """
    parts = x.split(counts.tolist())
    biases = [None] * len(parts) if bias is None else bias.unbind()
    return torch.cat([functional.linear(*each) for each in zip(parts, weight.unbind(), biases) if len(each[0])])


class Dispatch(torch.autograd.Function):
    """Copies of rows, in the order of their experts. Their gradients are summed up in a fixed order."""

    @staticmethod
    def forward(  # type: ignore[override]
        context: Any, rows: torch.Tensor, order: torch.Tensor, back: torch.Tensor, copies: int
    ) -> torch.Tensor:
        """Rows (M, width), the order of M * copies copies, and the order that turns it back -> (M * copies, width)."""
        context.save_for_backward(back)
        context.copies = copies
        return rows[torch.div(order, copies, rounding_mode="floor")]

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        """Return the gradient of rows."""
        (back,) = context.saved_tensors
        return gradient[back].unflatten(0, (-1, context.copies)).sum(1), None, None, None


class Reordered(torch.autograd.Function):
    """Rows in another order; their gradients are turned back by the other order, and not added one by one."""

    @staticmethod
    def forward(  # type: ignore[override]
        context: Any, rows: torch.Tensor, order: torch.Tensor, back: torch.Tensor
    ) -> torch.Tensor:
        """Rows (M, width) -> the same in another order."""
        context.save_for_backward(back)
        return rows[order]

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        """Return the gradient of rows."""
        (back,) = context.saved_tensors
        return gradient[back], None, None


class Router(nn.Module):
    """Chooses the experts of each token, and weighs them. It computes in single precision, as Megatron-LM's can.

    Learnt, a token has the experts with the highest scores. Balanced, experts are dealt out in turn, as published
    throughputs have it, so that each has as many tokens; their weights are those of the scores all the same.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        rule = model["experts"]
        self.experts, self.per_token = rule["count"], rule["per_token"]
        self.balanced, self.renormalised = rule["routing"] == "balanced", rule["renormalised"]
        self.weight = nn.Parameter(torch.empty(self.experts, model["width"]))
        self.bias = nn.Parameter(torch.empty(self.experts)) if model.get("biases") else None

    def forward(self, x: torch.Tensor, first: int | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, T, width), whose texts go on at position `first` -> experts of each token and their weights (N, T, k)."""
        scores = self.scores(x)
        chosen = self.in_turn(x, first) if self.balanced else scores.topk(self.per_token)[1]
        if self.renormalised:
            return chosen, scores.gather(-1, chosen).softmax(-1)
        return chosen, scores.softmax(-1).gather(-1, chosen)

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> (N, T, experts)."""
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(dtype)
        with torch.autocast(x.device.type, enabled=False):
            return functional.linear(x.to(dtype), self.weight.to(dtype), bias)

    def in_turn(self, x: torch.Tensor, first: int | torch.Tensor) -> torch.Tensor:
        """Return the experts (N, T, k) of tokens, dealt out by position and text.

        Texts are counted from the last one, which so has the same experts alone as in its batch, token by token as at
        once.
        """
        samples, length, _ = x.shape
        texts = torch.arange(samples - 1, -1, -1, device=x.device)[:, None, None]
        places = torch.arange(length, device=x.device)[:, None] + first
        return ((texts + places) * self.per_token + torch.arange(self.per_token, device=x.device)) % self.experts


class Experts(nn.Module):
    """The feed-forward network of a block: the weighted sum of what a few of many networks make of each token."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        rule, width, inner = model["experts"], model["width"], model["feed_forward"]
        biased = model.get("biases", False)
        self.router = Router(model)
        self.widen = GroupedLinear(rule["count"], width, 2 * inner, biased)  # of each expert the gate, then the other
        self.narrow = GroupedLinear(rule["count"], inner, width, biased)
        self.limit = rule.get("limit")

    def forward(self, x: torch.Tensor, first: int | torch.Tensor = 0) -> torch.Tensor:
        """(N, T, width), whose texts go on at position `first` -> the same shape."""
        chosen, weights = self.router(x, first)
        experts, copies = chosen.flatten(), chosen.shape[-1]
        order = experts.sort(stable=True)[1]
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        counts = (
            torch.zeros_like(experts[:1]).expand(self.router.experts).scatter_add(0, experts, torch.ones_like(experts))
        )
        rows = Dispatch.apply(x.flatten(0, 1).to(working_dtype(x)), order, back, copies)
        made = self.narrow(self.gated(self.widen(rows, counts)), counts)
        made = Reordered.apply(made, back, order).unflatten(0, chosen.shape)
        return (made * weights[..., None].to(made.dtype)).sum(2)

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """Return one half of (M, 2 * feed_forward) times the other, which gates it."""
        gate, other = x.chunk(2, -1)
        if self.limit is None:
            return functional.silu(gate) * other
        gate, other = gate.clamp(max=self.limit), other.clamp(-self.limit, self.limit)
        return gate * torch.sigmoid(SHARPNESS * gate) * (other + 1)


def waits_for_counts(network: nn.Module, device: torch.device, dtype: torch.dtype | None) -> bool:
    """Return whether the host waits for the device within a network, which cannot be recorded as a graph then."""
    return not has_grouped_products(device, dtype) and any(isinstance(layer, Experts) for layer in network.modules())
