"""Transformers (Vaswani et al., arXiv:1706.03762): GPT, which continues a text, and BERT, which reads a whole text.

Both are the same network. GPT (Radford et al., 2019) attends to earlier positions only and normalises before each half
of a block; BERT (Devlin et al., arXiv:1810.04805) attends to all positions and normalises after it. Each has its head.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Sequence

import torch
from torch import nn
from torch.nn import functional

from entrypoints.workloads.pytorch.layers import ACTIVATIONS
from entrypoints.workloads.text import BASE, PADDING

# From torch 2.0 on attention is one operation; before, it is written out.
FUSED = hasattr(functional, "scaled_dot_product_attention")


class LayerNormFp32(nn.LayerNorm):
    """Layer normalisation in the precision of its weights, whatever the precision of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) -> the same shape."""
        return super().forward(x.to(self.weight.dtype))


def normalisation(model: Mapping[str, Any]) -> LayerNormFp32:
    """Return a layer normalisation with scale 1 and shift 0."""
    return LayerNormFp32(model["width"], eps=model["normalisation"]["epsilon"])


class KVCache:
    """The keys and values of the positions so far, with space for `room` positions."""

    def __init__(self, room: int) -> None:
        self.room, self.filled = room, 0
        self.kept: torch.Tensor | None = None  # keys and values (2, N, heads, room, size)

    def append(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values (N, heads, T, size) of the next positions; return those of all positions so far."""
        if self.kept is None:
            samples, heads, _, size = key.shape
            self.kept = key.new_empty(2, samples, heads, self.room, size)
        begin, self.filled = self.filled, self.filled + key.shape[2]
        self.kept[0, :, :, begin : self.filled] = key
        self.kept[1, :, :, begin : self.filled] = value
        keys, values = self.kept[:, :, :, : self.filled]
        return keys, values


class GenerationState(NamedTuple):
    """The state of text generation: the newest token (N, 1), and the cache of each block."""

    token: torch.Tensor
    caches: Sequence[KVCache]


class SelfAttention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.heads, self.causal = model["heads"], model["attention"] == "causal"
        self.size = model["width"] // model["heads"]
        self.rotary, self.fused = model["positions"]["kind"] == "rotary", FUSED
        self.query_key_value = nn.Linear(model["width"], 3 * model["width"])
        self.project = nn.Linear(model["width"], model["width"])
        self.dropout = nn.Dropout(model["dropout"])

    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None, cache: KVCache | None = None
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape. `attention_mask` (N, 1, 1, T) is true for real tokens; None means all are.

        With a cache, x has the next positions of a text: all at once if the cache is empty, otherwise one.
        """
        samples, length, _ = x.shape
        heads = self.query_key_value(x).view(samples, length, 3, self.heads, self.size)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # (N, heads, T, size) each
        if self.rotary:
            first = cache.filled if cache else 0
            query, key = rotate(query, first), rotate(key, first)
        if cache:
            key, value = cache.append(key, value)
        attended = self.attend(query, key, value, attention_mask)
        return self.project(attended.transpose(1, 2).reshape(samples, length, self.heads * self.size))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """(N, heads, T, size) each -> the same shape."""
        p = self.dropout.p if self.training else 0.0
        causal = self.causal and query.shape[2] > 1  # a single position is the last one, and attends to all
        if self.fused:
            return functional.scaled_dot_product_attention(query, key, value, attention_mask, p, causal)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (N, heads, T, T)
        if causal:
            length = scores.shape[-1]
            attention_mask = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, -math.inf)
        return self.dropout(scores.softmax(-1)) @ value


def rotate(x: torch.Tensor, first: int = 0) -> torch.Tensor:
    """Apply rotary position embeddings to (N, heads, T, size), the positions counted from `first`.

    Su et al., arXiv:2104.09864, with halves paired as in Megatron and Llama.
    """
    half = x.shape[-1] // 2
    rates = BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    positions = torch.arange(first, first + x.shape[-2], device=x.device, dtype=torch.float32)
    angles = positions[:, None] * rates  # (T, size / 2)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.before = model["normalisation"]["place"] == "before"
        self.attention = SelfAttention(model)
        self.attention_normalisation = normalisation(model)
        self.widen = nn.Linear(model["width"], model["feed_forward"])
        self.activation = ACTIVATIONS[model["activation"]]()
        self.narrow = nn.Linear(model["feed_forward"], model["width"])
        self.feed_forward_normalisation = normalisation(model)
        self.dropout = nn.Dropout(model["dropout"])

    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor | None, cache: KVCache | None = None
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        if self.before:
            x = x + self.dropout(self.attention(self.attention_normalisation(x), attention_mask, cache))
            return x + self.dropout(self.feed_forward(self.feed_forward_normalisation(x)))
        x = self.attention_normalisation(x + self.dropout(self.attention(x, attention_mask)))
        return self.feed_forward_normalisation(x + self.dropout(self.feed_forward(x)))

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same shape, through (N, T, feed_forward)."""
        return self.narrow(self.activation(self.widen(x)))


