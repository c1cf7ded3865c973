"""Mistakes that ports of diffusion transformers were seen to make, each as a context in which ours does."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from mutants import activations, optimizer_without_decay, patch_network, rule
from torch import nn

from entrypoints.data.generated import synthetic
from entrypoints.workloads.pytorch import build, diffusion, optimizers, transformer


def every(kind, change):
    """Each part of a kind, changed."""

    def change_all(network):
        for part in network.modules():
            if isinstance(part, kind):
                change(part)

    return patch_network(change_all, diffusion)


def modulating(change, *counts):
    """Shifts, scales and gates of modulations of so many, changed."""
    forward = diffusion.Modulation.forward

    def changed(part, condition):
        given = forward(part, condition)
        return change(*given) if part.count in counts else given

    return mock.patch.object(diffusion.Modulation, "forward", changed)


def gates_left_out():
    return modulating(lambda a, b, gate, *others: (a, b, 0 * gate + 1, *others), 6, 3)


def gates_of_feed_forward_left_out():
    return modulating(lambda *given: (*given[:5], 0 * given[5] + 1), 6)


def gates_swapped():
    return modulating(lambda a, b, gate, c, d, other: (a, b, other, c, d, gate), 6)


def shift_and_scale_swapped():
    return modulating(lambda shift, scale, *others: (scale, shift, *others), 6, 3, 2)


def shift_and_scale_of_the_head_swapped():
    """As diffusers has them in another class."""
    return modulating(lambda shift, scale: (scale, shift), 2)


def scales_without_one():
    return mock.patch.object(diffusion, "modulated", lambda x, shift, scale: x * scale + shift)


def scales_left_out():
    return mock.patch.object(diffusion, "modulated", lambda x, shift, scale: x + shift + 0 * scale)


def shifts_before_scales():
    return mock.patch.object(diffusion, "modulated", lambda x, shift, scale: (x + shift) * (1 + scale))


def condition_without_silu():
    def forward(part, condition):
        return part.project(condition)[:, None].chunk(part.count, -1)

    return mock.patch.object(diffusion.Modulation, "forward", forward)


def telling(change):
    def forward(part, times, subject):
        return change(part, times, subject)

    return mock.patch.object(diffusion.Condition, "forward", forward)


TELL = diffusion.Condition.forward


def times_left_out():
    return telling(lambda part, times, subject: 0 * TELL(part, times, subject) + part.subject(subject))


def subject_left_out():
    return telling(lambda part, times, subject: TELL(part, times, subject) - part.subject(subject))


def times_without_their_factor():
    return every(diffusion.Condition, lambda part: setattr(part, "time_rule", {**part.time_rule, "factor": 1}))


def times_as_shares():
    """Of the steps there are, where their number was meant."""
    return every(diffusion.Condition, lambda part: setattr(part, "time_rule", {**part.time_rule, "factor": 0.001}))


def sines_before_cosines():
    def told(part, times, subject):
        angles = diffusion.waves(part.time_rule["factor"] * times, part.time_rule["width"], torch.float32)
        return part.time(torch.cat([angles.sin(), angles.cos()], -1)) + part.subject(subject)

    return telling(told)


def waves_with_both_ends():
    """The slowest of them 10000 times as slow, as diffusers has those of DiT's times."""

    def waves(at, width, dtype):
        half = width // 2
        rates = diffusion.PERIOD ** (-torch.arange(half, dtype=dtype, device=at.device) / max(1, half - 1))
        return at[:, None].to(dtype) * rates

    return mock.patch.object(diffusion, "waves", waves)


def noising(kind, change):
    return mock.patch.object(kind, "forward", change)


def shares_without_their_roots():
    def forward(part, latents, noise, times):
        kept = part.kept[times][:, None, None, None]
        return kept * latents + (1 - kept) * noise

    return noising(diffusion.Diffusion, forward)


def image_and_noise_swapped_in_steps():
    forward = diffusion.Diffusion.forward
    return noising(diffusion.Diffusion, lambda part, latents, noise, times: forward(part, noise, latents, times))


def noise_of_the_next_step():
    forward = diffusion.Diffusion.forward
    return noising(
        diffusion.Diffusion,
        lambda part, latents, noise, times: forward(part, latents, noise, (times + 1).clamp(max=999)),
    )


