"""Mistakes that real ports of the Llama family were seen to make, each as a context in which ours does."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import torch
from mutants import patch_network
from torch.nn import functional

from entrypoints.workloads.pytorch import decoder, layers, transformer

ATTEND: Any = decoder.GroupedQueryAttention.attend


def attending(change):
    """Attention of what a change makes of query, key and value."""

    def attend(part, query, key, value, attention_mask):
        return ATTEND(part, *change(part, query, key, value), attention_mask)

    return mock.patch.object(decoder.GroupedQueryAttention, "attend", attend)


def scores_not_scaled():
    return attending(lambda part, query, key, value: (query * math.sqrt(part.size), key, value))


def scores_scaled_by_the_width():
    return attending(lambda part, query, key, value: (query / math.sqrt(part.heads), key, value))


def keys_of_other_groups():
    """The heads of queries dealt out to keys in turn, where each group was meant to have its own."""
    return attending(lambda part, query, key, value: (query, *(x.repeat(1, part.group, 1, 1) for x in (key, value))))


def one_key_for_all():
    return attending(lambda part, query, key, value: (query, *(x[:, :1].expand_as(x) for x in (key, value))))


def rows_of_queries_first():
    """The projection read as queries, keys and values, as other files have it."""

    def divided(part, projected, rotary):
        sizes = [part.heads * part.size, part.kv_heads * part.size, part.kv_heads * part.size]
        query, key, value = (x.unflatten(-1, (-1, part.size)).transpose(1, 2) for x in projected.split(sizes, -1))
        return transformer.rotate(query, rotary), transformer.rotate(key, rotary), value

    return mock.patch.object(decoder.GroupedQueryAttention, "divided", divided)


def what_follows_is_seen():
    def change(network):
        for block in network.blocks:
            block.attention.causal = False

    return patch_network(change, decoder)


def positions(**changes):
    rates = transformer.rotary_rates

    def changed(rule, size, device):
        return rates({**rule, **changes}, size, device)

    return mock.patch.object(transformer, "rotary_rates", changed)


def base_of_other_networks():
    return positions(base=10000.0)


def long_waves_not_stretched():
    return positions(scaling=None)


def all_waves_stretched():
    rates = transformer.rotary_rates

    def changed(rule, size, device):
        return rates({**rule, "scaling": None}, size, device) / rule["scaling"]["factor"]

    return mock.patch.object(transformer, "rotary_rates", changed)


def waves_stretched_without_a_blend():
    rates = transformer.rotary_rates

    def changed(rule, size, device):
        scaling = rule["scaling"]
        return rates({**rule, "scaling": {**scaling, "high": scaling["low"] * 1.001}}, size, device)

    return mock.patch.object(transformer, "rotary_rates", changed)


def rotating(change):
    return mock.patch.object(decoder, "rotate", change)


def not_turned():
    return rotating(lambda x, tables: x)


def turned_backwards():
    return rotating(lambda x, tables: transformer.rotate(x, tables._replace(sine=-tables.sine)))


def turned_in_pairs():
    """Rotary positions of neighbours, as Meta's own files have them, where halves were meant."""

    def rotated(x, tables):
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = [even * tables.cosine - odd * tables.sine, odd * tables.cosine + even * tables.sine]
        return torch.stack(turned, -1).flatten(-2)

    return rotating(rotated)


def places_from_one():
    tables = transformer.rotary_tables
    # All positions moved alike turn nothing against another: the first one is taken twice.
    return mock.patch.object(
        transformer,
        "rotary_tables",
        lambda *given: transformer.RotaryTables(*(x[(torch.arange(len(x)) - 1).clamp(min=0)] for x in tables(*given))),
    )


def feeding(change):
    return mock.patch.object(decoder.SwiGLU, "forward", change)


def gate_and_projection_mixed_up():
    return feeding(lambda part, x: part.narrow(part.gate(x) * functional.silu(part.widen(x))))


def gate_through_gelu():
    return feeding(lambda part, x: part.narrow(functional.gelu(part.gate(x)) * part.widen(x)))


def gate_through_a_sigmoid():
    return feeding(lambda part, x: part.narrow(torch.sigmoid(part.gate(x)) * part.widen(x)))