class InputEmbedding(nn.Module):
    """The sum of the embeddings of tokens, positions and, if there are any, segments."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model["vocabulary"], model["width"])
        learnt, segments = model["positions"]["kind"] == "learnt", model.get("segments")
        self.places = nn.Embedding(model["positions"]["most"], model["width"]) if learnt else None
        self.segments = nn.Embedding(segments, model["width"]) if segments else None
        self.normalisation = normalisation(model) if model["normalisation"]["place"] == "after" else nn.Identity()
        self.dropout = nn.Dropout(model["dropout"])

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor | None, first: int = 0) -> torch.Tensor:
        """(N, T) each -> (N, T, width). The first token is at position `first`."""
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places.weight[first : first + tokens.shape[1]]
        if self.segments is not None:
            x = x + self.segments(segments)
        return self.dropout(self.normalisation(x))


class Transformer(nn.Module):
    """Embedding, blocks and head. A pipeline may be cut before each of the `blocks`."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.embedding = InputEmbedding(model)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model["layers"]))
        self.head = HEADS[model["head"]["kind"]](model)
        self.reads_whole = model["attention"] == "bidirectional"
        initialise(self, model)
        if model["head"].get("tied"):
            self.head.decoder.weight = self.embedding.tokens.weight

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor | None = None, *head_inputs: torch.Tensor) -> Any:
        """Tokens (N, T) and segments (N, T) -> the output of the head, which also gets the inputs in `head_inputs`."""
        attention_mask = (tokens != PADDING)[:, None, None, :] if self.reads_whole else None
        x = self.embedding(tokens, segments)
        for block in self.blocks:
            x = block(x, attention_mask)
        return self.head(x, *head_inputs)

    def begin(self, tokens: torch.Tensor, new: int) -> GenerationState:
        """Return the state after a text (N, T) and its likeliest next token, with room for `new` tokens."""
        return self.follow(GenerationState(tokens, [KVCache(tokens.shape[1] + new) for _ in self.blocks]))

    def follow(self, text: GenerationState) -> GenerationState:
        """Return the state after the likeliest next token."""
        x = self.embedding(text.token, None, text.caches[0].filled)
        for block, cache in zip(self.blocks, text.caches):
            x = block(x, None, cache)
        return GenerationState(self.head(x[:, -1:]).argmax(-1), text.caches)


class NextToken(nn.Module):
    """The head of GPT: logits of the next token."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalisation = normalisation(model)
        self.decoder = nn.Linear(model["width"], model["vocabulary"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> (N, T, vocabulary)."""
        return self.decoder(self.normalisation(x))


class Span(nn.Module):
    """The head for question answering: logits of the start and the end of the answer."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.ends = nn.Linear(model["width"], 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> (N, T, 2)."""
        return self.ends(x)


class Pretraining(nn.Module):
    """The head of pre-training: the masked tokens, and whether the second segment follows the first."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width = model["width"]
        self.transform = nn.Linear(width, width)
        self.activation = ACTIVATIONS[model["activation"]]()
        self.normalisation = normalisation(model)
        self.decoder = nn.Linear(width, model["vocabulary"])
        self.pool = nn.Linear(width, width)
        self.follows = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, T, width) and positions (N, K) -> (N, K, vocabulary) and (N, 2)."""
        masked = x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))  # (N, K, width)
        predicted = self.decoder(self.normalisation(self.activation(self.transform(masked))))
        return predicted, self.follows(torch.tanh(self.pool(x[:, 0])))


HEADS: dict[str, Any] = {
    "next_token": NextToken,
    "span": Span,
    "pretraining": Pretraining,
}


def initialise(network: nn.Module, model: Mapping[str, Any]) -> None:
    """Set normal weights and zero biases. Layers that end a residual branch start smaller in deeper networks."""
    rule = model["initialisation"]
    for name, layer in network.named_modules():
        if isinstance(layer, (nn.Linear, nn.Embedding)):
            ends_branch = rule["residual_scaled"] and name.rpartition(".")[2] in ("project", "narrow")
            deviation = rule["deviation"] / (math.sqrt(2 * model["layers"]) if ends_branch else 1)
            nn.init.normal_(layer.weight, std=deviation)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    return Transformer(model)
