"""Transformers (Vaswani et al., arXiv:1706.03762): GPT, which continues a text, and BERT, which reads a whole text.

Both are the same network. GPT (Radford et al., 2019) attends to earlier positions only and normalises before each half
of a block; BERT (Devlin et al., arXiv:1810.04805) attends to all positions and normalises after it. Each has its head.
"""

from __future__ import annotations

import math
from typing import Any, Callable, ClassVar, Iterator, Mapping, NamedTuple, Sequence, Union

import torch
from torch import nn
from torch.nn import functional

from entrypoints.contract.cards import head_sizes
from entrypoints.workloads.pytorch import roles
from entrypoints.workloads.pytorch.experts import GroupedLinear, Router
from entrypoints.workloads.pytorch.layers import ACTIVATIONS, LazyLogits, RMSNorm
from entrypoints.workloads.text import BASE, PADDING

# From torch 2.0 on attention is one operation; before, it is written out.
FUSED = hasattr(functional, "scaled_dot_product_attention")


class LayerNormFp32(nn.LayerNorm):
    """Layer normalisation in the precision of its weights, whatever the precision of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) -> the same shape."""
        return super().forward(x.to(self.weight.dtype))


NORMALISATIONS: dict[str, Any] = {"layer": LayerNormFp32, "rms": RMSNorm}


def normalisation(model: Mapping[str, Any]) -> nn.Module:
    """Return a normalisation over the numbers at a place, with scale 1 and shift 0."""
    rule = model["normalisation"]
    made: nn.Module = NORMALISATIONS[rule["kind"]](model["width"], eps=rule["epsilon"])
    return made


