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
    base, scaling = positions.get("base", 10000.0), positions.get("scaling", {})
    rates = base ** (-torch.arange(half).double() / half)
    amplitude = 1.0
    if scaling.get("kind") == "llama3":
        rates = torch.tensor([stretched(float(rate), **scaling) for rate in rates]).double()
    elif scaling:
        rates = torch.tensor([yarn(number, half, base, **scaling) for number in range(half)]).double()
        amplitude = 0.1 * math.log(scaling["factor"]) + 1
    angles = torch.arange(x.shape[-2]).double()[:, None] * rates
    turns = torch.polar(torch.full_like(angles, amplitude), angles)
    made = torch.complex(x[..., :half].double(), x[..., half:].double()) * turns
    return torch.cat([made.real, made.imag], -1).to(x.dtype)


class Decoder(Parameters):
    """A decoder of the cards."""

    def __init__(self, model):
        super().__init__()
        self.model, width, words = model, model["width"], model["vocabulary"]
        self.queries, self.keys, self.size = model["heads"] // model["kv_heads"], model["kv_heads"], model["head_size"]
        self.deviation = deviation = model["initialisation"]["deviation"]
        last = deviation
        if model["initialisation"]["residual_scaled"]:
            last = deviation / math.sqrt(2 * model["layers"])
        self.add("words", "embedding", torch.randn(words, width) * deviation)
        for block in range(model["layers"]):
            self.norm(f"{block} attention norm")
            if "sinks" in model:
                self.add(f"{block} sinks", "vector", torch.randn(model["heads"]) * deviation)
            self.adapted(f"{block} inwards", width, self.keys * (self.queries + 2) * self.size, deviation)
            self.adapted(f"{block} outwards", model["heads"] * self.size, width, last)
            if "query_key_normalisation" in model:
                whole = model["query_key_normalisation"] == "whole"
                for name, heads in (("query", model["heads"]), ("key", self.keys)):
                    self.norm(f"{block} {name} norm", heads * self.size if whole else self.size)
            self.norm(f"{block} feed norm")
            inner = model["feed_forward"]
            if "experts" in model:
                count = model["experts"]["count"]
                self.biased(f"{block} router", width, count, deviation)
                self.biased(f"{block} wide", width, count * 2 * inner, deviation)
                self.biased(f"{block} narrow", inner, count * width, last)
                continue
            self.matrix(f"{block} gate", width, inner, deviation)
            self.matrix(f"{block} wide", width, inner, deviation)
            self.matrix(f"{block} narrow", inner, width, last)
        self.norm("last norm")
        if not model["head"]["tied"]:
            self.matrix("output", width, words, deviation)
        if "adapter" in model:
            for name, place in self.places.items():
                self.all[place].requires_grad_(name.endswith((" down", " up")))

    def norm(self, name, size=None):
        self.add(name, "normalisation", torch.ones(size or self.model["width"]))

    def matrix(self, name, inputs, outputs, deviation):
        self.add(name, "matrix", torch.randn(outputs, inputs) * deviation)

    def biased(self, name, inputs, outputs, deviation):
        self.matrix(name, inputs, outputs, deviation)
        if self.model.get("biases"):
            self.add(f"{name} bias", "bias", torch.zeros(outputs))

    def bias(self, name):
        return self[f"{name} bias"] if self.model.get("biases") else 0

    def adapted(self, name, inputs, outputs, deviation):
        self.biased(name, inputs, outputs, deviation)
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

    def heads_normed(self, name, heads):
        """Heads in order, each (N, T, size), normalised one by one or as one vector."""
        kind = self.model.get("query_key_normalisation")
        if kind == "heads":
            return [self.normed(name, head) for head in heads]
        return self.normed(name, torch.cat(heads, -1)).split(self.size, -1) if kind else heads

    def attention(self, block, x):
        projected = x @ self.apply_adapted(f"{block} inwards").t() + self.bias(f"{block} inwards")
        groups = [part.split(self.size, -1) for part in projected.split((self.queries + 2) * self.size, -1)]
        queries = self.heads_normed(f"{block} query norm", [each for group in groups for each in group[:-2]])
        keys = self.heads_normed(f"{block} key norm", [group[-2] for group in groups])
        parts = []
        for head, query in enumerate(queries):
            key, value = keys[head // self.queries], groups[head // self.queries][-1]
            q, k = turned(query, self.model["positions"]), turned(key, self.model["positions"])
            parts.append(self.attended(block, head, torch.einsum("nis,njs->nij", q, k) / math.sqrt(self.size)) @ value)
        return torch.cat(parts, -1) @ self.apply_adapted(f"{block} outwards").t() + self.bias(f"{block} outwards")

    def attended(self, block, head, scores):
        """Weights from the scores of a head, of which some places are hidden."""
        length = scores.shape[-1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        if "window" in self.model and block % 2 == 0:
            hidden |= torch.ones(length, length, dtype=torch.bool).tril(-self.model["window"])
        shares = scores.exp().masked_fill(hidden, 0)
        sink = self[f"{block} sinks"][head].exp() if "sinks" in self.model else 0
        return shares / (shares.sum(-1, keepdim=True) + sink)

    def feed(self, block, x):
        if "experts" in self.model:
            return self.mixture(block, x)
        gate = x @ self[f"{block} gate"].t()
        return (gate / (1 + torch.exp(-gate)) * (x @ self[f"{block} wide"].t())) @ self[f"{block} narrow"].t()

    def mixture(self, block, x):
        """Every expert of every token, with a weight of 0 unless it is chosen."""
        rule = self.model["experts"]
        scores = x @ self[f"{block} router"].t() + self.bias(f"{block} router")
        if rule["routing"] == "learnt":
            chosen = scores >= scores.sort(-1)[0][..., -rule["per_token"], None]
        else:
            chosen = torch.zeros_like(scores, dtype=torch.bool)
            for text in range(x.shape[0]):
                for place in range(x.shape[1]):
                    turn = rule["per_token"] * (x.shape[0] - 1 - text + place)
                    chosen[text, place, [(turn + each) % rule["count"] for each in range(rule["per_token"])]] = True
        weights = scores.softmax(-1) * chosen
        if rule["renormalised"]:
            weights = weights / weights.sum(-1, keepdim=True)
        layers = ("wide", 2 * self.model["feed_forward"]), ("narrow", self.model["width"])
        made = 0
        for expert in range(rule["count"]):
            (wide, narrow) = (
                (
                    self[f"{block} {name}"][expert * size :][:size],
                    self.of_expert(self.bias(f"{block} {name}"), expert, size),
                )
                for name, size in layers
            )
            gate, other = (x @ wide[0].t() + wide[1]).chunk(2, -1)
            made = made + weights[..., expert, None] * (self.gated(gate, other) @ narrow[0].t() + narrow[1])
        return made

    @staticmethod
    def of_expert(bias, expert, size):
        return bias if isinstance(bias, int) else bias[expert * size :][:size]

    def gated(self, gate, other):
        limit = self.model["experts"].get("limit")
        if self.model["activation"] == "swiglu":
            return gate / (1 + torch.exp(-gate)) * other
        gate, other = torch.clamp(gate, max=limit), torch.clamp(other, -limit, limit)
        return gate / (1 + torch.exp(-1.702 * gate)) * (other + 1)

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


def yarn(number, half, base, kind, factor, low, high, original):
    """The rate with a number in YaRN."""
    assert kind == "yarn"
    rate = base ** (-number / half)

    def number_of(turns):
        return half * math.log(original / (turns * 2 * math.pi)) / math.log(base)

    begin, end = max(number_of(high), 0), min(number_of(low), 2 * half - 1)
    share = min(max((number - begin) / (end - begin), 0), 1)
    return (1 - share) * rate + share * rate / factor


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
