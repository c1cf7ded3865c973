"""Transformers (Vaswani et al., arXiv:1706.03762): GPT, which continues a text, and BERT, which reads a whole text.

Both are the same network. GPT (Radford et al., 2019) attends to earlier positions only and normalises before each half
of a block; BERT (Devlin et al., arXiv:1810.04805) attends to all positions and normalises after it. Each has its head.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import tensorflow as tf

from entrypoints.workloads.tensorflow import layers
from entrypoints.workloads.tensorflow.layers import ACTIVATIONS, Chain, Dropout, LayerNormalisation, Linear, variables
from entrypoints.workloads.text import BASE, PADDING


def normalisation(model: Mapping[str, Any]) -> LayerNormalisation:
    """Return a layer normalisation with scale 1 and shift 0."""
    return LayerNormalisation(model["width"], model["normalisation"]["epsilon"])


def linear(inputs: int, outputs: int, bias: bool = True) -> Linear:
    """Return a linear layer of zeros, which `initialise` sets."""
    return Linear(tf.zeros([outputs, inputs]), tf.zeros(outputs) if bias else None)


class KVCache:
    """The keys and values (N, heads, T, size) of the positions so far."""

    def __init__(self, keys: tf.Tensor, values: tf.Tensor) -> None:
        self.keys, self.values = keys, values

    @property
    def filled(self) -> tf.Tensor:
        """Return the number of cached positions."""
        return tf.shape(self.keys)[2]

    def append(self, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Append keys and values (N, heads, T, size) of the next positions; return those of all positions so far."""
        self.keys, self.values = tf.concat([self.keys, key], 2), tf.concat([self.values, value], 2)
        return self.keys, self.values


class GenerationState(NamedTuple):
    """The state of text generation: the newest token (N, 1), and the cache of each block."""

    token: tf.Tensor
    kept: Sequence[tuple[tf.Tensor, tf.Tensor]]  # keys and values


class SelfAttention(tf.Module):
    """Multi-head self-attention."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.heads, self.size = model["heads"], model["width"] // model["heads"]
        self.rotary = model["positions"]["kind"] == "rotary"
        self.query_key_value = linear(model["width"], 3 * model["width"])
        self.project = linear(model["width"], model["width"])
        self.dropout = Dropout(model["dropout"])

    def __call__(
        self, x: tf.Tensor, attention_mask: tf.Tensor | None, training: bool, cache: KVCache | None = None
    ) -> tf.Tensor:
        """(N, T, width) -> the same shape.

        `attention_mask` (N, 1, T, T), any of whose first three axes may be 1, is added to the scores: 0 for positions
        to attend to, minus infinity for others. None means all positions. With a cache, x has the next positions.
        """
        samples = tf.shape(x)[0]
        heads = tf.reshape(self.query_key_value(x, training), [samples, -1, 3, self.heads, self.size])
        query, key, value = tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]))  # (N, heads, T, size) each
        if self.rotary:
            first = cache.filled if cache else 0
            query, key = rotate(query, first), rotate(key, first)
        if cache:
            key, value = cache.append(key, value)
        attended = tf.transpose(self.attend(query, key, value, attention_mask, training), [0, 2, 1, 3])
        return self.project(tf.reshape(attended, [samples, -1, self.heads * self.size]), training)

    def attend(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, attention_mask: tf.Tensor | None, training: bool
    ) -> tf.Tensor:
        """(N, heads, T, size) each -> the same shape."""
        scores = tf.matmul(query / math.sqrt(self.size), key, transpose_b=True)  # (N, heads, T, T)
        if attention_mask is not None:
            scores += tf.cast(attention_mask, scores.dtype)
        shares = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), value.dtype)
        return tf.matmul(self.dropout(shares, training), value)


def rotate(x: tf.Tensor, first: tf.Tensor | int = 0) -> tf.Tensor:
    """Apply rotary position embeddings to (N, heads, T, size), the positions counted from `first`.

    Su et al., arXiv:2104.09864, with halves paired as in Megatron and Llama.
    """
    half = x.shape[-1] // 2
    rates = BASE ** (-tf.range(half, dtype=tf.float32) / half)
    positions = tf.cast(tf.range(first, first + tf.shape(x)[2]), tf.float32)
    angles = positions[:, None] * rates  # (T, size / 2)
    cosine, sine = (tf.cast(function(angles), x.dtype) for function in (tf.cos, tf.sin))
    first, second = x[..., :half], x[..., half:]
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Block(tf.Module):
    """Attention and a feed-forward network, each with a residual."""

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
        self, x: tf.Tensor, attention_mask: tf.Tensor | None, training: bool, cache: KVCache | None = None
    ) -> tf.Tensor:
        """(N, T, width) -> the same shape."""
        if self.before:
            attended = self.attention(self.attention_normalisation(x, training), attention_mask, training, cache)
            x = x + self.dropout(attended, training)
            transformed = self.feed_forward(self.feed_forward_normalisation(x, training), training)
            return x + self.dropout(transformed, training)
        attended = self.attention(x, attention_mask, training)
        x = self.attention_normalisation(x + self.dropout(attended, training), training)
        return self.feed_forward_normalisation(x + self.dropout(self.feed_forward(x, training), training), training)

    def feed_forward(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, width) -> the same shape, through (N, T, feed_forward)."""
        return self.narrow(self.activation(self.widen(x, training)), training)


