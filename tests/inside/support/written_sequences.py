"""Networks over text and series in sums and products, without any code of ours and without dropout."""

from __future__ import annotations

import math
from types import MappingProxyType

import torch
from torch import nn


class Parameters(nn.Module):
    """Parameters by name, in order, each of a kind that weight decay asks for."""

    def __init__(self):
        super().__init__()
        self.all = nn.ParameterList()
        self.kinds, self.places = [], {}

    def add(self, name, kind, value):
        self.places[name] = len(self.kinds)
        self.kinds.append(kind)
        self.all.append(nn.Parameter(value))

    def __getitem__(self, name):
        return self.all[self.places[name]]

    def linear(self, name, inputs, outputs, deviation):
        self.add(f"{name} weight", "matrix", torch.randn(outputs, inputs) * deviation)
        self.add(f"{name} bias", "bias", torch.zeros(outputs))

    def apply_linear(self, name, x):
        return x @ self[f"{name} weight"].t() + self[f"{name} bias"]


class Text(Parameters):
    """A transformer of the cards."""

    def __init__(self, model):
        super().__init__()
        self.model, width, words = model, model["width"], model["vocabulary"]
        deviation = model["initialisation"]["deviation"]
        last = deviation
        if model["initialisation"]["residual_scaled"]:
            last = deviation / math.sqrt(2 * model["layers"])
        self.head, self.after = model["head"]["kind"], model["normalisation"]["place"] == "after"
        self.learnt = model["positions"]["kind"] == "learnt"
        self.table("words", words, deviation)
        if self.learnt:
            self.table("places", model["positions"]["most"], deviation)
        if "segments" in model:
            self.table("segments", model["segments"], deviation)
        if self.after:
            self.norm("first norm")
        for block in range(model["layers"]):
            self.linear(f"{block} inwards", width, 3 * width, deviation)
            self.linear(f"{block} outwards", width, width, last)
            self.norm(f"{block} attention norm")
            self.linear(f"{block} wide", width, model["feed_forward"], deviation)
            self.linear(f"{block} narrow", model["feed_forward"], width, last)
            self.norm(f"{block} feed norm")
        if self.head == "next_token":
            self.norm("last norm")
            if not model["head"]["tied"]:
                self.add("output", "matrix", torch.randn(words, width) * deviation)
        elif self.head == "span":
            self.linear("span", width, 2, deviation)
        else:
            self.linear("transform", width, width, deviation)
            self.norm("last norm")
            self.add("output bias", "bias", torch.zeros(words))
            self.linear("pool", width, width, deviation)
            self.linear("follows", width, 2, deviation)

    def table(self, name, size, deviation):
        self.add(name, "embedding", torch.randn(size, self.model["width"]) * deviation)

    def norm(self, name):
        self.add(f"{name} scale", "normalisation", torch.ones(self.model["width"]))
        self.add(f"{name} shift", "normalisation", torch.zeros(self.model["width"]))

    def normed(self, name, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        scaled = (x - mean) / torch.sqrt(variance + self.model["normalisation"]["epsilon"])
        return scaled * self[f"{name} scale"] + self[f"{name} shift"]

    def active(self, x):
        if self.model["activation"] == "gelu":
            return x * (1 + torch.erf(x / math.sqrt(2))) / 2
        return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def attention(self, block, x, attention_mask):
        size = self.model["width"] // self.model["heads"]
        queries, keys, values = self.apply_linear(f"{block} inwards", x).chunk(3, -1)
        parts = []
        for head in range(self.model["heads"]):
            q, k, v = (part[..., head * size : (head + 1) * size] for part in (queries, keys, values))
            if not self.learnt:
                q, k = turned(q), turned(k)
            scores = torch.einsum("nis,njs->nij", q, k) / math.sqrt(size)
            parts.append(torch.softmax(scores.masked_fill(~attention_mask, -math.inf), -1) @ v)
        return self.apply_linear(f"{block} outwards", torch.cat(parts, -1))

    def feed(self, block, x):
        return self.apply_linear(f"{block} narrow", self.active(self.apply_linear(f"{block} wide", x)))

    def forward(self, tokens, segments=None, places=None):
        length = tokens.shape[1]
        attention_mask = torch.ones(length, length, dtype=torch.bool)[None]
        attention_mask = (
            attention_mask.tril() if self.model["attention"] == "causal" else attention_mask & (tokens != 0)[:, None]
        )
        x = self["words"][tokens]
        if self.learnt:
            x = x + self["places"][:length]
        if segments is not None:
            x = x + self["segments"][segments]
        if self.after:
            x = self.normed("first norm", x)
        for block in range(self.model["layers"]):
            if self.after:
                x = self.normed(f"{block} attention norm", x + self.attention(block, x, attention_mask))
                x = self.normed(f"{block} feed norm", x + self.feed(block, x))
            else:
                x = x + self.attention(block, self.normed(f"{block} attention norm", x), attention_mask)
                x = x + self.feed(block, self.normed(f"{block} feed norm", x))
        if self.head == "span":
            return self.apply_linear("span", x)
        if self.head == "next_token":
            output = self["words" if self.model["head"]["tied"] else "output"]
            return self.normed("last norm", x) @ output.t()
        picked = torch.stack([states[at] for states, at in zip(x, places)])
        changed = self.normed("last norm", self.active(self.apply_linear("transform", picked)))
        first = torch.tanh(self.apply_linear("pool", x[:, 0]))
        return changed @ self["words"].t() + self["output bias"], self.apply_linear("follows", first)


def turned(x, positions=MappingProxyType({})):
    """As complex numbers, real parts in the first half, each turned by its place."""
    half = x.shape[-1] // 2
    rates = positions.get("base", 10000.0) ** (-torch.arange(half).double() / half)
    if "scaling" in positions:
        rates = torch.tensor([stretched(float(rate), **positions["scaling"]) for rate in rates]).double()
    angles = torch.arange(x.shape[-2]).double()[:, None] * rates
    made = torch.complex(x[..., :half].double(), x[..., half:].double()) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([made.real, made.imag], -1).to(x.dtype)


class Decoder(Parameters):
    """A decoder of the cards."""

    def __init__(self, model):
        super().__init__()
        self.model, width, words = model, model["width"], model["vocabulary"]
        self.queries, self.keys, self.size = model["heads"] // model["kv_heads"], model["kv_heads"], model["head_size"]
        deviation = model["initialisation"]["deviation"]
        last = deviation / math.sqrt(2 * model["layers"])
        self.add("words", "embedding", torch.randn(words, width) * deviation)
        for block in range(model["layers"]):
            self.norm(f"{block} attention norm")
            self.adapted(f"{block} inwards", width, self.keys * (self.queries + 2) * self.size, deviation)
            self.adapted(f"{block} outwards", model["heads"] * self.size, width, last)
            self.norm(f"{block} feed norm")
            self.matrix(f"{block} gate", width, model["feed_forward"], deviation)
            self.matrix(f"{block} wide", width, model["feed_forward"], deviation)
            self.matrix(f"{block} narrow", model["feed_forward"], width, last)
        self.norm("last norm")
        if not model["head"]["tied"]:
            self.matrix("output", width, words, deviation)
        if "adapter" in model:
            for name, place in self.places.items():
                self.all[place].requires_grad_(name.endswith((" down", " up")))

    def norm(self, name):
        self.add(name, "normalisation", torch.ones(self.model["width"]))

    def matrix(self, name, inputs, outputs, deviation):
        self.add(name, "matrix", torch.randn(outputs, inputs) * deviation)

    def adapted(self, name, inputs, outputs, deviation):
        self.matrix(name, inputs, outputs, deviation)
        if "adapter" in self.model:
            rank = self.model["adapter"]["rank"]
            self.add(f"{name} down", "matrix", (2 * torch.rand(rank, inputs) - 1) / math.sqrt(inputs))
            self.add(f"{name} up", "matrix", torch.zeros(outputs, rank))

    def apply_adapted(self, name):
        """The matrix with what is added to it."""
        if "adapter" not in self.model:
            return self[name]
        rule = self.model["adapter"]
        return self[name] + rule["alpha"] / rule["rank"] * self[f"{name} up"] @ self[f"{name} down"]

    def normed(self, name, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.model["normalisation"]["epsilon"]) * self[name]

    def attention(self, block, x):
        length = x.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        rows = iter(self.apply_adapted(f"{block} inwards").split(self.size))
        parts = []
        for _ in range(self.keys):
            queries = [turned(x @ next(rows).t(), self.model["positions"]) for _ in range(self.queries)]
            key, value = turned(x @ next(rows).t(), self.model["positions"]), x @ next(rows).t()
            for query in queries:
                scores = torch.einsum("nis,njs->nij", query, key) / math.sqrt(self.size)
                parts.append(torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ value)
        return torch.cat(parts, -1) @ self.apply_adapted(f"{block} outwards").t()

    def feed(self, block, x):
        gate = x @ self[f"{block} gate"].t()
        return (gate / (1 + torch.exp(-gate)) * (x @ self[f"{block} wide"].t())) @ self[f"{block} narrow"].t()

    def forward(self, tokens):
        x = self["words"][tokens]
        for block in range(self.model["layers"]):
            x = x + self.attention(block, self.normed(f"{block} attention norm", x))
            x = x + self.feed(block, self.normed(f"{block} feed norm", x))
        return self.normed("last norm", x) @ self["words" if self.model["head"]["tied"] else "output"].t()


def stretched(rate, kind, factor, low, high, original):
    """The rate of a wave in Llama 3.1."""
    assert kind == "llama3"
    length = 2 * math.pi / rate
    if length < original / high:
        return rate
    if length > original / low:
        return rate / factor
    share = (original / length - low) / (high - low)
    return (1 - share) * rate / factor + share * rate


class Series(nn.Module):
    """Memory cells step by step, by PyTorch's own cell, and a linear layer."""

    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        sizes = [model["features"], *[hidden] * (model["layers"] - 1)]
        self.cells = nn.ModuleList(nn.LSTMCell(size, hidden) for size in sizes)
        self.last = nn.Linear(hidden, model["outputs"])
        self.hidden = hidden

    def forward(self, series):
        steps = series.unbind(1)
        for cell in self.cells:
            state = [series.new_zeros(len(series), self.hidden)] * 2
            states = []
            for step in steps:
                state = cell(step, tuple(state))
                states.append(state[0])
            steps = states
        return self.last(steps[-1])


NETWORKS = {"transformer": Text, "decoder": Decoder, "lstm": Series}
