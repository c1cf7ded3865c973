"""Mistakes that ports of mixtures of experts were seen to make, or may make, each as a context in which ours does."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from mutants import patch_network
from torch.nn import functional

from entrypoints.workloads.pytorch import decoder, experts, transformer, windows

ROUTE: Any = experts.Router.forward
GATED: Any = experts.Experts.gated
GROUPED: Any = experts.GroupedLinear.forward


def routers(change):
    """Each router, changed after it is made."""

    def change_all(network):
        for part in network.modules():
            if isinstance(part, experts.Router):
                change(part)

    return patch_network(change_all, decoder)


def routing(change):
    """What a router returns, changed."""
    return mock.patch.object(experts.Router, "forward", lambda part, x, first: change(part, x, *ROUTE(part, x, first)))


def choosing(change):
    """Other experts, with weights as they were meant to be."""

    def forward(part, x, first):
        scores = part.scores(x)
        chosen = change(part, scores)
        if part.renormalised:
            return chosen, scores.gather(-1, chosen).softmax(-1)
        return chosen, scores.softmax(-1).gather(-1, chosen)

    return mock.patch.object(experts.Router, "forward", forward)


def renormalisation_the_other_way():
    """Added where there is none, left out where there is."""
    return routers(lambda part: setattr(part, "renormalised", not part.renormalised))


def experts_dealt_out_in_turn():
    return routers(lambda part: setattr(part, "balanced", True))


def one_expert_fewer():
    return routers(lambda part: setattr(part, "per_token", part.per_token - 1))


def best_expert_passed_over():
    return choosing(lambda part, scores: scores.topk(part.per_token + 1)[1][..., 1:])


def experts_with_the_lowest_scores():
    return choosing(lambda part, scores: scores.topk(part.per_token, largest=False)[1])


def experts_weigh_alike():
    return routing(lambda part, x, chosen, weights: (chosen, torch.full_like(weights, 1 / part.per_token)))


def weights_of_other_experts():
    return routing(lambda part, x, chosen, weights: (chosen, weights.flip(-1)))


def scores_through_a_sigmoid():
    return routing(lambda part, x, chosen, weights: (chosen, torch.sigmoid(part.scores(x).gather(-1, chosen))))


def router_not_trained():
    return routing(lambda part, x, chosen, weights: (chosen, weights.detach()))


def tokens_beyond_a_capacity_dropped():
    """As in GShard and Switch Transformers, with a capacity of 1."""

    def change(part, x, chosen, weights):
        hits = functional.one_hot(chosen, part.experts).flatten(0, 2)
        earlier = (hits.cumsum(0) * hits).sum(-1).view(chosen.shape)  # tokens of the same expert so far
        return chosen, weights * (earlier <= chosen.numel() / part.experts)

    return routing(change)


def outputs_of_other_tokens():
    """What comes out of the experts left in their order."""
    return mock.patch.object(experts.Reordered, "apply", lambda rows, order, back: rows)


def rows_of_other_experts():
    def forward(part, x, counts):
        return GROUPED(part, x, counts.roll(1))

    return mock.patch.object(experts.GroupedLinear, "forward", forward)


def gating(change):
    return mock.patch.object(experts.Experts, "gated", change)


def halves(part, x):
    return x.chunk(2, -1)


def gate_and_projection_mixed_up():
    return gating(lambda part, x: GATED(part, torch.cat(halves(part, x)[::-1], -1)))


def gates_between_other_rows():
    """Read as in files of gpt-oss, where ours has gates first."""
    return gating(lambda part, x: GATED(part, torch.cat([x[..., ::2], x[..., 1::2]], -1)))


def gate_through_gelu():
    return gating(lambda part, x: functional.gelu(halves(part, x)[0]) * halves(part, x)[1])


def gate_left_out():
    return gating(lambda part, x: functional.silu(halves(part, x)[1]))


def turning_after(change):
    """Queries and keys normalised otherwise."""
    return mock.patch.object(decoder.GroupedQueryAttention, "in_scale", change)


def queries_and_keys_not_normalised():
    return turning_after(lambda part, x, layer: x)


def queries_alone_normalised():
    scale = decoder.GroupedQueryAttention.in_scale
    return turning_after(lambda part, x, layer: scale(part, x, layer) if layer is part.query_normalisation else x)


def normalised_the_other_way():
    """By head where all heads are meant, all of them where each is."""

    def change(part, x, layer):
        whole = x if part.normalised == "whole" else x.flatten(2)
        made = whole * torch.rsqrt(whole.square().mean(-1, keepdim=True) + layer.eps)
        weight = layer.weight.view(x.shape[2:]) if part.normalised == "whole" else layer.weight
        return made.view(x.shape) * weight

    return turning_after(change)


def normalised_without_scales():
    def change(part, x, layer):
        one = x.flatten(2) if part.normalised == "whole" else x
        return (one * torch.rsqrt(one.square().mean(-1, keepdim=True) + layer.eps)).view(x.shape)

    return turning_after(change)


ATTENDED: Any = windows.attend


def attending(change):
    """Another rule of windows and sinks, or other queries, keys and values."""

    def attend(query, key, value, rule, visible):
        return ATTENDED(query, key, value, change(rule), visible)

    return mock.patch.object(windows, "attend", attend)


def sinks_left_out():
    return attending(lambda rule: rule._replace(sinks=None))


def sinks_taken_away():
    return attending(lambda rule: rule._replace(sinks=-rule.sinks))


def sinks_divided_like_scores():
    return attending(lambda rule: rule._replace(sinks=rule.sinks / 8))


def sinks_of_other_heads():
    return attending(lambda rule: rule._replace(sinks=rule.sinks.flip(0)))


def sinks_not_trained():
    return attending(lambda rule: rule._replace(sinks=rule.sinks.detach()))


def sizes(change):
    """Windows of another size."""
    return attending(lambda rule: rule._replace(window=rule.window and change(rule.window)))


def window_larger_by_one():
    """As it is where the place itself is not counted."""
    return sizes(lambda window: window + 1)


def window_smaller_by_one():
    return sizes(lambda window: window - 1)


def no_windows():
    return sizes(lambda window: None)


def windows_of_blocks(choose):
    def change(network):
        window = network.blocks[0].attention.window
        for number, block in enumerate(network.blocks):
            block.attention.window = window if choose(number) else None

    return patch_network(change, decoder)


def windows_of_the_other_blocks():
    return windows_of_blocks(lambda number: number % 2 == 1)


def windows_of_all_blocks():
    return windows_of_blocks(lambda number: True)


def clamping(gate, other):
    """The gated half with other clamps."""

    def gated(part, x):
        first, second = halves(part, x)
        first, second = gate(first, part.limit), other(second, part.limit)
        return first * torch.sigmoid(experts.SHARPNESS * first) * (second + 1)

    return gating(gated)


def most(x, limit):
    return x.clamp(max=limit)


def both_sides(x, limit):
    return x.clamp(-limit, limit)


def clamps_left_out():
    return clamping(lambda x, limit: x, lambda x, limit: x)


def gate_not_clamped():
    return clamping(lambda x, limit: x, both_sides)


def projection_not_clamped():
    return clamping(most, lambda x, limit: x)


def gate_clamped_on_both_sides():
    return clamping(both_sides, both_sides)


def projection_clamped_above():
    return clamping(most, most)


def gate_through_silu():
    return mock.patch.object(experts, "SHARPNESS", 1.0)


def one_not_added():
    def gated(part, x):
        gate, other = most(halves(part, x)[0], part.limit), both_sides(halves(part, x)[1], part.limit)
        return gate * torch.sigmoid(experts.SHARPNESS * gate) * other

    return gating(gated)


def without_biases(kind, name):
    def change(network):
        for path, part in network.named_modules():
            if isinstance(part, kind) and path.endswith(name):
                forward = part.forward

                def unbiased(*given, part=part, forward=forward):
                    bias, part.bias = part.bias, None
                    try:
                        return forward(*given)
                    finally:
                        part.bias = bias

                part.forward = unbiased

    return patch_network(change, decoder)


def biases_of_experts_left_out():
    return without_biases(experts.GroupedLinear, "")


def bias_of_outputs_left_out():
    return without_biases(experts.GroupedLinear, "narrow")


def bias_of_the_router_left_out():
    return without_biases(experts.Router, "")


def bias_of_attention_left_out():
    return without_biases(torch.nn.Linear, "query_key_value")


def positions_not_stretched():
    rates = transformer.rotary_rates
    return mock.patch.object(transformer, "rotary_rates", lambda rule, *given: rates({**rule, "scaling": None}, *given))


def positions_stretched_as_in_llama():
    rates = transformer.rotary_rates

    def changed(rule, *given):
        return rates({**rule, "scaling": {**rule["scaling"], "kind": "llama3"}}, *given)

    return mock.patch.object(transformer, "rotary_rates", changed)


def all_positions_stretched():
    rates = transformer.rotary_rates

    def changed(rule, *given):
        return rates({**rule, "scaling": None}, *given) / rule["scaling"]["factor"]

    return mock.patch.object(transformer, "rotary_rates", changed)


def attention_not_sharpened():
    return mock.patch.object(transformer, "rotary_amplitude", lambda rule: 1.0)


MIXTURE = (
    renormalisation_the_other_way,
    experts_dealt_out_in_turn,
    one_expert_fewer,
    best_expert_passed_over,
    experts_with_the_lowest_scores,
    experts_weigh_alike,
    weights_of_other_experts,
    scores_through_a_sigmoid,
    router_not_trained,
    tokens_beyond_a_capacity_dropped,
    outputs_of_other_tokens,
    rows_of_other_experts,
    gate_and_projection_mixed_up,
    gates_between_other_rows,
    gate_through_gelu,
    gate_left_out,
)
NORMALISED = (
    queries_and_keys_not_normalised,
    queries_alone_normalised,
    normalised_the_other_way,
    normalised_without_scales,
)
OF_SINKS = (sinks_taken_away, sinks_divided_like_scores, sinks_of_other_heads, sinks_not_trained)
GPT_OSS = (
    *OF_SINKS,
    sinks_left_out,
    window_larger_by_one,
    window_smaller_by_one,
    no_windows,
    windows_of_the_other_blocks,
    windows_of_all_blocks,
    clamps_left_out,
    gate_not_clamped,
    projection_not_clamped,
    gate_clamped_on_both_sides,
    projection_clamped_above,
    gate_through_silu,
    one_not_added,
    biases_of_experts_left_out,
    bias_of_outputs_left_out,
    bias_of_the_router_left_out,
    bias_of_attention_left_out,
    positions_not_stretched,
    positions_stretched_as_in_llama,
    all_positions_stretched,
    attention_not_sharpened,
)
# Smaller than what rounding to half precision does to its scores and gates.
FINE_OF_GPT_OSS = (*OF_SINKS, gate_clamped_on_both_sides, positions_stretched_as_in_llama)