def gate_left_out():
    return feeding(lambda part, x: part.narrow(functional.silu(part.widen(x))))


def normalising(change):
    return mock.patch.object(layers.RMSNorm, "forward", change)


def mean_taken_away():
    return normalising(lambda part, x: functional.layer_norm(x, part.weight.shape, part.weight, None, part.eps))


def scale_left_out():
    return normalising(lambda part, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + part.eps))


def scale_around_one():
    """As Gemma has it."""
    return normalising(
        lambda part, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + part.eps) * (1 + part.weight)
    )


def epsilon_of_other_networks():
    def change(network):
        for layer in network.modules():
            if isinstance(layer, layers.RMSNorm):
                layer.eps = 1e-6

    return patch_network(change, decoder)


def both_halves_at_once():
    """As GPT-J has it."""

    def forward(part, x, attention_mask, rotary=None, cache=None):
        attended = part.attention(part.attention_normalisation(x), attention_mask, rotary, cache)
        return x + attended + part.feed_forward(part.feed_forward_normalisation(x))

    return mock.patch.object(decoder.Block, "forward", forward)


def shortcut_after_the_normalisation():
    def forward(part, x, attention_mask, rotary=None, cache=None):
        x = part.attention_normalisation(x)
        x = x + part.attention(x, attention_mask, rotary, cache)
        x = part.feed_forward_normalisation(x)
        return x + part.feed_forward(x)

    return mock.patch.object(decoder.Block, "forward", forward)


def embedding_times_the_root_of_the_width():
    """As Gemma has it."""

    def forward(part, tokens, *_):
        return part.tokens(tokens) * math.sqrt(part.tokens.embedding_dim)

    return mock.patch.object(decoder.TokenEmbedding, "forward", forward)


def adapting(change):
    """What an adapter makes of an input, changed."""
    linear = torch.nn.functional.linear

    def forward(part, x):
        return linear(x, part.weight) + change(part, x)

    return mock.patch.object(decoder.AdaptedLinear, "forward", forward)


def adapter_left_out():
    return adapting(lambda part, x: 0 * part.up(part.down(x)))


def adapter_without_its_rank():
    return adapting(lambda part, x: part.up(part.down(x)) * part.scale * 16)


def adapter_not_scaled():
    return adapting(lambda part, x: part.up(part.down(x)))


def adapter_scaled_by_the_root_of_its_rank():
    """As rank-stabilised LoRA has it."""
    return adapting(lambda part, x: part.up(part.down(x)) * part.scale * 4)


def adapters_start_normal():
    def begin(part):
        torch.nn.init.normal_(part.down.weight, std=0.02)
        torch.nn.init.zeros_(part.up.weight)

    return mock.patch.object(decoder.AdaptedLinear, "begin", begin)


def both_matrices_start_at_random():
    begin = decoder.AdaptedLinear.begin

    def changed(part):
        begin(part)
        torch.nn.init.kaiming_uniform_(part.up.weight, a=math.sqrt(5))

    return mock.patch.object(decoder.AdaptedLinear, "begin", changed)


ADAPTERS = (
    adapter_left_out,
    adapter_without_its_rank,
    adapter_not_scaled,
    adapter_scaled_by_the_root_of_its_rank,
    adapters_start_normal,
    both_matrices_start_at_random,
)
FEED_FORWARD = (gate_and_projection_mixed_up, gate_through_gelu, gate_through_a_sigmoid, gate_left_out)
DECODER = (
    *FEED_FORWARD,
    scores_not_scaled,
    scores_scaled_by_the_width,
    keys_of_other_groups,
    one_key_for_all,
    rows_of_queries_first,
    what_follows_is_seen,
    base_of_other_networks,
    not_turned,
    turned_backwards,
    turned_in_pairs,
    places_from_one,
    mean_taken_away,
    scale_left_out,
    scale_around_one,
    epsilon_of_other_networks,
    both_halves_at_once,
    shortcut_after_the_normalisation,
    embedding_times_the_root_of_the_width,
)
STRETCHED = (long_waves_not_stretched, all_waves_stretched, waves_stretched_without_a_blend)
