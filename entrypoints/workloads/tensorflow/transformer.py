"""Transformers (Vaswani et al., arXiv:1706.03762): GPT, which continues a text, and BERT, which reads one whole.

They are one network. GPT (Radford et al., 2019) looks back alone and normalises before each half of a block; BERT
(Devlin et al., arXiv:1810.04805) looks both ways and normalises after it. What stands on top is a head of its own.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Sequence

import tensorflow as tf

from entrypoints.workloads.tensorflow import layers
from entrypoints.workloads.tensorflow.layers import ACTIVATIONS, Chain, Dropout, LayerNormalisation, Linear, variables
from entrypoints.workloads.text import BASE, NOTHING


def normalisation(model: Mapping[str, Any]) -> LayerNormalisation:
    """Scale 1 and shift 0 at the start."""
    return LayerNormalisation(model["width"], model["normalisation"]["epsilon"])


def linear(inputs: int, outputs: int, bias: bool = True) -> Linear:
    """Zeros, until `initialise` comes."""
    return Linear(tf.zeros([outputs, inputs]), tf.zeros(outputs) if bias else None)


class KVCache:
    """What an attention keeps of the places that it has seen: keys and values (N, heads, T, size)."""

    def __init__(self, keys: tf.Tensor, values: tf.Tensor) -> None:
        self.keys, self.values = keys, values

    @property
    def filled(self) -> tf.Tensor:
        """How many places they are."""
        return tf.shape(self.keys)[2]

    def extended(self, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Keys and values (N, heads, T, size) of the next places -> those of all places so far."""
        self.keys, self.values = tf.concat([self.keys, key], 2), tf.concat([self.values, value], 2)
        return self.keys, self.values


class GenerationState(NamedTuple):
    """A text so far: its newest token (N, 1), and what each block keeps of those before."""

    token: tf.Tensor
    kept: Sequence[tuple[tf.Tensor, tf.Tensor]]  # keys and values


class SelfAttention(tf.Module):
    """Each place takes from all places that it sees, by several heads."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.heads, self.size = model["heads"], model["width"] // model["heads"]
        self.rotary = model["positions"]["kind"] == "rotary"
        self.query_key_value = linear(model["width"], 3 * model["width"])
        self.project = linear(model["width"], model["width"])
        self.dropout = Dropout(model["dropout"])

    def __call__(
        self, x: tf.Tensor, mask: tf.Tensor | None, training: bool, memory: KVCache | None = None
    ) -> tf.Tensor:
        """(N, T, width) -> the same shape. The mask (N, 1, T, T), or 1 for any of its first axes, is added to the
        scores: 0 where a place is seen, else minus infinity; None: all are.

        With a memory they are the next places of a text.
        """
        samples = tf.shape(x)[0]
        heads = tf.reshape(self.query_key_value(x, training), [samples, -1, 3, self.heads, self.size])
        query, key, value = tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]))  # (N, heads, T, size) each
        if self.rotary:
            first = memory.filled if memory else 0
            query, key = rotate(query, first), rotate(key, first)
        if memory:
            key, value = memory.extended(key, value)
        taken = tf.transpose(self.attend(query, key, value, mask, training), [0, 2, 1, 3])
        return self.project(tf.reshape(taken, [samples, -1, self.heads * self.size]), training)

    def attend(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, training: bool
    ) -> tf.Tensor:
        """(N, heads, T, size) each -> the same shape."""
        scores = tf.matmul(query / math.sqrt(self.size), key, transpose_b=True)  # (N, heads, T, T)
        if mask is not None:
            scores += mask
        return tf.matmul(self.dropout(tf.nn.softmax(scores), training), value)


def rotate(x: tf.Tensor, first: tf.Tensor | int = 0) -> tf.Tensor:
    """(N, heads, T, size) with each pair of numbers turned by an angle that grows with the place, from `first` on.

    Su et al., arXiv:2104.09864.
    """
    half = x.shape[-1] // 2
    rates = BASE ** (-tf.range(half, dtype=tf.float32) / half)
    places = tf.cast(tf.range(first, first + tf.shape(x)[2]), tf.float32)
    angles = places[:, None] * rates  # (T, size / 2)
    cosine, sine = tf.cos(angles), tf.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Block(tf.Module):
    """Attention, then two layers place by place; both are added to what came in."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.before = model["normalisation"]["place"] == "before"
        self.attention = SelfAttention(model)
        self.attention_normalisation = normalisation(model)
        self.widen = linear(model["width"], model["feed_forward"])
        self.activation = ACTIVATIONS[model["activation"]]
        self.narrow = linear(model["feed_forward"], model["width"])
        self.feed_forward_normalisation = normalisation(model)
        self.dropout = Dropout(model["dropout"])

    def __call__(
        self, x: tf.Tensor, mask: tf.Tensor | None, training: bool, memory: KVCache | None = None
    ) -> tf.Tensor:
        """(N, T, width) -> the same shape."""
        if self.before:
            taken = self.attention(self.attention_normalisation(x, training), mask, training, memory)
            x = x + self.dropout(taken, training)
            made = self.feed_forward(self.feed_forward_normalisation(x, training), training)
            return x + self.dropout(made, training)
        taken = self.attention(x, mask, training)
        x = self.attention_normalisation(x + self.dropout(taken, training), training)
        return self.feed_forward_normalisation(x + self.dropout(self.feed_forward(x, training), training), training)

    def feed_forward(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, width) -> the same shape, by way of a larger one."""
        return self.narrow(self.activation(self.widen(x, training)), training)


class InputEmbedding(tf.Module):
    """What a token is, where it stands and, where there are segments, in which: their sum."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.tokens = layers.Embedding(model["vocabulary"], model["width"])
        learnt, segments = model["positions"]["kind"] == "learnt", model.get("segments")
        self.places = layers.Embedding(model["positions"]["most"], model["width"]) if learnt else None
        self.segments = layers.Embedding(segments, model["width"]) if segments else None
        self.normalisation = normalisation(model) if model["normalisation"]["place"] == "after" else None
        self.dropout = Dropout(model["dropout"])

    def __call__(
        self, tokens: tf.Tensor, segments: tf.Tensor | None, training: bool, first: tf.Tensor | int = 0
    ) -> tf.Tensor:
        """(N, T) each -> (N, T, width). The first of the tokens stands at the place `first`."""
        x = self.tokens(tokens, training)
        if self.places is not None:
            x += self.places.weight[first : first + tf.shape(tokens)[1]]
        if self.segments is not None:
            x += self.segments(segments, training)
        if self.normalisation is not None:
            x = self.normalisation(x, training)
        return self.dropout(x, training)


