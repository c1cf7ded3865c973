"""Deep Voice 3 written out from its card, in PyTorch's functions and without any code of ours."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from written_sequences import Parameters


class Speech(Parameters):
    """Values by name, in the order in which the paper's figure 1 has the parts."""

    def __init__(self, model):
        super().__init__()
        self.model, self.drop = model, nn.Dropout(model["dropout"])
        text, encoder, mel = model["character_width"], model["encoder"]["channels"], model["mel_bands"]
        decoder, converter, attention = model["decoder"], model["converter"]["channels"], model["attention"]["width"]
        self.table("speakers", model["speakers"], model["speaker_width"])
        self.table("characters", model["vocabulary"], text)
        self.speaker("text", text)
        self.layer("text in", text, encoder)
        for block in range(model["encoder"]["blocks"]):
            self.gated(f"encoder {block}", encoder)
            self.speaker(f"encoder {block}", encoder)
        self.layer("text out", encoder, text)
        self.speaker("keys", text)
        for number, (size, after) in enumerate(self.prenet()):
            self.speaker(f"prenet {number}", size)
            self.layer(f"prenet {number}", size, after)
        for block in range(decoder["blocks"]):
            self.gated(f"decoder {block}", decoder["channels"])
            self.speaker(f"decoder {block}", decoder["channels"])
        for block in self.attentive():
            for name, size in (("query", decoder["channels"]), ("key", text), ("value", text)):
                self.weight(f"{name} {block}", size, attention)
            self.weight(f"context {block}", attention, decoder["channels"])
            with torch.no_grad():
                self[f"query {block}"].copy_(self[f"key {block}"])
        self.layer("mel", decoder["channels"], 2 * mel)
        self.layer("done", decoder["channels"], 1)
        for block in range(model["converter"]["blocks"]):
            self.gated(f"converter {block}", converter)
        self.layer("mix", converter, converter)
        self.layer("linear", converter, model["linear_bins"])

    def prenet(self):
        sizes = [self.model["mel_bands"], *self.model["decoder"]["prenet"], self.model["decoder"]["channels"]]
        return list(zip(sizes[:-1], sizes[1:]))

    def attentive(self):
        return [block - 1 for block in self.model["attention"]["after_blocks"]]

    def table(self, name, entries, width):
        deviation = self.model["initialisation"]["embedding_deviation"]
        drawn = torch.randn(20, entries, width)
        first = (drawn.abs() <= 2).float().argmax(0, keepdim=True)  # the first of twenty that is not too far out
        self.add(name, "matrix", drawn.gather(0, first)[0] * deviation)

    def weight(self, name, inputs, outputs, size=1):
        share = torch.rand(outputs, inputs, size) * 2 - 1
        self.add(name, "matrix", share * math.sqrt(6 / (inputs + outputs)))

    def layer(self, name, inputs, outputs, size=1):
        self.weight(f"{name} weight", inputs, outputs, size)
        self.add(f"{name} bias", "bias", torch.zeros(outputs))

    def speaker(self, name, channels):
        self.layer(f"{name} speaker", self.model["speaker_width"], channels)

    def gated(self, name, channels):
        self.layer(f"{name} gated", channels, 2 * channels, self.model["kernel"])

    def through(self, name, x, padding=0):
        return functional.conv1d(x, self[f"{name} weight"], self[f"{name} bias"], padding=padding)

    def said_by(self, name, x, speaker):
        return x + torch.tanh(self.through(f"{name} speaker", speaker))

    def convolved(self, name, x, speaker, back):
        """`back`: as many places as the kernel sees before its own; the rest come after it."""
        both = self.through(f"{name} gated", self.drop(x), padding=self.model["kernel"] - 1)
        first = self.model["kernel"] - 1 - back
        both = both[:, :, first : first + x.shape[2]]
        half = x.shape[1]
        value, gate = both[:, :half], both[:, half:]
        if speaker is not None:
            value = self.said_by(name, value, speaker)
        return (x + value / (1 + torch.exp(-gate))) / math.sqrt(2)

    def encoded(self, characters, speaker):
        around = self.model["kernel"] // 2
        text = self.said_by("text", self["characters"][characters].permute(0, 2, 1), speaker)
        x = torch.relu(self.through("text in", text))
        for block in range(self.model["encoder"]["blocks"]):
            x = self.convolved(f"encoder {block}", x, speaker, around)
        keys = self.said_by("keys", torch.relu(self.through("text out", x)), speaker)
        return keys, (text + keys) / math.sqrt(2)

    def attended(self, block, x, keys, values):
        rates = self.model["positions"]
        query = functional.conv1d(x + waves(x, rates["query_rate"]), self[f"query {block}"])
        key = functional.conv1d(keys + waves(keys, rates["key_rate"]), self[f"key {block}"])
        value = functional.conv1d(values, self[f"value {block}"])
        shares = self.drop(torch.softmax(torch.einsum("nct,ncl->ntl", query, key), 2))
        context = torch.einsum("ncl,ntl->nct", value, shares) / math.sqrt(keys.shape[2])
        taken = torch.relu(functional.conv1d(context, self[f"context {block}"]))
        return (x + taken) / math.sqrt(2), shares

    def forward(self, characters, speakers, mel):
        speaker = self["speakers"][speakers].unsqueeze(2)
        keys, values = self.encoded(characters, speaker)
        x, attentions = mel, []
        for number in range(len(self.prenet())):
            x = self.said_by(f"prenet {number}", self.drop(x), speaker)
            x = torch.relu(self.through(f"prenet {number}", x))
        for block in range(self.model["decoder"]["blocks"]):
            x = self.convolved(f"decoder {block}", x, speaker, self.model["kernel"] - 1)
            if block in self.attentive():
                x, shares = self.attended(block, x, keys, values)
                attentions.append(shares)
        value, gate = self.through("mel", x).split(self.model["mel_bands"], 1)
        following, done = torch.sigmoid(value * torch.sigmoid(gate)), torch.sigmoid(self.through("done", x))
        for block in range(self.model["converter"]["blocks"]):
            x = self.convolved(f"converter {block}", x, None, self.model["kernel"] // 2)
        linear = torch.sigmoid(self.through("linear", torch.relu(self.through("mix", x))))
        return following, linear, done, torch.stack(attentions, 1)


def waves(like, rate):
    """What tells the places apart: row c is the sine, in odd rows the cosine, of ever slower waves."""
    channels, count = like.shape[1:]
    rows = []
    for channel in range(channels):
        angle = rate * torch.arange(count, dtype=torch.float64) / 10000 ** (2 * (channel // 2) / channels)
        rows.append(torch.cos(angle) if channel % 2 else torch.sin(angle))
    return torch.stack(rows).to(like.dtype)


def loss(outputs, targets, rule):
    """In loops over frames and characters."""
    (mel, linear, done, attention), (mel_true, linear_true, done_true) = outputs, targets
    frames, characters = attention.shape[2:]
    going = done_true[:, :, 1:] < 0.5
    total = (done - done_true).abs().sum() / done.numel()
    for predicted, true in ((mel, mel_true), (linear, linear_true)):
        off = (predicted[:, :, : frames - 1] - true[:, :, 1:]).abs()
        total = total + torch.where(going, off, torch.zeros_like(off)).sum() / off.numel()
    cost = torch.tensor(
        [
            [1 - math.exp(-((t / frames - c / characters) ** 2) / (2 * rule["guided_attention_deviation"] ** 2))]
            for t in range(frames)
            for c in range(characters)
        ],
        dtype=attention.dtype,
    ).view(frames, characters)
    return total + (attention * cost).sum() / (attention.shape[0] * frames * characters)