def variance_of_the_square_of_a_line():
    """The schedule of latent diffusion, linear in deviations."""

    def changed(part):
        kept = np.cumprod(1 - np.linspace(0.0001**0.5, 0.02**0.5, len(part.kept)) ** 2)
        part.kept = torch.tensor(kept.tolist()).to(part.kept)

    return every(diffusion.Diffusion, changed)


def image_and_noise_swapped_in_flow():
    forward = diffusion.Flow.forward
    return noising(diffusion.Flow, lambda part, latents, noise, times: forward(part, noise, latents, times))


def targets(change):
    def latents(problem, samples, draw):
        made = synthetic.latents(problem, samples, draw)
        return made._replace(targets=change(*made.inputs[:2]))

    return mock.patch.dict(synthetic.KINDS, latents=latents)


def image_in_place_of_noise():
    return targets(lambda image, _: image)


def noise_in_place_of_the_way():
    return targets(lambda _, noise: noise)


def the_way_backwards():
    return targets(lambda image, noise: image - noise)


def variance_for_noise():
    class Swapped(build.MeanSquaredError):
        def forward(self, output, wanted):
            return super().forward(output.roll(self.channels, 1), wanted)

    return mock.patch.dict(build.LOSSES, mean_squared_error=Swapped)


def variance_in_the_loss():
    class Both(build.MeanSquaredError):
        def forward(self, output, wanted):
            return nn.functional.mse_loss(output, wanted.repeat(1, 2, 1, 1))

    return mock.patch.dict(build.LOSSES, mean_squared_error=Both)


def loss_summed_up():
    return mock.patch.dict(
        build.LOSSES,
        mean_squared_error=lambda loss: (
            lambda output, wanted: wanted.numel() * build.MeanSquaredError(loss)(output, wanted)
        ),
    )