class Transformer(tf.Module):
    """Embedding, blocks, head. A pipeline may be cut before every block: `blocks` and what is in it are the marks."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.embedding = InputEmbedding(model)
        self.blocks = Chain.of([Block(model) for _ in range(model["layers"])])
        self.head = HEADS[model["head"]["kind"]](model)
        self.reads_whole = model["attention"] == "bidirectional"
        initialise(self, model)
        if model["head"].get("tied"):
            self.head.decoder.weight = self.embedding.tokens.weight

    def __call__(self, tokens: tf.Tensor, segments: tf.Tensor | None = None, *asked: tf.Tensor, training: bool) -> Any:
        """Tokens (N, T) and segments (N, T) -> what the head makes of (N, T, width), and of what else is asked."""
        mask = self.mask(tokens)
        x = self.embedding(tokens, segments, training)
        for block in self.blocks:
            x = block(x, mask, training)
        return self.head(x, training, *asked)

    def mask(self, tokens: tf.Tensor) -> tf.Tensor:
        """Of tokens (N, T) what is added to scores: (N, 1, 1, T), where nothing but what holds a token is seen, or
        (T, T), where what follows is not."""
        if self.reads_whole:
            seen = (tokens != NOTHING)[:, None, None, :]
        else:
            length = tf.shape(tokens)[1]
            seen = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
        return tf.where(seen, 0.0, -math.inf)

    def begin(self, tokens: tf.Tensor) -> GenerationState:
        """A text (N, T) and its likeliest next token."""
        attention = next(iter(self.blocks)).attention
        nothing = tf.zeros([tf.shape(tokens)[0], attention.heads, 0, attention.size])
        return self.extended(tokens, self.mask(tokens), [KVCache(nothing, nothing) for _ in self.blocks])

    def follow(self, text: GenerationState) -> GenerationState:
        """The likeliest token after the newest."""
        return self.extended(text.token, None, [KVCache(*kept) for kept in text.kept])

    def extended(self, tokens: tf.Tensor, mask: tf.Tensor | None, memories: Sequence[KVCache]) -> GenerationState:
        """The next tokens (N, T) of a text, and the likeliest after them."""
        x = self.embedding(tokens, None, False, memories[0].filled)
        for block, memory in zip(self.blocks, memories):
            x = block(x, mask, False, memory)
        newest = tf.argmax(self.head(x[:, -1:], False), -1)
        return GenerationState(newest, [(memory.keys, memory.values) for memory in memories])


class NextToken(tf.Module):
    """How likely each token is to come next."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalisation = normalisation(model)
        self.decoder = linear(model["width"], model["vocabulary"], bias=False)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, width) -> (N, T, vocabulary)."""
        return self.decoder(self.normalisation(x, training), training)


class Span(tf.Module):
    """How likely an answer is to begin, and to end, at each place."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.ends = linear(model["width"], 2)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, width) -> (N, T, 2)."""
        return self.ends(x, training)


class Pretraining(tf.Module):
    """What stands at the places that were masked, and whether the second segment follows the first."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width = model["width"]
        self.transform = linear(width, width)
        self.activation = ACTIVATIONS[model["activation"]]
        self.normalisation = normalisation(model)
        self.decoder = linear(width, model["vocabulary"])
        self.pool = linear(width, width)
        self.follows = linear(width, 2)

    def __call__(self, x: tf.Tensor, training: bool, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(N, T, width) and places (N, K) -> (N, K, vocabulary) and (N, 2)."""
        masked = tf.gather(x, places, batch_dims=1)  # (N, K, width)
        transformed = self.normalisation(self.activation(self.transform(masked, training)), training)
        follows = self.follows(tf.tanh(self.pool(x[:, 0], training)), training)
        return self.decoder(transformed, training), follows


HEADS: dict[str, Any] = {
    "next_token": NextToken,
    "span": Span,
    "pretraining": Pretraining,
}


def initialise(network: tf.Module, model: Mapping[str, Any]) -> None:
    """Normal weights, where biases stay 0; what is added to what came in starts smaller, the more blocks there are."""
    rule = model["initialisation"]
    for name, weight in variables(network):
        if weight.shape.rank == 2:
            added = rule["residual_scaled"] and name.split(".")[-2] in ("project", "narrow")
            deviation = rule["deviation"] / (math.sqrt(2 * model["layers"]) if added else 1)
            weight.assign(tf.random.normal(weight.shape, stddev=deviation))


def network(model: Mapping[str, Any]) -> tf.Module:
    """The network of a card's `problem.model`."""
    return Transformer(model)
