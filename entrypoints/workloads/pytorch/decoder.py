"""Decoders of the Llama family (Touvron et al., arXiv:2302.13971; Grattafiori et al., arXiv:2407.21783).

A transformer that continues a text, as GPT is: with RMSNorm in place of layer normalisation, a gated feed-forward
network, rotary positions, fewer keys and values than queries, and no biases. Mixtures of experts differ in what a card
says: experts (OLMoE, Muennighoff et al., arXiv:2409.02060; Qwen3, arXiv:2505.09388), normalised queries and keys, and
in gpt-oss (arXiv:2508.10925) biases, windows and sinks.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Iterator, Mapping

import torch
from torch import nn
from torch.nn import functional

from entrypoints.contract.cards import attention_windows
from entrypoints.workloads.pytorch import roles, windows
from entrypoints.workloads.pytorch.experts import Experts
from entrypoints.workloads.pytorch.layers import RMSNorm
from entrypoints.workloads.pytorch.transformer import (
    AnyCache,
    NextToken,
    RotaryTables,
    SelfAttention,
    Transformer,
    normalisation,
    rotate,
)

GROUPS = torch.__version__ >= (2, 5)  # whether attention in one operation takes fewer keys than queries


class AdaptedLinear(nn.Linear):
    """A linear layer that stays as it is, and a trained product of two matrices of low rank (LoRA) beside it.

    Hu et al., arXiv:2106.09685. The product is 0 at the start, since its second matrix is.
    """

    def __init__(self, layer: nn.Linear, rule: Mapping[str, Any]) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False)
        self.down = nn.Linear(layer.in_features, rule["rank"], bias=False)
        self.up = nn.Linear(rule["rank"], layer.out_features, bias=False)
        self.scale = rule["alpha"] / rule["rank"]

    def begin(self) -> None:
        """Set the trained matrices: the first as nn.Linear is, which PEFT does too, the second to 0."""
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def without_effect(self) -> Iterator[nn.Parameter]:
        """Yield the first matrix: in the first step, which is looked at, the second is 0."""
        yield self.down.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs)."""
        return super().forward(x) + self.up(self.down(x)) * self.scale


