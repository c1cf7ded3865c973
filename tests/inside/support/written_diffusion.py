"""Diffusion transformers in sums and products, without any code of ours."""

from __future__ import annotations

import math

import torch
from written_sequences import Parameters


def glorot(outputs, inputs):
    return (2 * torch.rand(outputs, inputs) - 1) * math.sqrt(6 / (inputs + outputs))


def silu(x):
    return x / (1 + torch.exp(-x))


def gelu(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rates(width):
    """Of as many waves as two stand for a number each."""
    return [10000.0 ** (-2 * wave / width) for wave in range(width // 2)]


class Denoiser(Parameters):
    """What both networks have."""

    def __init__(self, model):
        super().__init__()
        self.model, self.width, self.inner = model, model["width"], model["feed_forward"]
        self.channels, height, width = model["latents"]
        self.patch, self.size = model["patch"], self.width // model["heads"]
        self.at = [(row, column) for row in range(height // self.patch) for column in range(width // self.patch)]
        self.layers = ("last", "variance") if model["learns_variance"] else ("last",)

    def normal(self, name, inputs, outputs, kind="modulation"):
        self.linear(name, inputs, outputs, self.model["initialisation"][f"{kind}_deviation"])

    def uniform(self, name, inputs, outputs, shape=None):
        self.add(f"{name} weight", "matrix", glorot(outputs, inputs).view(shape or (outputs, inputs)))
        self.add(f"{name} bias", "bias", torch.zeros(outputs))

    def patches(self):
        inputs = self.channels * self.patch**2
        self.uniform("patches", inputs, self.width, (self.width, self.channels, self.patch, self.patch))

    def times(self):
        self.normal("time 1", self.model["time"]["width"], self.width, "embedding")
        self.normal("time 2", self.width, self.width, "embedding")

    def last(self):
        self.normal("last modulation", self.width, 2 * self.width)
        for name in self.layers:
            self.normal(name, self.width, self.channels * self.patch**2)

    def half(self, name, attention):
        self.normal(f"{name} modulation", self.width, 6 * self.width)
        attention()
        self.uniform(f"{name} wide", self.width, self.inner)
        self.uniform(f"{name} narrow", self.inner, self.width)

    def embedded(self, latents):
        weight = self["patches weight"].flatten(1)
        size = self.patch
        cut = [latents[:, :, size * y : size * (y + 1), size * x : size * (x + 1)].flatten(1) for y, x in self.at]
        return torch.stack([part @ weight.t() + self["patches bias"] for part in cut], 1)

    def told(self, times):
        factor, given = self.model["time"]["factor"], self["time 1 weight"]
        angles = [[factor * float(time) * rate for rate in rates(self.model["time"]["width"])] for time in times]
        numbers = [[*map(math.cos, each), *map(math.sin, each)] for each in angles]
        return self.two_layers("time", torch.tensor(numbers, dtype=given.dtype))

    def two_layers(self, name, x):
        return self.apply_linear(f"{name} 2", silu(self.apply_linear(f"{name} 1", x)))

    def modulations(self, name, condition):
        return self.apply_linear(name, silu(condition)).split(self.width, -1)

    def modulated(self, x, shift, scale):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        normed = (x - mean) / torch.sqrt(variance + self.model["normalisation"]["epsilon"])
        return normed + normed * scale[:, None, :] + shift[:, None, :]

    def feed(self, name, x):
        return self.apply_linear(f"{name} narrow", gelu(self.apply_linear(f"{name} wide", x)))

    def heads(self, x):
        return x.split(self.size, -1)

    def attention(self, queries, keys, values):
        parts = []
        for query, key, value in zip(queries, keys, values):
            scores = torch.einsum("nis,njs->nij", query, key) / math.sqrt(self.size)
            parts.append(torch.softmax(scores, -1) @ value)
        return torch.cat(parts, -1)

    def predicted(self, x, condition):
        x = self.modulated(x, *self.modulations("last modulation", condition))
        return torch.cat([self.image(self.apply_linear(name, x)) for name in self.layers], 1)

    def image(self, x):
        (_, height, width), size = self.model["latents"], self.patch
        image = x.new_zeros(len(x), self.channels, height, width)
        for place, (row, column) in enumerate(self.at):
            part = x[:, place].view(len(x), self.channels, size, size)
            image[:, :, size * row : size * (row + 1), size * column : size * (column + 1)] = part
        return image


class Dit(Denoiser):
    """DiT of the cards."""

    def __init__(self, model):
        super().__init__(model)
        places = []
        for row, column in self.at:
            angles = [[at * rate for rate in rates(self.width // 2)] for at in (column, row)]
            places.append([function(angle) for each in angles for function in (math.sin, math.cos) for angle in each])
        self.add("places", "given", torch.tensor(places))
        self["places"].given = True  # not learnt, and not set by the formula
        self["places"].requires_grad_(False)
        self.patches()
        self.times()
        deviation = model["initialisation"]["embedding_deviation"]
        self.add("classes", "embedding", torch.randn(model["condition"]["classes"] + 1, self.width) * deviation)
        for block in range(model["layers"]):
            self.half(block, lambda block=block: self.attention_layers(block))
        self.last()

    def attention_layers(self, block):
        self.uniform(f"{block} inwards", self.width, 3 * self.width)
        self.uniform(f"{block} outwards", self.width, self.width)

    def forward(self, latents, noise, times, labels):
        rule = self.model["noise"]
        kept, left = [], 1.0
        for step in range(rule["steps"]):
            left *= 1 - (rule["first"] + (rule["last"] - rule["first"]) * step / (rule["steps"] - 1))
            kept.append(left)
        shares = torch.tensor(kept).to(latents.dtype)[times][:, None, None, None]  # as single precision has them
        x = self.embedded(torch.sqrt(shares) * latents + torch.sqrt(1 - shares) * noise) + self["places"]
        condition = self.told(times) + self["classes"][labels]
        for block in range(self.model["layers"]):
            shift, scale, gate, *others = self.modulations(f"{block} modulation", condition)
            given = self.apply_linear(f"{block} inwards", self.modulated(x, shift, scale))
            attended = self.attention(*map(self.heads, given.split(self.width, -1)))
            x = x + gate[:, None] * self.apply_linear(f"{block} outwards", attended)
            shift, scale, gate = others
            x = x + gate[:, None] * self.feed(block, self.modulated(x, shift, scale))
        return self.predicted(x, condition)


class Flux(Denoiser):
    """FLUX.1 of the cards."""

    def __init__(self, model):
        super().__init__(model)
        rule = model["condition"]
        self.patches()
        self.uniform("text", rule["text_width"], self.width)
        self.times()
        self.normal("vector 1", rule["vector"], self.width, "embedding")
        self.normal("vector 2", self.width, self.width, "embedding")
        for block in range(model["double_layers"]):
            for which in ("text", "image"):
                name = f"{block} {which}"
                self.half(name, lambda name=name: self.attention_layers(name))
        for block in range(model["single_layers"]):
            name = f"{block} single"
            self.normal(f"{name} modulation", self.width, 3 * self.width)
            self.attention_layers(name, self.inner)
        self.last()

    def attention_layers(self, name, inner=0):
        self.uniform(f"{name} inwards", self.width, 3 * self.width + inner)
        self.uniform(f"{name} outwards", self.width + inner, self.width)
        for which in ("query", "key"):
            self.add(f"{name} {which}", "normalisation", torch.ones(self.size))

    def scaled(self, name, x):
        """A head, divided by its root mean square."""
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.model["normalisation"]["epsilon"]) * self[name]

    def turned(self, x, places):
        """As complex numbers, real parts in the first half, each turned by its place on its axis."""
        half = self.size // 2
        turns = []
        for place in places:
            axes = zip(place, self.model["positions"]["axes"])
            turns.append([at * rate for at, width in axes for rate in rates(width)])
        angles = torch.tensor(turns, dtype=torch.float64)
        made = torch.complex(x[..., :half].double(), x[..., half:].double())
        made = made * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([made.real, made.imag], -1).to(x.dtype)

    def divided(self, name, given, places):
        query, key, value = map(self.heads, given.split(self.width, -1))
        query = [self.turned(self.scaled(f"{name} query", head), places) for head in query]
        key = [self.turned(self.scaled(f"{name} key", head), places) for head in key]
        return query, key, value

    def forward(self, latents, noise, times, text, vector):
        shares = times[:, None, None, None]
        image = self.embedded(latents + shares * (noise - latents))
        text, condition = self.apply_linear("text", text), self.told(times) + self.two_layers("vector", vector)
        nowhere = [(0, 0, 0)] * text.shape[1]
        places = [(0, row, column) for row, column in self.at]
        for block in range(self.model["double_layers"]):
            names, streams = (f"{block} text", f"{block} image"), (text, image)
            told = [self.modulations(f"{name} modulation", condition) for name in names]
            given = [
                self.apply_linear(f"{name} inwards", self.modulated(x, *each[:2]))
                for name, x, each in zip(names, streams, told)
            ]
            both = zip(*(self.divided(*each) for each in zip(names, given, (nowhere, places))))
            joined = [[torch.cat(heads, 1) for heads in zip(*each)] for each in both]
            attended = self.attention(*joined).split([text.shape[1], image.shape[1]], 1)
            after = []
            for name, x, own, each in zip(names, streams, attended, told):
                x = x + each[2][:, None] * self.apply_linear(f"{name} outwards", own)
                after.append(x + each[5][:, None] * self.feed(name, self.modulated(x, each[3], each[4])))
            text, image = after
        x = torch.cat([text, image], 1)
        for block in range(self.model["single_layers"]):
            name = f"{block} single"
            shift, scale, gate = self.modulations(f"{name} modulation", condition)
            given = self.apply_linear(f"{name} inwards", self.modulated(x, shift, scale))
            attended = self.attention(*self.divided(name, given[..., : 3 * self.width], nowhere + places))
            inner = gelu(given[..., 3 * self.width :])
            x = x + gate[:, None] * self.apply_linear(f"{name} outwards", torch.cat([attended, inner], -1))
        return self.predicted(x[:, text.shape[1] :], condition)


NETWORKS = {"dit": Dit, "flux": Flux}