def columns_for_rows():
    forward = diffusion.Patches.forward

    def turned(part, latents):
        x = forward(part, latents)
        fixed = 0 if part.places is None else part.places
        rows, columns = (size // part.project.stride[0] for size in latents.shape[2:])
        return (x - fixed).unflatten(1, (rows, columns)).transpose(1, 2).flatten(1, 2) + fixed

    return mock.patch.object(diffusion.Patches, "forward", turned)


def columns_of_a_patch_for_rows():
    forward = diffusion.Head.forward

    def turned(part, x, condition):
        image, size = forward(part, x, condition), part.patch
        parts = image.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (N, C, rows, size, columns, size)
        return parts.transpose(3, 5).reshape(image.shape)

    return mock.patch.object(diffusion.Head, "forward", turned)


def channels_last_in_a_patch():
    """The rows of the last layer as DiT's own files have them."""
    forward = diffusion.Head.forward

    def turned(part, x, condition):
        image, (rows, columns), size = forward(part, x, condition), part.grid, part.patch
        channels = image.shape[1]
        parts = image.view(-1, channels, rows, size, columns, size).permute(0, 2, 4, 1, 3, 5)
        parts = parts.reshape(-1, rows, columns, size, size, channels).permute(0, 5, 1, 3, 2, 4)
        return parts.reshape(image.shape)

    return mock.patch.object(diffusion.Head, "forward", turned)


def places_left_out():
    return every(diffusion.Patches, lambda part: part.places.data.zero_())


def rows_before_columns_in_places():
    return every(diffusion.Patches, lambda part: part.places.data.copy_(part.places.roll(part.places.shape[1] // 2, 1)))


def cosines_before_sines_in_places():
    def change(part):
        part.places.data.copy_(part.places.unflatten(1, (2, 2, -1)).flip(2).flatten(1))

    return every(diffusion.Patches, change)


def places_by_a_formula():
    """As every weight that is learnt."""
    return mock.patch.object(diffusion.Patches, "given", lambda part: iter(()))


def gelu_of_the_error_function():
    return activations(gelu_tanh=nn.GELU)


def relu_for_gelu():
    return activations(gelu_tanh=nn.ReLU)


def epsilon_of_pytorch():
    return every(nn.LayerNorm, lambda part: setattr(part, "eps", 1e-5))


def epsilon_of_another_port():
    return every(nn.LayerNorm, lambda part: setattr(part, "eps", 1e-4))


def normalisation_left_out():
    return mock.patch.object(nn.LayerNorm, "forward", lambda part, x: x)


def what_follows_is_not_seen():
    return every(transformer.SelfAttention, lambda part: setattr(part, "causal", True))


def attending(change):
    attend: Any = transformer.SelfAttention.attend

    def changed(part, query, key, value, attention_mask):
        return attend(part, *change(part, query, key, value), attention_mask)

    return mock.patch.object(transformer.SelfAttention, "attend", changed)


def scores_not_scaled():
    return attending(lambda part, query, key, value: (query * math.sqrt(part.size), key, value))


def heads_padded():
    """To a size that kernels like, which the scale of the scores follows."""
    return attending(lambda part, query, key, value: (query * math.sqrt(part.size / 96), key, value))


def queries_and_keys_swapped_with_values():
    return attending(lambda _, query, key, value: (query, value, key))


def bias_left_out():
    def change(part):
        part.query_key_value.register_forward_hook(lambda layer, _, output: output - layer.bias)

    return every(transformer.SelfAttention, change)


def normalised(change):
    def divided(part, projected, rotary):
        query, key, value = transformer.SelfAttention.divided(part, projected, None)
        query, key = change(part, query, key)
        if rotary is not None:
            query, key = transformer.rotate(query, rotary), transformer.rotate(key, rotary)
        return query, key, value

    return mock.patch.object(diffusion.NormalisedAttention, "divided", divided)


def queries_and_keys_not_normalised():
    return normalised(lambda part, query, key: (query * part.query_normalisation.weight, key))


def keys_not_normalised():
    return normalised(lambda part, query, key: (part.query_normalisation(query), key * part.key_normalisation.weight))


def one_normalisation_for_both():
    return normalised(lambda part, query, key: (part.query_normalisation(query), part.query_normalisation(key)))


def normalised_after_turning():
    def divided(part, projected, rotary):
        query, key, value = transformer.SelfAttention.divided(part, projected, rotary)
        return part.query_normalisation(query), part.key_normalisation(key), value

    return mock.patch.object(diffusion.NormalisedAttention, "divided", divided)


def turning(change):
    rotary = diffusion.Flux.rotary
    return mock.patch.object(diffusion.Flux, "rotary", lambda part, image: change(part, rotary(part, image)))


def not_turned():
    return turning(lambda _, tables: transformer.RotaryTables(0 * tables.cosine + 1, 0 * tables.sine))


def turned_backwards():
    return turning(lambda _, tables: tables._replace(sine=-tables.sine))


def axes_swapped():
    """Rows for columns."""

    def change(part, tables):
        first, width = (size // 2 for size in part.model["positions"]["axes"][:2])
        order = [*range(first), *range(first + width, first + 2 * width), *range(first, first + width)]
        return transformer.RotaryTables(*(table[:, order] for table in tables))

    return turning(change)


def turned_by_one_number():
    """By the number of the patch, as in a text."""

    def change(part, tables):
        angles = diffusion.waves(torch.arange(len(tables.cosine)), 2 * tables.cosine.shape[1], torch.float32)
        return transformer.RotaryTables(angles.cos(), angles.sin())

    return turning(change)


def text_turned_too():
    def change(part, tables):
        order = torch.arange(len(tables.cosine)).roll(part.text_length)
        return transformer.RotaryTables(*(table[order] for table in tables))

    return turning(change)


def image_before_text():
    """In the row of single blocks, and text for image after them."""
    concatenate = torch.cat

    def forward(part, *given):
        def swapped(tensors, dim=0):
            text = isinstance(tensors, list) and len(tensors) == 2 and tensors[0].dim() == 3 and dim == 1
            return concatenate(list(reversed(tensors)) if text else tensors, dim)

        with mock.patch.object(torch, "cat", swapped):
            return original(part, *given)

    original = diffusion.Flux.forward
    return mock.patch.object(diffusion.Flux, "forward", forward)


def text_and_image_mixed_up():
    """Each with the weights of the other."""
    forward: Any = diffusion.DoubleBlock.forward

    def mixed(part, *given):
        exchanged: Any = SimpleNamespace(text=part.image, image=part.text)
        return forward(exchanged, *given)

    return mock.patch.object(diffusion.DoubleBlock, "forward", mixed)


def single(change):
    def forward(part, x, _, rotary=None, __=None):
        return change(part, part.query_key_value(x), rotary)

    return mock.patch.object(diffusion.ParallelAttention, "forward", forward)


def joined(part, projected, inner, rotary):
    query, key, value = part.divided(projected, rotary)
    attended = part.attend(query, key, value, None).transpose(1, 2).flatten(2)
    return attended, part.activation(inner)


def inner_numbers_first():
    """One layer split the other way round."""

    def change(part, given, rotary):
        inner, projected = given.split(part.sizes[::-1], -1)
        return part.project(torch.cat(joined(part, projected, inner, rotary), -1))

    return single(change)


def inner_numbers_before_attention():
    def change(part, given, rotary):
        projected, inner = given.split(part.sizes, -1)
        attended, inner = joined(part, projected, inner, rotary)
        return part.project(torch.cat([inner, attended], -1))

    return single(change)


def attention_activated_too():
    def change(part, given, rotary):
        projected, inner = given.split(part.sizes, -1)
        attended, inner = joined(part, projected, inner, rotary)
        return part.project(torch.cat([part.activation(attended), inner], -1))

    return single(change)


def queries_keys_and_values_by_heads():
    """Three rows of each head after the other."""

    def divided(part, projected, rotary):
        samples, length, _ = projected.shape
        heads = projected.reshape(samples, length, -1, 3, part.size).transpose(2, 3).reshape(samples, length, -1)
        return original(part, heads, rotary)

    original = transformer.SelfAttention.divided
    return mock.patch.object(transformer.SelfAttention, "divided", divided)


def initialisation(**changes):
    original = diffusion.initialise
    return mock.patch.object(diffusion, "initialise", lambda network, given: original(network, {**given, **changes}))


def modulations_start_at_zero():
    return initialisation(modulation_deviation=0.0)


def embeddings_start_wide():
    return initialisation(embedding_deviation=1.0)


def weights_start_normal():
    def change(network):
        for part in network.modules():
            if isinstance(part, diffusion.Block):
                nn.init.normal_(part.widen.weight, std=0.02)

    return patch_network(change, diffusion)


def adam_of_other_betas():
    return rule(betas=(0.8, 0.99))


def decay_off_the_weights():
    """AdamW where Adam was asked for."""
    return mock.patch.dict(optimizers.RULES, adam=optimizers.adamw)


def epsilon_of_heads_too_large():
    return every(diffusion.RMSNorm, lambda part: setattr(part, "eps", 1e-3))


def silu_for_gelu():
    return activations(gelu_tanh=functools.partial(nn.SiLU))


BOTH = (
    gates_left_out,
    gates_of_feed_forward_left_out,
    gates_swapped,
    shift_and_scale_swapped,
    shift_and_scale_of_the_head_swapped,
    scales_without_one,
    scales_left_out,
    shifts_before_scales,
    condition_without_silu,
    times_left_out,
    subject_left_out,
    sines_before_cosines,
    waves_with_both_ends,
    loss_summed_up,
    columns_for_rows,
    columns_of_a_patch_for_rows,
    channels_last_in_a_patch,
    gelu_of_the_error_function,
    relu_for_gelu,
    silu_for_gelu,
    epsilon_of_another_port,
    normalisation_left_out,
    what_follows_is_not_seen,
    scores_not_scaled,
    heads_padded,
    queries_and_keys_swapped_with_values,
    bias_left_out,
    queries_keys_and_values_by_heads,
    modulations_start_at_zero,
    embeddings_start_wide,
    weights_start_normal,
    optimizer_without_decay,
    adam_of_other_betas,
)
DIT = (
    *BOTH,
    epsilon_of_pytorch,
    times_as_shares,
    shares_without_their_roots,
    image_and_noise_swapped_in_steps,
    noise_of_the_next_step,
    variance_of_the_square_of_a_line,
    image_in_place_of_noise,
    variance_for_noise,
    variance_in_the_loss,
    places_left_out,
    rows_before_columns_in_places,
    cosines_before_sines_in_places,
    places_by_a_formula,
    decay_off_the_weights,
)
FLUX = (
    *BOTH,
    times_without_their_factor,
    image_and_noise_swapped_in_flow,
    noise_in_place_of_the_way,
    the_way_backwards,
    queries_and_keys_not_normalised,
    keys_not_normalised,
    one_normalisation_for_both,
    normalised_after_turning,
    epsilon_of_heads_too_large,
    not_turned,
    turned_backwards,
    axes_swapped,
    turned_by_one_number,
    text_turned_too,
    image_before_text,
    text_and_image_mixed_up,
    inner_numbers_first,
    inner_numbers_before_attention,
    attention_activated_too,
)
