"""Mistakes that real ports of ResNet-50 were seen to make, each as a context in which our code makes it.

Parameter counts stay the same: what changes them is refused before any number is computed.
"""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import torch
from torch import nn

from entrypoints.devices import cpu
from entrypoints.workloads.pytorch import build, resnet


def patch_network(change):
    """The network as it is built, changed afterwards."""
    original = resnet.network

    def network(model):
        built = original(model)
        change(built)
        return built

    return mock.patch.object(resnet, "network", network)


def stride_in_the_first_convolution():
    """Version 1 of the network, as Keras and the paper have it."""

    def change(network):
        for block in (module for module in network.modules() if isinstance(module, resnet.Bottleneck)):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride

    return patch_network(change)


def initialisation(deviation):
    def convolution(channels_in, channels_out, size, stride=1):
        layer = nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, bias=False)
        nn.init.normal_(layer.weight, std=deviation(size * size * channels_in, size * size * channels_out))
        return layer

    return mock.patch.object(resnet, "convolution", convolution)


def glorot():
    return initialisation(lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)))


def he_by_inputs():
    return initialisation(lambda fan_in, _: math.sqrt(2 / fan_in))


def last_scale_of_a_block_starts_at_zero():
    def change(network):
        for block in (module for module in network.modules() if isinstance(module, resnet.Bottleneck)):
            nn.init.zeros_(block.bn3.weight)

    return patch_network(change)


def loss_without_smoothing():
    return mock.patch.dict(build.LOSSES, cross_entropy=lambda loss: nn.CrossEntropyLoss())


def loss_summed_up():
    def summed(loss):
        return nn.CrossEntropyLoss(label_smoothing=loss["label_smoothing"], reduction="sum")

    return mock.patch.dict(build.LOSSES, cross_entropy=summed)


def leaky_activation():
    return mock.patch.object(torch, "relu_", lambda x: nn.functional.leaky_relu_(x, 0.01))


def activation_that_saturates():
    return mock.patch.object(torch, "relu_", nn.functional.relu6)


def smooth_activation():
    return mock.patch.object(torch, "relu_", nn.functional.gelu)


def epsilon(value):
    def change(network):
        for layer in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
            layer.eps = value

    return patch_network(change)


def epsilon_of_keras():
    return epsilon(1e-3)


def epsilon_ten_times_too_small():
    return epsilon(1e-6)


def normalisation_momentum():
    def change(network):
        for layer in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
            layer.momentum = 0.01

    return patch_network(change)


def normalisation_frozen():
    def change(network):
        for layer in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
            layer.train = lambda mode=True, layer=layer: layer

    def eval_first(network):
        network.eval()
        change(network)

    return patch_network(eval_first)


def before(layer, change_inputs):
    layer.register_forward_pre_hook(lambda _, inputs: (change_inputs(inputs[0]),))


def padding_at_the_end():
    """`same` as TensorFlow means it: one more pixel after than before."""

    def change(network):
        network.conv1.padding = (0, 0)
        before(network.conv1, lambda x: nn.functional.pad(x, (2, 3, 2, 3)))

    return patch_network(change)


def smaller_images():
    def change(network):
        before(network, lambda x: nn.functional.interpolate(x, size=192))

    return patch_network(change)


def averages_for_maxima():
    def change(network):
        network.pool = nn.AvgPool2d(3, stride=2, padding=1)

    return patch_network(change)


def bias_left_out():
    def change(network):
        network.fc.register_forward_hook(lambda layer, _, output: output - layer.bias)

    return patch_network(change)


def dropout():
    def change(network):
        before(network.fc, lambda x: nn.functional.dropout(x, 0.1, network.training))

    return patch_network(change)


def rule(**changes):
    original = cpu.OPTIMIZERS["sgd"]

    def sgd(model, rule):
        return original(model, dataclasses.replace(rule, **changes))

    return mock.patch.dict(cpu.OPTIMIZERS, sgd=sgd)


def optimizer_with_nesterov():
    return rule(nesterov=True)


def optimizer_with_other_momentum():
    return rule(momentum=0.9)


def optimizer_without_decay():
    return rule(weight_decay=0.0)


def optimizer_that_decays_all():
    return rule(no_weight_decay_on=())


def optimizer_of_another_kind():
    def adam(model, rule):
        return torch.optim.Adam(build.parameter_groups(model, rule), lr=rule.learning_rate)

    return mock.patch.dict(cpu.OPTIMIZERS, sgd=adam)


# One of each kind, for every gate.
REPRESENTATIVE = (
    stride_in_the_first_convolution,
    he_by_inputs,
    loss_without_smoothing,
    leaky_activation,
    epsilon_ten_times_too_small,
    normalisation_momentum,
    padding_at_the_end,
    smaller_images,
    bias_left_out,
    optimizer_without_decay,
)
FURTHER = (
    glorot,
    last_scale_of_a_block_starts_at_zero,
    loss_summed_up,
    activation_that_saturates,
    smooth_activation,
    epsilon_of_keras,
    normalisation_frozen,
    averages_for_maxima,
    dropout,
    optimizer_with_nesterov,
    optimizer_with_other_momentum,
    optimizer_that_decays_all,
    optimizer_of_another_kind,
)