class GroupedQueryAttention(SelfAttention):
    """Attention in which a group of queries has one key and one value (Ainslie et al., arXiv:2305.13245).

    The rows of the first projection are those of one group after the other, as in Megatron-LM: the queries, the key and
    the value of each. So ranks divide it into equal parts.
    """

    drops = False

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__(model, bias=model.get("biases", False))
        if "adapter" in model:
            self.query_key_value = AdaptedLinear(self.query_key_value, model["adapter"])
            self.project = AdaptedLinear(self.project, model["adapter"])
        self.group = self.heads // self.kv_heads  # queries with the same key
        self.normalised = model.get("query_key_normalisation")
        if self.normalised:
            of_heads = self.normalised == "heads"
            sizes = (self.size if of_heads else heads * self.size for heads in (self.heads, self.kv_heads))
            epsilon = model["normalisation"]["epsilon"]
            self.query_normalisation, self.key_normalisation = (RMSNorm(size, epsilon) for size in sizes)
        self.window: int | None = None  # positions that one sees, itself included; None: all before
        self.sinks = nn.Parameter(torch.empty(self.heads)) if model.get("sinks") else None
        if self.sinks is not None:
            nn.init.normal_(self.sinks, std=model["initialisation"]["deviation"])

    def divided(
        self, projected: torch.Tensor, rotary: RotaryTables | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, T, kv_heads * (group + 2) * size) -> the query (N, heads, T, size), key and value (N, kv_heads, T, size).

        Query and key are turned to their positions. All are views with position before head, so that what attention
        makes of them is in that order, too.
        """
        samples, length, _ = projected.shape
        query, key, value = projected.view(samples, length, -1, self.group + 2, self.size).split([self.group, 1, 1], 3)
        if self.normalised:
            query = self.in_scale(query, self.query_normalisation)
            key = self.in_scale(key, self.key_normalisation)
        if rotary is not None:
            tables = RotaryTables(*(table[:, None, None] for table in rotary))
            query, key = rotate(query, tables), rotate(key, tables)
        query, key, value = (each.flatten(2, 3).transpose(1, 2) for each in (query, key, value))
        return query, key, value

    def in_scale(self, x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        """(N, T, kv_heads, queries or 1, size) -> the same, normalised by head or as a whole, in the same precision."""
        made: torch.Tensor = layer(x if self.normalised == "heads" else x.flatten(2))
        return made.view(x.shape).to(x.dtype)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """The query (N, heads, T, size), key and value (N, kv_heads, T, size) -> (N, heads, T, size)."""
        if self.window is not None or self.sinks is not None:
            attended = windows.attend if self.fused and windows.AVAILABLE else windows.attend_plainly
            return attended(query, key, value, windows.Rule(self.window, self.sinks), attention_mask)
        group = query.shape[1] // key.shape[1]
        if query.shape[2] == 1:  # the queries of a group are as many rows of one attention, which all kernels have
            rows = query.reshape(*key.shape[:2], group, self.size)
            return self.attended(rows, key, value, attention_mask, causal=False).reshape(query.shape)
        if group > 1 and self.fused and GROUPS:
            return functional.scaled_dot_product_attention(
                query, key, value, attention_mask, is_causal=self.causal, enable_gqa=True
            )
        if group > 1:
            key, value = (each.repeat_interleave(group, dim=1) for each in (key, value))
        return super().attend(query, key, value, attention_mask)


class SwiGLU(nn.Module):
    """The feed-forward network: two projections, of which one gates the other (Shazeer, arXiv:2002.05202)."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner = model["width"], model["feed_forward"]
        self.gate = nn.Linear(width, inner, bias=False)
        self.widen = nn.Linear(width, inner, bias=False)
        self.narrow = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same shape, through (N, T, feed_forward)."""
        return self.narrow(functional.silu(self.gate(x)) * self.widen(x))


class Block(nn.Module):
    """Attention and a feed-forward network, each of a normalised input and added to it."""

    roles: ClassVar[Mapping[str, str]] = {
        "attention_normalisation": roles.STREAM,
        "attention.query_key_value": roles.COLUMNS,
        "attention.project": roles.ROWS,
        "feed_forward_normalisation": roles.STREAM,
        "feed_forward.gate": roles.COLUMNS,
        "feed_forward.widen": roles.COLUMNS,
        "feed_forward.narrow": roles.ROWS,
    }

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.attention_normalisation = normalisation(model)
        self.attention = GroupedQueryAttention(model)
        self.feed_forward_normalisation = normalisation(model)
        self.mixture = "experts" in model
        self.feed_forward: Any = Experts(model) if self.mixture else SwiGLU(model)

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotary: RotaryTables | None = None,
        cache: AnyCache | None = None,
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        first = () if not self.mixture else (0,) if cache is None else (cache.first,)  # before attention goes on
        x = x + self.attention(self.attention_normalisation(x), attention_mask, rotary, cache)
        return x + self.feed_forward(self.feed_forward_normalisation(x), *first)


class TokenEmbedding(nn.Module):
    """The embeddings of tokens; positions turn queries and keys later."""

    roles: ClassVar[Mapping[str, str]] = {"tokens": roles.VOCABULARY}

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model["vocabulary"], model["width"])

    def forward(self, tokens: torch.Tensor, _: None = None, __: int | torch.Tensor = 0) -> torch.Tensor:
        """(N, T) -> (N, T, width)."""
        return self.tokens(tokens)


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`; with an adapter, nothing else is trained."""
    built = Transformer(model, TokenEmbedding, Block, NextToken)
    for block, window in zip(built.blocks, attention_windows(model)):
        block.attention.window = window  # type: ignore[union-attr]
    if "adapter" in model:
        built.requires_grad_(False)
        for layer in built.modules():
            if isinstance(layer, AdaptedLinear):
                layer.begin()
                layer.down.requires_grad_(True)
                layer.up.requires_grad_(True)
    return built
