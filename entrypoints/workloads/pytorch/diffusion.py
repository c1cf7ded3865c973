"""Diffusion transformers: DiT (Peebles and Xie, arXiv:2212.09748) and FLUX.1 (Black Forest Labs, 2024).

A latent image gets noise, and the network predicts the noise (DiT), or the way from the image to the noise (FLUX.1, by
flow matching, Lipman et al., arXiv:2210.02747). Time and class or text make shifts, scales and gates for each block.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from entrypoints.workloads.pytorch.layers import ACTIVATIONS, RMSNorm
from entrypoints.workloads.pytorch.transformer import AnyCache, RotaryTables, SelfAttention, rotate

PERIOD = 10_000.0  # of the slowest of the waves that stand for times and places, over that of the fastest


def waves(at: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    """(N,) -> the angles (N, width / 2) of waves, fastest first, whose cosines and sines stand for a time or place."""
    half = width // 2
    rates: torch.Tensor = PERIOD ** (-torch.arange(half, device=at.device, dtype=dtype) / half)
    return at[:, None].to(dtype) * rates


def single_at_least(dtype: torch.dtype) -> torch.dtype:
    """Return single precision in place of half precision, otherwise the same."""
    return torch.promote_types(dtype, torch.float32)


def grid(model: Mapping[str, Any]) -> tuple[int, int]:
    """Return the rows and columns of patches of a latent image."""
    _, height, width = model["latents"]
    return height // model["patch"], width // model["patch"]


def fixed_places(model: Mapping[str, Any]) -> np.ndarray:
    """Return sines and cosines of the column, then of the row of each patch, float32 (T, width)."""
    row, column = np.indices(grid(model)).reshape(2, -1, 1)
    quarter = model["width"] // 4
    rates = PERIOD ** (-np.arange(quarter) / quarter)
    parts = [function(at * rates) for at in (column, row) for function in (np.sin, np.cos)]
    return np.concatenate(parts, 1).astype(np.float32)


class Diffusion(nn.Module):
    """Noise of a number of steps, more of it in each (Ho et al., arXiv:2006.11239)."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        super().__init__()
        kept = np.cumprod(1 - np.linspace(rule["first"], rule["last"], rule["steps"]))  # of the variance of the image
        self.register_buffer("kept", torch.from_numpy(kept.astype(np.float32)), persistent=False)

    def forward(self, latents: torch.Tensor, noise: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Latents and noise (N, C, H, W), and steps (N,) from 0 -> the same shape."""
        kept = self.kept[times][:, None, None, None]
        return kept.sqrt() * latents + (1 - kept).sqrt() * noise


class Flow(nn.Module):
    """Noise on a straight way from the image, at time 0, to noise alone, at time 1."""

    def forward(self, latents: torch.Tensor, noise: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Latents and noise (N, C, H, W), and times (N,) -> the same shape."""
        share = times[:, None, None, None]
        return (1 - share) * latents + share * noise


class Patches(nn.Module):
    """The embeddings of the patches of a latent image, in single precision, in which the blocks add to them."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width, patch = model["width"], model["patch"]
        self.project = nn.Conv2d(model["latents"][0], width, patch, stride=patch)
        self.places: nn.Parameter | None = None
        if model["positions"]["kind"] == "waves":
            self.places = nn.Parameter(torch.from_numpy(fixed_places(model)), requires_grad=False)

    def given(self) -> Iterator[nn.Parameter]:
        """Yield what is not learnt: the places."""
        if self.places is not None:
            yield self.places

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> (N, T, width)."""
        x = self.project(latents).flatten(2).transpose(1, 2)
        x = x.to(single_at_least(x.dtype))
        return x if self.places is None else x + self.places


class TwoLayers(nn.Module):
    """Two layers with SiLU between them, which embed a vector."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, inputs) -> (N, width)."""
        return self.second(functional.silu(self.first(x)))


class Condition(nn.Module):
    """What all blocks are told of a sample: the sum of the embeddings of its time, and of its class or text."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.time_rule, rule, width = model["time"], model["condition"], model["width"]
        self.time = TwoLayers(self.time_rule["width"], width)
        # One class more stands for none.
        self.subject = (
            nn.Embedding(rule["classes"] + 1, width) if rule["kind"] == "class" else TwoLayers(rule["vector"], width)
        )

    def forward(self, times: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
        """Times (N,), and classes (N,) or vectors of texts (N, vector) -> (N, width)."""
        dtype = single_at_least(self.time.first.weight.dtype)
        angles = waves(self.time_rule["factor"] * times, self.time_rule["width"], dtype)
        embedded = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        return embedded + self.subject(subject)


class Modulation(nn.Module):
    """Adaptive layer normalisation (adaLN): shifts, scales and gates that a condition makes for a sample."""

    def __init__(self, model: Mapping[str, Any], count: int) -> None:
        super().__init__()
        self.count = count
        self.project = nn.Linear(model["width"], count * model["width"])

    def forward(self, condition: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(N, width) -> so many of (N, 1, width)."""
        return self.project(functional.silu(condition))[:, None].chunk(self.count, -1)


def normalisation(model: Mapping[str, Any]) -> nn.LayerNorm:
    """Return a layer normalisation without weights: a modulation follows."""
    return nn.LayerNorm(model["width"], eps=model["normalisation"]["epsilon"], elementwise_affine=False)


def modulated(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Shift and scale (N, 1, width) of (N, T, width) -> the same shape."""
    return x * (1 + scale) + shift


class Block(nn.Module):
    """Attention and a feed-forward network: each of a modulated input, gated, and added to it. As DiT has it."""

    attention_kind: type[SelfAttention] = SelfAttention

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.modulation = Modulation(model, 6)
        self.attention_normalisation = normalisation(model)
        self.attention = self.attention_kind(model)
        self.feed_forward_normalisation = normalisation(model)
        self.widen = nn.Linear(model["width"], model["feed_forward"])
        self.activation = ACTIVATIONS[model["activation"]]()
        self.narrow = nn.Linear(model["feed_forward"], model["width"])

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """(N, T, width) and a condition (N, width) -> (N, T, width)."""
        shift, scale, gate, *others = self.modulation(condition)
        x = x + gate * self.attention(modulated(self.attention_normalisation(x), shift, scale), None)
        return self.fed_forward(x, *others)

    def fed_forward(
        self, x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor, gate: torch.Tensor
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape, with what the feed-forward network adds."""
        inner = self.activation(self.widen(modulated(self.feed_forward_normalisation(x), shift, scale)))
        return x + gate * self.narrow(inner)


class NormalisedAttention(SelfAttention):
    """Attention whose queries and keys are normalised, head by head (Henry et al., arXiv:2010.04245)."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__(model)
        epsilon = model["normalisation"]["epsilon"]
        self.query_normalisation, self.key_normalisation = (RMSNorm(self.size, epsilon) for _ in range(2))

    def divided(
        self, projected: torch.Tensor, rotary: RotaryTables | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(N, T, 3 * heads * size) -> query, key and value (N, heads, T, size), turned to their places."""
        query, key, value = super().divided(projected, None)
        query, key = self.query_normalisation(query), self.key_normalisation(key)
        if rotary is not None:
            query, key = rotate(query, rotary), rotate(key, rotary)
        return query.to(value.dtype), key.to(value.dtype), value


class Stream(Block):
    """What a double block has for text or image."""

    attention_kind = NormalisedAttention

    def attended(self, x: torch.Tensor, attended: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Return (N, T, width) with what attention (N, T, width) adds."""
        return x + gate * self.attention.project(attended)


class DoubleBlock(nn.Module):
    """Text and image with weights of their own, which attend to each other."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.text, self.image = Stream(model), Stream(model)

    def forward(
        self, text: torch.Tensor, image: torch.Tensor, condition: torch.Tensor, rotary: RotaryTables
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Text (N, L, width), image (N, T, width) and their condition (N, width) -> text and image."""
        streams, given = (self.text, self.image), (text, image)
        modulations = [stream.modulation(condition) for stream in streams]
        parts = []
        # All of a text is at one place, which turns nothing.
        for stream, x, (shift, scale, *_), turned in zip(streams, given, modulations, (None, rotary)):
            inputs = modulated(stream.attention_normalisation(x), shift, scale)
            parts.append(stream.attention.divided(stream.attention.query_key_value(inputs), turned))
        query, key, value = (torch.cat(each, 2) for each in zip(*parts))
        together = self.image.attention.attend(query, key, value, None).transpose(1, 2).flatten(2)
        attended = together.split([text.shape[1], image.shape[1]], 1)
        text, image = (
            stream.fed_forward(stream.attended(x, own, gate), *others)
            for stream, x, own, (_, _, gate, *others) in zip(streams, given, attended, modulations)
        )
        return text, image


class ParallelAttention(NormalisedAttention):
    """Attention and a feed-forward network of one input, with one layer before both and one after both.

    Dehghani et al., arXiv:2302.05442.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__(model)
        width, inner = model["width"], model["feed_forward"]
        self.sizes = [3 * width, inner]
        self.query_key_value = nn.Linear(width, sum(self.sizes))  # and the inner numbers of the network
        self.activation = ACTIVATIONS[model["activation"]]()
        self.project = nn.Linear(width + inner, width)

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotary: RotaryTables | None = None,
        _: AnyCache | None = None,
    ) -> torch.Tensor:
        """(N, T, width) -> the same shape."""
        projected, inner = self.query_key_value(x).split(self.sizes, -1)
        query, key, value = self.divided(projected, rotary)
        attended = self.attend(query, key, value, attention_mask).transpose(1, 2).flatten(2)
        return self.project(torch.cat([attended, self.activation(inner)], -1))


class SingleBlock(nn.Module):
    """Text and image in one row, with the same weights."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.modulation = Modulation(model, 3)
        self.normalisation = normalisation(model)
        self.attention = ParallelAttention(model)

    def forward(self, x: torch.Tensor, condition: torch.Tensor, rotary: RotaryTables) -> torch.Tensor:
        """(N, L + T, width) and a condition (N, width) -> (N, L + T, width)."""
        shift, scale, gate = self.modulation(condition)
        return x + gate * self.attention(modulated(self.normalisation(x), shift, scale), None, rotary)


class Head(nn.Module):
    """The prediction: the noise, and in some networks its variance, in as many channels again."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.grid, self.patch = grid(model), model["patch"]
        self.modulation = Modulation(model, 2)
        self.normalisation = normalisation(model)
        outputs = model["latents"][0] * self.patch**2
        self.project = nn.Linear(model["width"], outputs)
        self.variance = nn.Linear(model["width"], outputs) if model["learns_variance"] else None

    def without_effect(self) -> Iterator[nn.Parameter]:
        """Yield the layer of the variance, which the loss does not know."""
        if self.variance is not None:
            yield from self.variance.parameters()

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """(N, T, width) and a condition (N, width) -> (N, C or 2 C, H, W)."""
        (rows, columns), patch = self.grid, self.patch
        x = modulated(self.normalisation(x), *self.modulation(condition))
        predicted = self.project(x)
        if self.variance is not None:
            predicted = torch.cat([predicted, self.variance(x)], -1)
        patches = predicted.view(len(x), rows, columns, -1, patch, patch).permute(0, 3, 1, 4, 2, 5)
        return patches.reshape(len(x), -1, rows * patch, columns * patch)


class DiT(nn.Module):
    """A row of patches through equal blocks, which are told time and class."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.noise = Diffusion(model["noise"])
        self.embedding = Patches(model)
        self.condition = Condition(model)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model["layers"]))
        self.head = Head(model)
        self.length = grid(model)[0] * grid(model)[1]
        initialise(self, model["initialisation"])

    def forward(
        self, latents: torch.Tensor, noise: torch.Tensor, times: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Latents and noise (N, C, H, W), steps (N,) and classes (N,) -> the noise and its variance (N, 2 C, H, W)."""
        x = self.embedding(self.noise(latents, noise, times))
        condition = self.condition(times, labels)
        for block in self.blocks:
            x = block(x, condition)
        return self.head(x, condition)


class Flux(nn.Module):
    """Text and image side by side, then in one row; blocks are told the time and a vector of the text."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        rule = model["condition"]
        self.noise = Flow()
        self.embedding = Patches(model)
        self.text = nn.Linear(rule["text_width"], model["width"])
        self.condition = Condition(model)
        self.blocks = nn.ModuleList(DoubleBlock(model) for _ in range(model["double_layers"]))
        self.single_blocks = nn.ModuleList(SingleBlock(model) for _ in range(model["single_layers"]))
        self.head = Head(model)
        self.model, self.text_length = model, rule["text_length"]
        self.length = self.text_length + grid(model)[0] * grid(model)[1]
        initialise(self, model["initialisation"])

    def forward(
        self, latents: torch.Tensor, noise: torch.Tensor, times: torch.Tensor, text: torch.Tensor, vector: torch.Tensor
    ) -> torch.Tensor:
        """Latents and noise (N, C, H, W), times (N,), text (N, L, text_width) and its vector -> (N, C, H, W)."""
        image = self.embedding(self.noise(latents, noise, times))
        condition, text = self.condition(times, vector), self.text(text).to(image.dtype)
        rotary = self.rotary(image)
        of_image = RotaryTables(*(table[self.text_length :] for table in rotary))
        for block in self.blocks:
            text, image = block(text, image, condition, of_image)
        x = torch.cat([text, image], 1)
        for block in self.single_blocks:
            x = block(x, condition, rotary)
        return self.head(x[:, self.text_length :], condition)

    def rotary(self, image: torch.Tensor) -> RotaryTables:
        """Return the tables of all places: numbers of a head are turned by the image, by its rows or its columns.

        There is one image and a text is nowhere in it, so that both are at 0. Halves are paired, where the published
        files pair neighbours: the order of the numbers of queries and keys differs, and nothing else.
        """
        rows, columns = grid(self.model)
        patch = torch.arange(rows * columns, device=image.device)
        row, column = (
            functional.pad(at, (self.text_length, 0))
            for at in (torch.div(patch, columns, rounding_mode="floor"), patch % columns)
        )
        at = (torch.zeros_like(row), row, column)
        axes = zip(at, self.model["positions"]["axes"])
        angles = torch.cat([waves(each, width, image.dtype) for each, width in axes], -1)
        return RotaryTables(angles.cos(), angles.sin())


def initialise(network: nn.Module, rule: Mapping[str, Any]) -> None:
    """Set uniform weights, normal embeddings and modulations, and zero biases.

    Modulations and the last layer are published with zeros (adaLN-Zero), which would keep most gradients at 0 in the
    first steps: they start normal here.
    """
    for layer in network.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(layer.weight.flatten(1))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        elif isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, std=rule["embedding_deviation"])
    for layer in network.modules():
        if isinstance(layer, (TwoLayers, Modulation, Head)):
            kind = "embedding_deviation" if isinstance(layer, TwoLayers) else "modulation_deviation"
            for each in layer.children():
                if isinstance(each, nn.Linear):
                    nn.init.normal_(each.weight, std=rule[kind])


NETWORKS = {"dit": DiT, "flux": Flux}


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    built: nn.Module = NETWORKS[model["architecture"]](model)
    return built
