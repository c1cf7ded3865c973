"""Mistakes that ports of Deep Voice 3 are likely to make, each as a context in which ours does."""

from __future__ import annotations

import math
from unittest import mock

import torch
from mutants import before, optimizer_with_other_momentum, optimizer_without_decay, patch_network
from torch import nn
from torch.nn import functional

from entrypoints.workloads.pytorch import build, deep_voice_3
from entrypoints.workloads.pytorch.deep_voice_3 import KEPT, GatedBlock, TextAttention


def changed(change):
    """The network as it is built, changed afterwards."""
    return patch_network(change, deep_voice_3)


def gated(combine):
    """Blocks whose two halves and input are put together in another way."""

    def forward(block, x, speaker=None):
        values, gates = block.convolve(functional.pad(block.dropout(x), block.padding)).chunk(2, dim=1)
        if block.voice is not None:
            values = block.voice(values, speaker)
        return combine(x, values, gates)

    return mock.patch.object(GatedBlock, "forward", forward)


def gate_of_tanh():
    return gated(lambda x, values, gates: KEPT * (x + values * torch.tanh(gates)))


def gate_left_out():
    return gated(lambda x, values, gates: KEPT * (x + values))


def halves_mixed_up():
    return gated(lambda x, values, gates: KEPT * (x + gates * torch.sigmoid(values)))


def shortcut_left_out():
    return gated(lambda x, values, gates: KEPT * values * torch.sigmoid(gates))


def sums_not_scaled():
    return mock.patch.object(deep_voice_3, "KEPT", 1.0)


def sums_halved():
    return mock.patch.object(deep_voice_3, "KEPT", 0.5)


def blocks(change, *parts):
    """Each block of some parts of the network, changed."""

    def change_all(network):
        for part in parts:
            for block in getattr(network, part).blocks:
                change(block)

    return changed(change_all)


def decoder_looks_ahead():
    return blocks(lambda block: setattr(block, "padding", (2, 2)), "decoder")


def encoder_looks_back_alone():
    return blocks(lambda block: setattr(block, "padding", (4, 0)), "encoder")


def decoder_off_by_one():
    return blocks(lambda block: setattr(block, "padding", (5, -1)), "decoder")


def converter_dilated():
    def dilate(block):
        block.convolve.dilation = (2,)
        block.padding = (4, 4)

    return blocks(dilate, "converter")


def speakers_left_out():
    return mock.patch.object(deep_voice_3.Voice, "forward", lambda voice, x, speaker: x)


def speakers_without_tanh():
    return mock.patch.object(deep_voice_3.Voice, "forward", lambda voice, x, speaker: x + voice.project(speaker))


def speakers_through_the_gate():
    def forward(block, x, speaker=None):
        values, gates = block.convolve(functional.pad(block.dropout(x), block.padding)).chunk(2, dim=1)
        gates = gates if block.voice is None else block.voice(gates, speaker)
        return KEPT * (x + values * torch.sigmoid(gates))

    return mock.patch.object(GatedBlock, "forward", forward)


def positions(change):
    original = deep_voice_3.positional_encoding
    return mock.patch.object(
        deep_voice_3, "positional_encoding", lambda count, channels, rate: change(original, count, channels, rate)
    )


def places_left_out():
    return positions(lambda original, *asked: 0 * original(*asked))


def places_at_one_rate():
    return positions(lambda original, count, channels, rate: original(count, channels, 1.0))


def places_from_one():
    return positions(lambda original, count, channels, rate: original(count + 1, channels, rate)[:, 1:])


def waves_side_by_side():
    """All sines, then all cosines, as the transformer of some libraries has them."""

    def halves(original, *asked):
        table = original(*asked)
        return torch.cat([table[0::2], table[1::2]])

    return positions(halves)


def attending(score=1.0, context=1.0, activation=functional.relu):
    """Attention whose scores or context are scaled, or that is added in another way."""

    def forward(part, x, x_places, keys, values):
        scores = score * part.query(x + x_places).transpose(1, 2) @ part.key(keys)
        shares = part.dropout(scores.softmax(-1))
        taken = part.value(values) @ shares.transpose(1, 2) / math.sqrt(keys.shape[-1])
        return KEPT * (x + activation(part.project(context * taken))), shares

    return mock.patch.object(TextAttention, "forward", forward)


