"""Mistakes that real ports of networks over text and series were seen to make, each as a context in which ours does."""

from __future__ import annotations

import functools
import math
from unittest import mock

import mutants
import mutants_decoder
import mutants_diffusion
import mutants_speech
import mutants_vit
import torch
from mutants import (
    activations,
    adam_without_bias_correction,
    before,
    loss_of_absolute_differences,
    optimizer_that_decays_all,
    optimizer_without_decay,
    patch_network,
    rule,
)
from mutants_chains import CHAINS
from mutants_decoder import (
    ADAPTERS,
    DECODER,
    FEED_FORWARD,
    STRETCHED,
    base_of_other_networks,
    epsilon_of_other_networks,
)
from mutants_mixtures import FINE_OF_GPT_OSS, GPT_OSS, MIXTURE, NORMALISED, gate_left_out, gate_through_gelu
from torch import nn

from entrypoints.data.generated import synthetic
from entrypoints.workloads.pytorch import build, lstm, optimizers, transformer


def every(kind, change):
    """Each part of a kind, changed."""

    def change_all(network):
        for part in network.modules():
            if isinstance(part, kind):
                change(part)

    return patch_network(change_all, transformer)


def gelu_of_the_error_function():
    return activations(gelu_tanh=nn.GELU)


def gelu_by_tanh():
    return activations(gelu=functools.partial(nn.GELU, approximate="tanh"))


def relu_for_gelu():
    return activations(gelu=nn.ReLU, gelu_tanh=nn.ReLU)


def what_follows_is_seen():
    return every(transformer.SelfAttention, lambda part: setattr(part, "causal", False))


def padding_is_seen():
    return patch_network(lambda network: setattr(network, "reads_whole", False), transformer)


def scores_not_scaled():
    attend = transformer.SelfAttention.attend

    def unscaled(part, query, key, value, attention_mask):
        return attend(part, query * math.sqrt(query.shape[-1]), key, value, attention_mask)

    return mock.patch.object(transformer.SelfAttention, "attend", unscaled)


def scores_scaled_by_the_width():
    attend = transformer.SelfAttention.attend

    def rescaled(part, query, key, value, attention_mask):
        return attend(part, query / math.sqrt(part.heads), key, value, attention_mask)

    return mock.patch.object(transformer.SelfAttention, "attend", rescaled)


def places_left_out():
    return places(lambda weight: 0 * weight)


def places_from_one():
    return places(lambda weight: weight.roll(-1, 0))


def places(change):
    def forward(part, tokens, segments, first=0):
        x = part.tokens(tokens) + change(part.places.weight)[: tokens.shape[1]]
        if part.segments is not None:
            x = x + part.segments(segments)
        return part.dropout(part.normalisation(x))

    return mock.patch.object(transformer.InputEmbedding, "forward", forward)


def segments_mixed_up():
    forward = transformer.InputEmbedding.forward
    return mock.patch.object(
        transformer.InputEmbedding,
        "forward",
        lambda part, tokens, segments, first=0: forward(part, tokens, 1 - segments),
    )


def epsilon_of_another_port():
    return every(nn.LayerNorm, lambda part: setattr(part, "eps", 1e-3))


def normalisation_at_the_other_place():
    return every(transformer.Block, lambda part: setattr(part, "before", not part.before))


def last_normalisation_left_out():
    return mock.patch.object(transformer.NextToken, "forward", lambda part, x: part.decoder(x))


def shortcut_after_the_normalisation():
    def forward(part, x, attention_mask, rotary=None):
        x = part.attention_normalisation(x)
        x = x + part.attention(x, attention_mask, rotary)
        x = part.feed_forward_normalisation(x)
        return x + part.feed_forward(x)

    return mock.patch.object(transformer.Block, "forward", forward)


def bias_left_out():
    def change(part):
        part.query_key_value.register_forward_hook(lambda layer, _, output: output - layer.bias)

    return every(transformer.SelfAttention, change)


def initialisation(**changes):
    original = transformer.initialise

    def initialise(network, model):
        original(network, {**model, "initialisation": {**model["initialisation"], **changes}})

    return mock.patch.object(transformer, "initialise", initialise)


def initialisation_not_by_depth():
    return initialisation(residual_scaled=False)


def initialisation_by_depth():
    return initialisation(residual_scaled=True)


def initialisation_half_as_wide():
    return initialisation(deviation=0.01)


def targets_not_shifted():
    def text(problem, samples, draw):
        made = synthetic.text(problem, samples, draw)
        return made._replace(targets=made.inputs)

    return mock.patch.dict(synthetic.KINDS, text=text)


def loss_summed_up():
    forward = build.CrossEntropy.forward
    return mock.patch.object(
        build.CrossEntropy, "forward", lambda part, logits, labels: labels.numel() * forward(part, logits, labels)
    )