class KVCache:
    """The keys and values of the positions so far, with space for `room` positions."""

    def __init__(self, room: int) -> None:
        self.room, self.filled = room, 0
        self.kept: torch.Tensor = torch.empty(0)  # keys and values (2, N, heads, room, size), from the first ones on

    @property
    def first(self) -> int:
        """The position of what comes next."""
        return self.filled

    def append(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values (N, heads, T, size) of the next positions; return those of all positions so far."""
        if not self.filled:
            samples, heads, _, size = key.shape
            # Not empty: a mask hides what is there, but not NaN.
            self.kept = key.new_zeros(2, samples, heads, self.room, size)
        begin, self.filled = self.filled, self.filled + key.shape[2]
        self.kept[0, :, :, begin : self.filled] = key
        self.kept[1, :, :, begin : self.filled] = value
        keys, values = self.kept[:, :, :, : self.filled]
        return keys, values


class StaticKVCache:
    """The same in memory of one shape, all of which is attended to, so that no shape changes with the text.

    A mask has to hide the positions after the newest one, which is a tensor (1,).
    """

    def __init__(self, kept: torch.Tensor, position: torch.Tensor) -> None:
        self.kept, self.position = kept, position

    @property
    def first(self) -> torch.Tensor:
        """The position (1,) of what comes next."""
        return self.position

    def append(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the key and the value (N, heads, 1, size) of the newest position; return those of all positions."""
        self.kept[0].index_copy_(2, self.position, key)
        self.kept[1].index_copy_(2, self.position, value)
        return self.kept[0], self.kept[1]


AnyCache = Union[KVCache, StaticKVCache]


class GenerationState(NamedTuple):
    """The state of text generation: the newest token (N, 1), and the cache of each block."""

    token: torch.Tensor
    caches: Sequence[KVCache]


class RotaryTables(NamedTuple):
    """Cosines and sines (T, size / 2) by which keys and queries of T positions are turned, alike in all layers."""

    cosine: torch.Tensor
    sine: torch.Tensor


def rotary_rates(rule: Mapping[str, Any], size: int, device: torch.device) -> torch.Tensor:
    """Return the rates (size / 2) in radians a position at which a card's rotary `positions` turn heads of a size.

    Su et al., arXiv:2104.09864. Long waves may be stretched by a factor, so that positions beyond the `original`
    context look like those within. Between waves of `original / high` and `original / low` positions, Llama 3.1 blends
    linearly in how many fit into that context, YaRN (Peng et al., arXiv:2309.00071) in the number of the rate.
    """
    half = size // 2
    numbers = torch.arange(half, device=device, dtype=torch.float32)
    base = rule.get("base", BASE)
    rates: torch.Tensor = base ** (-numbers / half)
    scaling = rule.get("scaling")
    if scaling is None:
        return rates
    low, high, context = scaling["low"], scaling["high"], scaling["original"]
    if scaling["kind"] == "yarn":
        # The numbers of the rates that turn `high` and `low` times within the original context.
        fast, slow = (half * math.log(context / (2 * math.pi * turns)) / math.log(base) for turns in (high, low))
        fast, slow = max(fast, 0.0), min(slow, size - 1.0)
        kept = ((slow - numbers) / (slow - fast)).clamp(0, 1)
    else:
        kept = ((context * rates / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return rates * (kept + (1 - kept) / scaling["factor"])


def rotary_amplitude(rule: Mapping[str, Any]) -> float:
    """Return what turned queries and keys are multiplied by: YaRN sharpens attention over stretched positions."""
    scaling = rule.get("scaling")
    return 0.1 * math.log(scaling["factor"]) + 1 if scaling and scaling["kind"] == "yarn" else 1.0


def rotary_tables(rates: torch.Tensor, first: int | torch.Tensor, length: int, amplitude: float = 1.0) -> RotaryTables:
    """Return the tables for the positions from `first` on, with halves paired as in Megatron and Llama."""
    positions = torch.arange(length, device=rates.device, dtype=torch.float32) + first
    angles = positions[:, None] * rates
    cosine, sine = angles.cos(), angles.sin()
    return RotaryTables(cosine, sine) if amplitude == 1 else RotaryTables(cosine * amplitude, sine * amplitude)


class SelfAttention(nn.Module):
    """Multi-head self-attention."""

    drops = True  # whether weights may be dropped

    def __init__(self, model: Mapping[str, Any], bias: bool = True) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = head_sizes(model)
        self.causal = model["attention"] == "causal"
        self.fused = FUSED
        self.query_key_value = nn.Linear(model["width"], (self.heads + 2 * self.kv_heads) * self.size, bias=bias)
        self.project = nn.Linear(self.heads * self.size, model["width"], bias=bias)
        self.dropout = nn.Dropout(model.get("dropout", 0.0))

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotary: RotaryTables | None = None,
        cache: AnyCache | None = None,
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape. `attention_mask` (N, 1, 1, T) is true for real tokens; None means all are.

        With a cache, x has the next positions of a text: all at once if the cache is empty, otherwise one.
        """
        projected = self.query_key_value(x)  # on one of several ranks, of all positions and some heads
        samples, length, _ = projected.shape
        query, key, value = self.divided(projected, rotary)
        if cache is not None:
            key, value = cache.append(key, value)
        attended = self.attend(query, key, value, attention_mask)
        return self.project(attended.transpose(1, 2).reshape(samples, length, -1))

    def divided(
        self, projected: torch.Tensor, rotary: RotaryTables | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, T, 3 * heads * size) -> query, key and value (N, heads, T, size), turned to their positions."""
        samples, length, _ = projected.shape
        heads = projected.view(samples, length, 3, -1, self.size)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        return query, key, value

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """(N, heads, T, size) each -> the same shape."""
        causal = self.causal and query.shape[2] > 1  # a single position is the last one, and attends to all
        return self.attended(query, key, value, attention_mask, causal)

    def attended(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        causal: bool,
    ) -> torch.Tensor:
        """Return the same, of queries that attend to all keys or, if `causal`, to those before."""
        if self.fused:
            p = self.dropout.p if self.training else 0.0
            return functional.scaled_dot_product_attention(query, key, value, attention_mask, p, causal)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (N, heads, T, T)
        if causal:
            length = scores.shape[-1]
            attention_mask = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, -math.inf)
        return self.dropout(scores.softmax(-1)) @ value


def rotate(x: torch.Tensor, tables: RotaryTables) -> torch.Tensor:
    """Apply rotary position embeddings to (N, heads, T, size), or to other shapes that the tables fit."""
    half = x.shape[-1] // 2
    cosine, sine = tables.cosine.to(x.dtype), tables.sine.to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual."""

    roles: ClassVar[Mapping[str, str]] = {
        "attention.query_key_value": roles.PACKED,
        "attention.project": roles.ROWS,
        "attention_normalisation": roles.STREAM,
        "widen": roles.COLUMNS,
        "narrow": roles.ROWS,
        "feed_forward_normalisation": roles.STREAM,
    }

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
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotary: RotaryTables | None = None,
        cache: AnyCache | None = None,
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        if self.before:
            x = x + self.dropout(self.attention(self.attention_normalisation(x), attention_mask, rotary, cache))
            return x + self.dropout(self.feed_forward(self.feed_forward_normalisation(x)))
        x = self.attention_normalisation(x + self.dropout(self.attention(x, attention_mask, rotary)))
        return self.feed_forward_normalisation(x + self.dropout(self.feed_forward(x)))

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> the same shape, through (N, T, feed_forward)."""
        return self.narrow(self.activation(self.widen(x)))


class PositionTable(nn.Embedding):
    """The embeddings of positions."""

    def forward(self, first: int | torch.Tensor, length: int) -> torch.Tensor:
        """Return those from `first` on (T, width); only the first one, if it is a tensor."""
        return super().forward(first) if isinstance(first, torch.Tensor) else self.weight[first : first + length]


class InputEmbedding(nn.Module):
    """The sum of the embeddings of tokens, positions and, if there are any, segments."""

    roles: ClassVar[Mapping[str, str]] = {
        "tokens": roles.VOCABULARY,
        "places": roles.TABLE,
        "segments": roles.TABLE,
        "normalisation": roles.STREAM,
    }

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model["vocabulary"], model["width"])
        learnt, segments = model["positions"]["kind"] == "learnt", model.get("segments")
        self.places = PositionTable(model["positions"]["most"], model["width"]) if learnt else None
        self.segments = nn.Embedding(segments, model["width"]) if segments else None
        self.normalisation = normalisation(model) if model["normalisation"]["place"] == "after" else nn.Identity()
        self.dropout = nn.Dropout(model["dropout"])

    def forward(
        self, tokens: torch.Tensor, segments: torch.Tensor | None, first: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """(N, T) each -> (N, T, width). The first token is at position `first`, the only one if that is a tensor."""
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(first, tokens.shape[1])
        if self.segments is not None:
            x = x + self.segments(segments)
        return self.dropout(self.normalisation(x))


Part = Callable[[Mapping[str, Any]], nn.Module]  # makes a part of a network from a card's `problem.model`


class Transformer(nn.Module):
    """Embedding, blocks and head. A pipeline may be cut before each of the `blocks`."""

    def __init__(self, model: Mapping[str, Any], embedding: Part, block: Part, head: Part) -> None:
        super().__init__()
        self.embedding = embedding(model)
        self.blocks = nn.ModuleList(block(model) for _ in range(model["layers"]))
        self.head: Any = head(model)
        heads = head_sizes(model)
        self.divisible = math.gcd(math.gcd(heads.heads, heads.kv_heads), model["feed_forward"])  # by ranks
        self.reads_whole = model["attention"] == "bidirectional"
        self.padded = True  # whether texts may end in padding, which has to be masked then
        self.positions, self.head_size = model["positions"], heads.size
        initialise(self, model)
        if model["head"].get("tied"):
            self.head.decoder.weight = self.embedding.tokens.weight

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor | None = None, *head_inputs: torch.Tensor) -> Any:
        """Tokens (N, T) and segments (N, T) -> the output of the head, which also gets the inputs in `head_inputs`."""
        masked = self.reads_whole and self.padded
        attention_mask = (tokens != PADDING)[:, None, None, :] if masked else None
        x = self.embedding(tokens, segments)
        rotary = self.rotary(tokens)
        for block in self.blocks:
            x = block(x, attention_mask, rotary)
        return self.head(x, *head_inputs)

    def without_effect(self) -> Iterator[nn.Parameter]:
        """Yield the last shift before a head that ignores what moves all positions alike."""
        if isinstance(self.head, Span):
            yield self.blocks[-1].feed_forward_normalisation.bias

    def rotary(self, tokens: torch.Tensor, first: int | torch.Tensor = 0) -> RotaryTables | None:
        """Return the tables of the positions of tokens (N, T) from `first` on, or None without rotary positions."""
        if self.positions["kind"] != "rotary":
            return None
        rates = rotary_rates(self.positions, self.head_size, tokens.device)
        return rotary_tables(rates, first, tokens.shape[1], rotary_amplitude(self.positions))

    def prefill(self, tokens: torch.Tensor, new: int) -> GenerationState:
        """Return the state after a text (N, T) and its likeliest next token, with room for `new` tokens."""
        return self.decode_step(GenerationState(tokens, [KVCache(tokens.shape[1] + new) for _ in self.blocks]))

    def decode_step(self, text: GenerationState) -> GenerationState:
        """Return the state after the likeliest next token."""
        first = text.caches[0].filled
        return GenerationState(self.likeliest(text.token, first, text.caches), text.caches)

    def prefill_static(
        self, tokens: torch.Tensor, new: int
    ) -> tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]]:
        """Return the likeliest next token of a text (N, T), its position (1,), and the memory of each block's cache."""
        token, caches = self.prefill(tokens, new)
        position = torch.full((1,), tokens.shape[1], dtype=torch.int64, device=tokens.device)
        return token, position, [cache.kept for cache in caches]

    def decode_step_static(
        self, token: torch.Tensor, position: torch.Tensor, kept: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the likeliest token after `token` and its position, in operations whose shapes are always the same."""
        visible = torch.arange(kept[0].shape[3], device=token.device) <= position
        caches = [StaticKVCache(memory, position) for memory in kept]
        return self.likeliest(token, position, caches, visible[None, None, None]), position + 1

    def likeliest(
        self,
        tokens: torch.Tensor,
        first: int | torch.Tensor,
        caches: Sequence[AnyCache],
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the likeliest token (N, 1) after the next ones (N, T) of texts, which begin at position `first`."""
        x = self.embedding(tokens, None, first)
        rotary = self.rotary(tokens, first)
        for block, cache in zip(self.blocks, caches):
            x = block(x, attention_mask, rotary, cache)
        token: torch.Tensor = self.head(x[:, -1:]).argmax(-1)
        return token


class NextToken(nn.Module):
    """The head of GPT: logits of the next token."""

    roles: ClassVar[Mapping[str, str]] = {"normalisation": roles.STREAM, "decoder": roles.LOGITS}
    chunked_loss = False  # whether the loss makes the logits in training, part by part

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalisation = normalisation(model)
        self.decoder = nn.Linear(model["width"], model["vocabulary"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor | LazyLogits:
        """(N, T, width) -> (N, T, vocabulary)."""
        x = self.normalisation(x)
        return LazyLogits(x, self.decoder.weight) if self.training and self.chunked_loss else self.decoder(x)


class Span(nn.Module):
    """The head for question answering: logits of the start and the end of the answer."""

    roles: ClassVar[Mapping[str, str]] = {"": roles.WHOLE}

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.ends = nn.Linear(model["width"], 2)

    def without_effect(self) -> Iterator[nn.Parameter]:
        """Yield the bias: the softmax over positions ignores what moves all of them alike."""
        yield self.ends.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) -> (N, T, 2)."""
        return self.ends(x)


class Pretraining(nn.Module):
    """The head of pre-training: the masked tokens, and whether the second segment follows the first."""

    roles: ClassVar[Mapping[str, str]] = {"": roles.WHOLE, "decoder": roles.CLASSES}

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
        if isinstance(layer, (nn.Linear, nn.Embedding, nn.Conv2d, GroupedLinear, Router)):
            ends_branch = rule["residual_scaled"] and name.rpartition(".")[2] in ("project", "narrow")
            deviation = rule["deviation"] / (math.sqrt(2 * model["layers"]) if ends_branch else 1)
            nn.init.normal_(layer.weight, std=deviation)
        if isinstance(layer, (nn.Linear, nn.Conv2d, GroupedLinear, Router)) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    return Transformer(model, InputEmbedding, Block, HEADS[model["head"]["kind"]])
