"""Mistakes that ports of vision transformers were seen to make, each as a context in which ours does."""

from __future__ import annotations

import functools
import math
from unittest import mock

import torch
from mutants import (
    activations,
    optimizer_that_spares_the_normalisation,
    optimizer_without_decay,
    patch_network,
)
from torch import nn

from entrypoints.workloads.pytorch import build, transformer, vit


def every(kind, change):
    """Each part of a kind, changed."""

    def change_all(network):
        for part in network.modules():
            if isinstance(part, kind):
                change(part)

    return patch_network(change_all, vit)


def placing(change):
    return mock.patch.object(vit.Places, "forward", lambda part, x: change(x, part.vectors))


def class_token_at_the_end():
    return placing(lambda x, places: x + places.roll(-1, 1))


def class_token_without_a_place():
    return placing(lambda x, places: torch.cat([x[:, :1] + 0 * places[:, :1], x[:, 1:] + places[:, 1:]], 1))


def places_left_out():
    return placing(lambda x, places: x + 0 * places)


def columns_for_rows():
    forward = vit.Patches.forward
    return mock.patch.object(vit.Patches, "forward", lambda part, images: forward(part, images.transpose(2, 3)))


def classifying(change):
    def forward(part, images):
        x = part.places(part.embedding(images))
        for block in part.blocks:
            x = block(x)
        return change(part, x)

    return mock.patch.object(vit.VisionTransformer, "forward", forward)


def mean_of_the_patches():
    return classifying(lambda part, x: part.head(part.normalisation(x[:, 1:].mean(1))))


def mean_of_all():
    return classifying(lambda part, x: part.head(part.normalisation(x.mean(1))))


def last_patch_for_the_class():
    return classifying(lambda part, x: part.head(part.normalisation(x[:, -1])))


def last_normalisation_left_out():
    return classifying(lambda part, x: part.head(x[:, 0]))


def shortcut_after_the_normalisation():
    def forward(part, x):
        x = part.attention_normalisation(x)
        x = x + part.attention(x, None)
        x = part.feed_forward_normalisation(x)
        return x + part.narrow(part.activation(part.widen(x)))

    return mock.patch.object(vit.Block, "forward", forward)


def gelu_by_tanh():
    return activations(gelu=functools.partial(nn.GELU, approximate="tanh"))


def relu_for_gelu():
    return activations(gelu=nn.ReLU)


def epsilon_of_pytorch():
    return every(nn.LayerNorm, lambda part: setattr(part, "eps", 1e-5))


def what_follows_is_not_seen():
    return every(transformer.SelfAttention, lambda part: setattr(part, "causal", True))


def scores_not_scaled():
    attend = transformer.SelfAttention.attend

    def unscaled(part, query, key, value, attention_mask):
        return attend(part, query * math.sqrt(query.shape[-1]), key, value, attention_mask)

    return mock.patch.object(transformer.SelfAttention, "attend", unscaled)


def bias_left_out():
    def change(part):
        part.query_key_value.register_forward_hook(lambda layer, _, output: output - layer.bias)

    return every(transformer.SelfAttention, change)


def initialisation_half_as_wide():
    original = vit.initialise

    def initialise(network, model):
        original(network, {**model, "initialisation": {**model["initialisation"], "deviation": 0.01}})

    return mock.patch.object(vit, "initialise", initialise)


def smoothing_of_residual_networks():
    cross_entropy = build.CrossEntropy
    return mock.patch.dict(build.LOSSES, cross_entropy=lambda loss: cross_entropy({**loss, "label_smoothing": 0.1}))


VIT = (
    class_token_at_the_end,
    class_token_without_a_place,
    places_left_out,
    columns_for_rows,
    mean_of_the_patches,
    mean_of_all,
    last_patch_for_the_class,
    last_normalisation_left_out,
    shortcut_after_the_normalisation,
    gelu_by_tanh,
    relu_for_gelu,
    epsilon_of_pytorch,
    what_follows_is_not_seen,
    scores_not_scaled,
    bias_left_out,
    initialisation_half_as_wide,
    smoothing_of_residual_networks,
    optimizer_without_decay,
    optimizer_that_spares_the_normalisation,
)