def ends_summed_up():
    forward = build.SpanCrossEntropy.forward
    return mock.patch.object(build.SpanCrossEntropy, "forward", lambda part, *given: 2 * forward(part, *given))


def ends_mixed_up():
    forward = build.SpanCrossEntropy.forward
    return mock.patch.object(
        build.SpanCrossEntropy, "forward", lambda part, logits, ends: forward(part, logits, ends.flip(1))
    )


def losses_averaged():
    forward = build.SumOfCrossEntropies.forward
    return mock.patch.object(build.SumOfCrossEntropies, "forward", lambda part, *given: forward(part, *given) / 2)


def masked_places_off_by_one():
    forward = transformer.Pretraining.forward
    return mock.patch.object(transformer.Pretraining, "forward", lambda part, x, places: forward(part, x, places + 1))


def pooled_without_tanh():
    return mock.patch.object(torch, "tanh", lambda x, first=0: x)


def transform_left_out():
    def forward(part, x, places):
        masked = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
        return part.decoder(part.normalisation(masked)), part.follows(torch.tanh(part.pool(x[:, 0])))

    return mock.patch.object(transformer.Pretraining, "forward", forward)


def decay_in_the_gradient():
    """Adam where AdamW was asked for."""
    return mock.patch.dict(optimizers.RULES, adamw=optimizers.adam)


def gradients_not_clipped():
    return mock.patch.object(torch.nn.utils, "clip_grad_norm_", lambda parameters, most: None)


def gradients_clipped_one_by_one():
    def clip(parameters, most):
        for parameter in parameters:
            clip_one([parameter], most)

    clip_one = torch.nn.utils.clip_grad_norm_
    return mock.patch.object(torch.nn.utils, "clip_grad_norm_", clip)


def betas_of_another_rule():
    return rule(betas=(0.8, 0.99))


def steps_of_adam_alone():
    """LAMB without its trust in long tensors."""
    return mock.patch.dict(optimizers.RULES, lamb=optimizers.adamw)


def lamb_with_bias_correction():
    return rule(bias_correction=True)


def turned_in_pairs():
    """Rotary positions of neighbours, as the paper has it, where halves were meant."""

    def rotated(x, tables):
        half = x.shape[-1] // 2
        rates = transformer.BASE ** (-torch.arange(half) / half)
        angles = (torch.arange(x.shape[-2])[:, None] * rates).to(x.device)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()], -1)
        return turned.flatten(-2)

    return mock.patch.object(transformer, "rotate", rotated)


def not_turned():
    return mock.patch.object(transformer, "rotate", lambda x, tables: x)


def lstm_changed(change):
    return patch_network(change, lstm)


def first_state_answers():
    return mock.patch.object(lstm.LastState, "forward", lambda part, series: part.output(part.memory(series)[0][:, 0]))


def mean_state_answers():
    return mock.patch.object(
        lstm.LastState, "forward", lambda part, series: part.output(part.memory(series)[0].mean(1))
    )


def time_for_samples():
    def forward(part, series):
        states, _ = part.memory(series.transpose(0, 1))
        return part.output(states.transpose(0, 1)[:, -1])

    return mock.patch.object(lstm.LastState, "forward", forward)


def series_backwards():
    return lstm_changed(lambda network: before(network.memory, lambda series: series.flip(1)))


def forget_gates_start_open():
    def change(network):
        size = network.memory.hidden_size
        for name, bias in network.memory.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.ones_(bias[size : 2 * size])

    return lstm_changed(change)


def weights_start_normal():
    def change(network):
        for weight in network.memory.parameters():
            nn.init.normal_(weight, std=0.1)

    return lstm_changed(change)


def state_through_relu():
    return mock.patch.object(
        lstm.LastState, "forward", lambda part, series: part.output(part.memory(series)[0][:, -1].relu())
    )


def dropout_between_layers():
    return lstm_changed(lambda network: setattr(network.memory, "dropout", 0.2))


