"""Deep Voice 3 (Ping et al., arXiv:1710.07654): speech of many speakers from text, by convolutions and attention.

An encoder makes keys and values of the text, a decoder predicts the next frame of a mel spectrogram from those before
it, and a converter makes the linear spectrogram from the decoder's states. Channels come before positions: (N, C, T).
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import torch
from torch import nn
from torch.nn import functional

KEPT = math.sqrt(0.5)  # scales a sum of two terms to the variance of each
BASE = 10000.0  # of the wavelengths of positions


def convolution(channels_in: int, channels_out: int, size: int = 1, bias: bool = True) -> nn.Conv1d:
    """Return a convolution without padding; Glorot-uniform weights as for kernel size 1, biases 0."""
    layer = nn.Conv1d(channels_in, channels_out, size, bias=bias)
    bound = math.sqrt(6 / (channels_in + channels_out))
    nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def embedding(entries: int, width: int, model: Mapping[str, Any]) -> nn.Embedding:
    """Return an embedding with normal weights, truncated at two standard deviations."""
    layer, deviation = nn.Embedding(entries, width), model["initialisation"]["embedding_deviation"]
    nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    return layer


def positional_encoding(count: int, channels: int, rate: float) -> torch.Tensor:
    """Return sines and cosines of each position times `rate`, with growing wavelengths: (channels, count)."""
    waves = BASE ** (-torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    angles = rate * waves[:, None] * torch.arange(count, dtype=torch.float64)  # (channels / 2, count)
    return torch.stack([angles.sin(), angles.cos()], dim=1).flatten(0, 1).float()


class Voice(nn.Module):
    """Adds the same projection of the speaker's embedding to all positions."""

    def __init__(self, channels: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.project = convolution(model["speaker_width"], channels)

    def forward(self, x: torch.Tensor, speaker: torch.Tensor) -> torch.Tensor:
        """(N, channels, T) and speakers (N, speaker_width, 1) -> (N, channels, T)."""
        return x + torch.tanh(self.project(speaker))


class GatedBlock(nn.Module):
    """A gated linear unit over a convolution, with a residual: the paper's figure 2."""

    def __init__(self, channels: int, model: Mapping[str, Any], causal: bool = False, spoken: bool = True) -> None:
        super().__init__()
        size = model["kernel"]
        self.padding = (size - 1, 0) if causal else (size // 2, size // 2)
        self.dropout = nn.Dropout(model["dropout"])
        self.convolve = convolution(channels, 2 * channels, size)
        self.voice = Voice(channels, model) if spoken else None

    def forward(self, x: torch.Tensor, speaker: torch.Tensor | None = None) -> torch.Tensor:
        """(N, channels, T) -> the same shape."""
        values, gates = self.convolve(functional.pad(self.dropout(x), self.padding)).chunk(2, dim=1)
        if self.voice is not None:
            values = self.voice(values, speaker)
        return KEPT * (x + values * torch.sigmoid(gates))


class Encoder(nn.Module):
    """The encoder: keys and values of a text."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width, channels = model["character_width"], model["encoder"]["channels"]
        self.characters = embedding(model["vocabulary"], width, model)
        self.voice = Voice(width, model)
        self.narrow = convolution(width, channels)
        self.blocks = nn.ModuleList(GatedBlock(channels, model) for _ in range(model["encoder"]["blocks"]))
        self.widen = convolution(channels, width)
        self.key_voice = Voice(width, model)

    def forward(self, characters: torch.Tensor, speaker: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, L) -> keys and values, (N, character_width, L) each."""
        embedded = self.voice(self.characters(characters).transpose(1, 2), speaker)
        x = functional.relu(self.narrow(embedded))
        for block in self.blocks:
            x = block(x, speaker)
        keys = self.key_voice(functional.relu(self.widen(x)), speaker)
        return keys, KEPT * (embedded + keys)


class TextAttention(nn.Module):
    """The attention of frames to the text, with a residual: the paper's figure 3."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        channels, text, width = model["decoder"]["channels"], model["character_width"], model["attention"]["width"]
        self.query = convolution(channels, width, bias=False)
        self.key = convolution(text, width, bias=False)
        self.value = convolution(text, width, bias=False)
        self.project = convolution(width, channels, bias=False)
        self.dropout = nn.Dropout(model["dropout"])
        with torch.no_grad():  # equal projections start attention as a diagonal
            self.query.weight.copy_(self.key.weight)

    def forward(
        self, x: torch.Tensor, frame_positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Frames (N, channels, T), keys with positions and values (N, text, L) -> frames, and weights (N, T, L)."""
        scores = self.query(x + frame_positions).transpose(1, 2) @ self.key(keys)
        attention_weights = self.dropout(scores.softmax(-1))
        context = self.value(values) @ attention_weights.transpose(1, 2) / math.sqrt(keys.shape[-1])
        return KEPT * (x + functional.relu(self.project(context))), attention_weights


class Prenet(nn.Module):
    """A layer that maps frames before the decoder's blocks."""

    def __init__(self, channels_in: int, channels_out: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.dropout = nn.Dropout(model["dropout"])
        self.voice = Voice(channels_in, model)
        self.project = convolution(channels_in, channels_out)

    def forward(self, x: torch.Tensor, speaker: torch.Tensor) -> torch.Tensor:
        """(N, channels_in, T) -> (N, channels_out, T)."""
        return functional.relu(self.project(self.voice(self.dropout(x), speaker)))


class Decoder(nn.Module):
    """The decoder: the next frame from those before it and the text, and whether it is beyond the end."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        rule, positions, mel = model["decoder"], model["positions"], model["mel_bands"]
        channels = rule["channels"]
        sizes = [mel, *rule["prenet"], channels]
        self.prenet = nn.ModuleList(Prenet(size, after, model) for size, after in zip(sizes, sizes[1:]))
        self.blocks = nn.ModuleList(GatedBlock(channels, model, causal=True) for _ in range(rule["blocks"]))
        self.attentions = nn.ModuleDict(
            {str(block): TextAttention(model) for block in model["attention"]["after_blocks"]}
        )
        self.mel = convolution(channels, 2 * mel)
        self.done = convolution(channels, 1)
        frames = positional_encoding(positions["most"], channels, positions["query_rate"])
        text = positional_encoding(positions["most"], model["character_width"], positions["key_rate"])
        self.register_buffer("frame_places", frames, persistent=False)
        self.register_buffer("text_places", text, persistent=False)

    def forward(
        self, mel: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, speaker: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Frames (N, mel_bands, T) -> states (N, channels, T), the next mel frames, the probability that each is beyond
        the end (N, 1, T), and the weights of each attention (N, attentions, T, L)."""
        x, attended = mel, []
        keys = keys + self.text_places[:, : keys.shape[-1]]
        frame_places = self.frame_places[:, : mel.shape[-1]]
        for layer in self.prenet:
            x = layer(x, speaker)
        for number, block in enumerate(self.blocks, 1):
            x = block(x, speaker)
            if str(number) in self.attentions:
                x, attention_weights = self.attentions[str(number)](x, frame_places, keys, values)
                attended.append(attention_weights)
        following = torch.sigmoid(functional.glu(self.mel(x), dim=1))
        return x, following, torch.sigmoid(self.done(x)), torch.stack(attended, dim=1)


class Converter(nn.Module):
    """The converter: linear spectrograms from the decoder's states."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        channels = model["converter"]["channels"]
        blocks = model["converter"]["blocks"]
        self.blocks = nn.ModuleList(GatedBlock(channels, model, spoken=False) for _ in range(blocks))
        self.mix = convolution(channels, channels)
        self.output = convolution(channels, model["linear_bins"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, T) -> (N, linear_bins, T)."""
        for block in self.blocks:
            x = block(x)
        return torch.sigmoid(self.output(functional.relu(self.mix(x))))


class DeepVoice3(nn.Module):
    """Speakers, encoder, decoder and converter, trained with teacher forcing."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.speakers = embedding(model["speakers"], model["speaker_width"], model)
        self.encoder = Encoder(model)
        self.decoder = Decoder(model)
        self.converter = Converter(model)

    def forward(self, characters: torch.Tensor, speakers: torch.Tensor, mel: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Characters (N, L), speakers (N,) and mel frames (N, mel_bands, T) -> the mel frames after each, their linear
        frames, the probability that each is beyond the end, and the weights of each attention."""
        speaker = self.speakers(speakers)[:, :, None]  # (N, speaker_width, 1)
        keys, values = self.encoder(characters, speaker)
        states, following, done, attended = self.decoder(mel, keys, values, speaker)
        return following, self.converter(states), done, attended


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    return DeepVoice3(model)