def scores_scaled():
    """By the root of the width, as in transformers."""
    return attending(score=1 / 16)


def context_not_divided():
    return attending(context=math.sqrt(80))


def context_without_relu():
    return attending(activation=lambda x: x)


def attention_after_every_block_but_the_last():
    def change(network):
        network.decoder.attentions = nn.ModuleDict(zip("13", network.decoder.attentions.values()))

    return changed(change)


def values_without_the_embedding():
    def forward(encoder, characters, speaker):
        keys, _ = encode(encoder, characters, speaker)
        return keys, keys

    encode = deep_voice_3.Encoder.forward
    return mock.patch.object(deep_voice_3.Encoder, "forward", forward)


def bias_left_out():
    return changed(
        lambda network: network.decoder.mel.register_forward_hook(lambda layer, _, output: output - layer.bias[:, None])
    )


def dropout_of_its_own():
    return changed(
        lambda network: before(network.converter.mix, lambda x: functional.dropout(x, 0.05, network.training))
    )


def initialised_by_the_whole_kernel():
    original = deep_voice_3.convolution

    def convolution(*sizes, **options):
        layer = original(*sizes, **options)
        nn.init.xavier_uniform_(layer.weight)
        return layer

    return mock.patch.object(deep_voice_3, "convolution", convolution)


def embeddings_start_standard_normal():
    return mock.patch.object(deep_voice_3, "embedding", lambda entries, width, _: nn.Embedding(entries, width))


def loss(change):
    """Another loss of outputs (mel, linear, done, shares) and targets (mel, linear, done)."""
    original = build.SpeechLoss.forward

    def forward(part, outputs, targets):
        return change(lambda *given: original(part, *given), outputs, targets)

    return mock.patch.object(build.SpeechLoss, "forward", forward)


def frames_told_at_once():
    """As if each were to tell itself."""

    def shifted(original, outputs, targets):
        mel, linear, *others = outputs
        return original((mel.roll(-1, -1), linear.roll(-1, -1), *others), targets)

    return loss(shifted)


def padding_told_too():
    def unmasked(original, outputs, targets):
        mel, linear, done = targets
        flags = (outputs[2] - done).abs().mean() - outputs[2].abs().mean()
        return original(outputs, (mel, linear, torch.zeros_like(done))) + flags

    return loss(unmasked)


def done_flags_by_cross_entropy():
    def entropy(original, outputs, targets):
        done, flags = outputs[2], targets[2]
        difference = functional.binary_cross_entropy(done, flags) - (done - flags).abs().mean()
        return original(outputs, targets) + difference

    return loss(entropy)


def attention_not_guided():
    return loss(lambda original, outputs, targets: original((*outputs[:3], 0 * outputs[3]), targets))


def attention_guided_narrowly():
    def change(part, rule):
        start(part, {**rule, "guided_attention_deviation": 0.1})

    start = build.SpeechLoss.__init__
    return mock.patch.object(build.SpeechLoss, "__init__", change)


def linear_frames_count_half():
    def halved(original, outputs, targets):
        (mel, linear, *others), (mel_true, linear_true, done) = outputs, targets
        return original((mel, linear / 2, *others), (mel_true, linear_true / 2, done))

    return loss(halved)


def squared_differences():
    return mock.patch.object(torch.Tensor, "abs", lambda x: x * x)


MUTANTS = {
    "deep_voice_3": (
        gate_of_tanh,
        gate_left_out,
        halves_mixed_up,
        shortcut_left_out,
        sums_not_scaled,
        sums_halved,
        decoder_looks_ahead,
        encoder_looks_back_alone,
        decoder_off_by_one,
        converter_dilated,
        speakers_left_out,
        speakers_without_tanh,
        speakers_through_the_gate,
        places_left_out,
        places_at_one_rate,
        places_from_one,
        waves_side_by_side,
        scores_scaled,
        context_not_divided,
        context_without_relu,
        attention_after_every_block_but_the_last,
        values_without_the_embedding,
        bias_left_out,
        dropout_of_its_own,
        initialised_by_the_whole_kernel,
        embeddings_start_standard_normal,
        frames_told_at_once,
        padding_told_too,
        done_flags_by_cross_entropy,
        attention_not_guided,
        attention_guided_narrowly,
        linear_frames_count_half,
        squared_differences,
        optimizer_without_decay,
        optimizer_with_other_momentum,
    )
}