ANY_TEXT = (
    relu_for_gelu,
    scores_not_scaled,
    scores_scaled_by_the_width,
    epsilon_of_another_port,
    normalisation_at_the_other_place,
    shortcut_after_the_normalisation,
    bias_left_out,
    initialisation_half_as_wide,
    optimizer_without_decay,
    optimizer_that_decays_all,
    gradients_not_clipped,
    gradients_clipped_one_by_one,
    betas_of_another_rule,
)
GPT = (
    *ANY_TEXT,
    gelu_of_the_error_function,
    what_follows_is_seen,
    last_normalisation_left_out,
    initialisation_not_by_depth,
    targets_not_shifted,
    loss_summed_up,
    decay_in_the_gradient,
)
LEARNT = (places_left_out, places_from_one)
BERT = (*ANY_TEXT, *LEARNT, gelu_by_tanh, padding_is_seen, segments_mixed_up, initialisation_by_depth)
SQUAD = (*BERT, ends_summed_up, ends_mixed_up, decay_in_the_gradient)
PRETRAINING = (
    *BERT,
    losses_averaged,
    masked_places_off_by_one,
    pooled_without_tanh,
    transform_left_out,
    steps_of_adam_alone,
    lamb_with_bias_correction,
)
# Below the rounding of half precision: single precision, which is always checked too, finds them.
FINE = (
    epsilon_of_other_networks,
    mutants_vit.epsilon_of_pytorch,
    mutants_vit.gelu_by_tanh,
    mutants_diffusion.epsilon_of_pytorch,
    mutants_diffusion.epsilon_of_another_port,
    mutants_diffusion.gelu_of_the_error_function,
    mutants_diffusion.epsilon_of_heads_too_large,
    mutants_diffusion.noise_of_the_next_step,
)
# The same of mixtures, of which half precision changes some tokens' experts.
FINE_OF_MIXTURES = (
    mutants_decoder.places_from_one,
    mutants_decoder.mean_taken_away,
    optimizer_without_decay,
    *FINE_OF_GPT_OSS,
)
LLAMA = (
    *DECODER,
    *STRETCHED,
    last_normalisation_left_out,
    initialisation_half_as_wide,
    initialisation_not_by_depth,
    targets_not_shifted,
    loss_summed_up,
    optimizer_without_decay,
    optimizer_that_decays_all,
    decay_in_the_gradient,
    gradients_not_clipped,
    gradients_clipped_one_by_one,
    betas_of_another_rule,
)
OF_TRAINING = (
    last_normalisation_left_out,
    initialisation_half_as_wide,
    targets_not_shifted,
    loss_summed_up,
    optimizer_without_decay,
    decay_in_the_gradient,
    gradients_not_clipped,
    gradients_clipped_one_by_one,
    betas_of_another_rule,
)
MIXTURES = (*(mistake for mistake in DECODER if mistake not in FEED_FORWARD), *MIXTURE, *OF_TRAINING)
# Mistakes that change nothing in gpt-oss: its attention is causal by itself, and it clamps what passes a gate.
OF_PLAIN_ATTENTION = (mutants_decoder.what_follows_is_seen, gate_through_gelu, gate_left_out)
LORA = (
    *(mistake for mistake in DECODER if mistake is not epsilon_of_other_networks),
    *ADAPTERS,
    *OF_TRAINING,
)
MUTANTS = {
    **mutants.MUTANTS,
    **mutants_speech.MUTANTS,
    **dict.fromkeys(("gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl", "gpt2_xxl", "gpt2_xxxl"), (*GPT, *LEARNT)),
    "gpt_117m": (*GPT, *LEARNT),
    **dict.fromkeys(("gpt_800m", "gpt_13b", "gpt_175b"), (*GPT, turned_in_pairs, not_turned)),
    **dict.fromkeys(("llama_1b", "llama_3b", "llama_8b", "llama_70b", "llama_405b"), LLAMA),
    "llama_8b_lora": (*LORA, *STRETCHED),
    "olmoe_1b_7b": (
        *(mistake for mistake in MIXTURES if mistake is not base_of_other_networks),
        *NORMALISED,
        initialisation_by_depth,
    ),
    "qwen3_30b_a3b": (
        *(mistake for mistake in MIXTURES if mistake is not epsilon_of_other_networks),
        *NORMALISED,
        initialisation_not_by_depth,
        optimizer_that_decays_all,
    ),
    **dict.fromkeys(
        ("gpt_oss_20b", "gpt_oss_120b"),
        (
            *(mistake for mistake in MIXTURES if mistake not in OF_PLAIN_ATTENTION),
            *GPT_OSS,
            initialisation_not_by_depth,
            optimizer_that_decays_all,
        ),
    ),
    "llama2_70b_lora": tuple(mistake for mistake in LORA if mistake is not base_of_other_networks),
    **dict.fromkeys(("bert_base", "bert_large"), SQUAD),
    **dict.fromkeys(("bert_large_pretraining_128", "bert_large_pretraining_512"), PRETRAINING),
    "mcmc": CHAINS,
    "vit_l16": (
        *mutants_vit.VIT,
        loss_summed_up,
        decay_in_the_gradient,
        gradients_not_clipped,
        gradients_clipped_one_by_one,
        betas_of_another_rule,
    ),
    "dit_xl_2": mutants_diffusion.DIT,
    "flux_1": (
        *mutants_diffusion.FLUX,
        decay_in_the_gradient,
        gradients_not_clipped,
        gradients_clipped_one_by_one,
    ),
    "lstm": (
        first_state_answers,
        mean_state_answers,
        time_for_samples,
        series_backwards,
        forget_gates_start_open,
        weights_start_normal,
        state_through_relu,
        loss_of_absolute_differences,
        adam_without_bias_correction,
        betas_of_another_rule,
    ),
}