class InputEmbedding(tf.Module):
    """The sum of the embeddings of tokens, positions and, if there are any, segments."""

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
        """(N, T) each -> (N, T, width). The first token is at position `first`."""
        x = self.tokens(tokens, training)
        if self.places is not None:
            x += tf.cast(self.places.weight[first : first + tf.shape(tokens)[1]], x.dtype)
        if self.segments is not None:
            x += self.segments(segments, training)
        if self.normalisation is not None:
            x = self.normalisation(x, training)
        return self.dropout(x, training)


class Transformer(tf.Module):
    """Embedding, blocks and head. A pipeline may be cut before each of the `blocks`."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.embedding = InputEmbedding(model)
        self.blocks = Chain.of([Block(model) for _ in range(model["layers"])])
        self.head = HEADS[model["head"]["kind"]](model)
        self.reads_whole = model["attention"] == "bidirectional"
        initialise(self, model)
        if model["head"].get("tied"):
            self.head.decoder.weight = self.embedding.tokens.weight

    def __call__(
        self, tokens: tf.Tensor, segments: tf.Tensor | None = None, *head_inputs: tf.Tensor, training: bool
    ) -> Any:
        """Tokens (N, T) and segments (N, T) -> the output of the head, which also gets the inputs in `head_inputs`."""
        attention_mask = self.mask(tokens)
        x = self.embedding(tokens, segments, training)
        for block in self.blocks:
            x = block(x, attention_mask, training)
        return self.head(x, training, *head_inputs)

    def without_effect(self) -> Iterator[tf.Variable]:
        """Yield the last shift before a head that ignores what moves all positions alike."""
        if isinstance(self.head, Span):
            *_, last = self.blocks
            yield last.feed_forward_normalisation.bias

    def mask(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return the mask that is added to scores, for tokens (N, T).

        It is (N, 1, 1, T) and hides padding, or (T, T) and hides later positions.
        """
        if self.reads_whole:
            attended = (tokens != PADDING)[:, None, None, :]
        else:
            length = tf.shape(tokens)[1]
            attended = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
        return tf.where(attended, 0.0, -math.inf)

    def prefill(self, tokens: tf.Tensor) -> GenerationState:
        """Return the state after a text (N, T) and its likeliest next token."""
        attention = next(iter(self.blocks)).attention
        empty = tf.zeros([tf.shape(tokens)[0], attention.heads, 0, attention.size], attention.project.dtype)
        return self.append(tokens, self.mask(tokens), [KVCache(empty, empty) for _ in self.blocks])

    def decode_step(self, text: GenerationState) -> GenerationState:
        """Return the state after the likeliest next token."""
        return self.append(text.token, None, [KVCache(*kept) for kept in text.kept])

    def append(self, tokens: tf.Tensor, attention_mask: tf.Tensor | None, caches: Sequence[KVCache]) -> GenerationState:
        """Append tokens (N, T) to a text; return the state after the likeliest next token."""
        x = self.embedding(tokens, None, False, caches[0].filled)
        for block, cache in zip(self.blocks, caches):
            x = block(x, attention_mask, False, cache)
        newest = tf.argmax(self.head(x[:, -1:], False), -1)
        return GenerationState(newest, [(cache.keys, cache.values) for cache in caches])


class NextToken(tf.Module):
    """The head of GPT: logits of the next token."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalisation = normalisation(model)
        self.decoder = linear(model["width"], model["vocabulary"], bias=False)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, width) -> (N, T, vocabulary)."""
        return self.decoder(self.normalisation(x, training), training)


class Span(tf.Module):
    """The head for question answering: logits of the start and the end of the answer."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.ends = linear(model["width"], 2)

    def without_effect(self) -> Iterator[tf.Variable]:
        """Yield the bias: the softmax over positions ignores what moves all of them alike."""
        yield self.ends.bias

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, width) -> (N, T, 2)."""
        return self.ends(x, training)


class Pretraining(tf.Module):
    """The head of pre-training: the masked tokens, and whether the second segment follows the first."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width = model["width"]
        self.transform = linear(width, width)
        self.activation = ACTIVATIONS[model["activation"]]
        self.normalisation = normalisation(model)
        self.decoder = linear(width, model["vocabulary"])
        self.pool = linear(width, width)
        self.follows = linear(width, 2)

    def __call__(self, x: tf.Tensor, training: bool, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(N, T, width) and positions (N, K) -> (N, K, vocabulary) and (N, 2)."""
        masked = tf.gather(x, positions, batch_dims=1)  # (N, K, width)
        transformed = self.normalisation(self.activation(self.transform(masked, training)), training)
        follows = self.follows(tf.tanh(self.pool(x[:, 0], training)), training)
        return self.decoder(transformed, training), follows


HEADS: dict[str, Any] = {
    "next_token": NextToken,
    "span": Span,
    "pretraining": Pretraining,
}


def initialise(network: tf.Module, model: Mapping[str, Any]) -> None:
    """Set normal weights; biases stay 0. Layers that end a residual branch start smaller in deeper networks."""
    rule = model["initialisation"]
    for name, weight in variables(network):
        if weight.shape.rank == 2:
            ends_branch = rule["residual_scaled"] and name.split(".")[-2] in ("project", "narrow")
            deviation = rule["deviation"] / (math.sqrt(2 * model["layers"]) if ends_branch else 1)
            weight.assign(tf.random.normal(weight.shape, stddev=deviation))


def network(model: Mapping[str, Any]) -> tf.Module:
    """Return the network of a card's `problem.model`."""
    return Transformer(model)
