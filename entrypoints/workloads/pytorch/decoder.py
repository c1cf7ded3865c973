"""Decoders of the Llama family (Touvron et al., arXiv:2302.13971; Grattafiori et al., arXiv:2407.21783).

A transformer that continues a text, as GPT is: with RMSNorm in place of layer normalisation, a gated feed-forward
network, rotary positions, fewer keys and values than queries, and no biases.
"""

from __future__ import annotations

from typing import Any, ClassVar, Mapping

import torch
from torch import nn
from torch.nn import functional

from entrypoints.workloads.pytorch import roles
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


class GroupedQueryAttention(SelfAttention):
    """Attention in which a group of queries has one key and one value (Ainslie et al., arXiv:2305.13245).

    The rows of the first projection are those of one group after the other, as in Megatron-LM: the queries, the key and
    the value of each. So ranks divide it into equal parts.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__(model, bias=False)
        self.group = self.heads // self.kv_heads  # queries with the same key

    def divided(
        self, projected: torch.Tensor, rotary: RotaryTables | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, T, kv_heads * (group + 2) * size) -> the query (N, heads, T, size), key and value (N, kv_heads, T, size).

        Query and key are turned to their positions. All are views with position before head, so that what attention
        makes of them is in that order, too.
        """
        samples, length, _ = projected.shape
        query, key, value = projected.view(samples, length, -1, self.group + 2, self.size).split([self.group, 1, 1], 3)
        if rotary is not None:
            tables = RotaryTables(*(table[:, None, None] for table in rotary))
            query, key = rotate(query, tables), rotate(key, tables)
        query, key, value = (each.flatten(2, 3).transpose(1, 2) for each in (query, key, value))
        return query, key, value

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """The query (N, heads, T, size), key and value (N, kv_heads, T, size) -> (N, heads, T, size)."""
        group = query.shape[1] // key.shape[1]
        if group > 1 and self.fused and GROUPS:
            causal = self.causal and query.shape[2] > 1
            return functional.scaled_dot_product_attention(
                query, key, value, attention_mask, is_causal=causal, enable_gqa=True
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
        self.feed_forward = SwiGLU(model)

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotary: RotaryTables | None = None,
        cache: AnyCache | None = None,
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        x = x + self.attention(self.attention_normalisation(x), attention_mask, rotary, cache)
        return x + self.feed_forward(self.feed_forward_normalisation(x))


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
    """Return the network of a card's `problem.model`."""
    return Transformer(model, TokenEmbedding, Block, NextToken)
