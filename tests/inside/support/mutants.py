"""Mistakes that real ports of these networks were seen to make, each as a context in which our code makes it.

Parameter counts stay the same: what changes them is refused before any number is computed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from unittest import mock

import torch
from torch import nn

from entrypoints.devices.pytorch.strategies import strategy
from entrypoints.workloads.pytorch import autoencoder, build, layers, optimizers, resnet


def patch_network(change, family=resnet):
    """The network of a family as it is built, changed afterwards."""
    original = family.network

    def network(model):
        built = original(model)
        change(built)
        return built

    return mock.patch.object(family, "network", network)


def stride_in_the_first_convolution():
    """Version 1 of the network, as Keras and the paper have it."""

    def change(network):
        for block in (module for module in network.modules() if isinstance(module, resnet.Bottleneck)):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride

    return patch_network(change)


def initialisation(deviation):
    original = layers.convolution

    def convolution(*arguments, **options):
        layer = original(*arguments, **options)
        outputs, inputs, *kernel = layer.weight.shape
        area = math.prod(kernel)
        nn.init.normal_(layer.weight, std=deviation(area * inputs, area * outputs))
        return layer

    return in_all(convolution, layers, resnet)


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
    """The optimizer of a rule that differs, in a hyper-parameter or in one of its settings."""
    original = strategy.optimizer

    def optimizer(model, rule, fused):
        own = {name: value for name, value in changes.items() if hasattr(rule, name)}
        others = {name: value for name, value in changes.items() if name not in own}
        return original(model, dataclasses.replace(rule, **own, settings={**rule.settings, **others}), fused)

    return mock.patch.object(strategy, "optimizer", optimizer)


def optimizer_with_nesterov():
    return rule(nesterov=True)


def optimizer_with_other_momentum():
    return rule(momentum=0.95)


def optimizer_without_momentum():
    return rule(momentum=0.0)


def optimizer_without_decay():
    return rule(weight_decay=0.0)


def optimizer_that_decays_all():
    return rule(no_weight_decay_on=())


def optimizer_that_spares_the_normalisation():
    return rule(no_weight_decay_on=("normalisation",))


def optimizer_of_another_kind():
    def adam(model, rule, _):
        return torch.optim.Adam(optimizers.parameter_groups(model, rule), lr=rule.learning_rate)

    return mock.patch.object(strategy, "optimizer", adam)


def smoothing_of_pytorch():
    """The square smoothed as PyTorch does by default."""
    return rule(smoothing=0.99)


def epsilon_of_tensorflow():
    """As large as it is where TensorFlow adds it, within the root."""

    def rmsprop(groups, rule, _):
        return torch.optim.RMSprop(
            groups,
            lr=rule.learning_rate,
            alpha=rule.settings["smoothing"],
            eps=rule.settings["epsilon"] ** 0.5,
            momentum=rule.settings["momentum"],
        )

    return mock.patch.dict(optimizers.RULES, rmsprop=rmsprop)


def adam_without_bias_correction():
    def adam(groups, rule, _):
        first, second = rule.settings["betas"]
        return torch.optim.RMSprop(groups, lr=rule.learning_rate * (1 - first), alpha=second)

    return mock.patch.dict(optimizers.RULES, adam=adam)


def activations(**others):
    return mock.patch.dict(layers.ACTIVATIONS, others)


def swish_that_is_not_hard():
    return activations(hard_swish=nn.SiLU)


def swish_that_is_hard():
    return activations(silu=nn.Hardswish)


def relu_that_leaks():
    return activations(relu=nn.LeakyReLU)


def relu_that_saturates():
    return activations(relu=nn.ReLU6)


def gate_that_is_hard():
    return mock.patch.dict(layers.GATES, sigmoid=nn.Hardsigmoid)


def gate_that_is_not_hard():
    return mock.patch.dict(layers.GATES, hard_sigmoid=nn.Sigmoid)


def gate_left_out():
    return mock.patch.object(layers.SqueezeExcitation, "forward", lambda _, x: x)


def shortcut_left_out():
    def forward(block, x):
        return block.project(block.gate(block.depthwise(block.expand(x))))

    return mock.patch.object(layers.InvertedResidual, "forward", forward)


def padding_at_the_end_everywhere():
    """`same` as TensorFlow means it, wherever the resolution is halved."""
    original = layers.convolution

    def convolution(*arguments, **options):
        layer = original(*arguments, **options)
        size, stride = layer.kernel_size[0], layer.stride[0]
        if stride == 2:
            layer.padding = (0, 0)
            before(layer, lambda x: nn.functional.pad(x, [(size - 2) // 2, (size - 1) // 2] * 2))
        return layer

    return mock.patch.object(layers, "convolution", convolution)


def every_normalisation(**changes):
    original = layers.normalisation

    def normalisation(channels, model):
        return original(channels, {"normalisation": {**model["normalisation"], **changes}})

    return in_all(normalisation, layers, autoencoder)


@contextlib.contextmanager
def in_all(function, *modules):
    """The function in place of theirs of that name, in each module that has it."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch.object(module, function.__name__, function))
        yield


def epsilon_for_another_network():
    return every_normalisation(epsilon=1e-4)


def momentum_for_another_network():
    return every_normalisation(momentum=0.05)


def pixels_clamped():
    return mock.patch.object(nn.Sigmoid, "forward", lambda _, x: x.clamp(0, 1))


def loss_of_absolute_differences():
    return mock.patch.dict(build.LOSSES, mean_squared_error=lambda _: nn.L1Loss())


def loss_smoothed():
    return mock.patch.dict(build.LOSSES, cross_entropy=lambda _: nn.CrossEntropyLoss(label_smoothing=0.1))


# One of each kind: all that are made in ResNeXt, whose code is ResNet's.
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
EVERYWHERE = (he_by_inputs, epsilon_for_another_network, momentum_for_another_network, padding_at_the_end_everywhere)
INVERTED = (
    *EVERYWHERE,
    gate_left_out,
    shortcut_left_out,
    optimizer_without_decay,
    optimizer_without_momentum,
    optimizer_of_another_kind,
    smoothing_of_pytorch,
    epsilon_of_tensorflow,
)
EFFICIENTNET = (*INVERTED, swish_that_is_hard, gate_that_is_hard, loss_without_smoothing, optimizer_that_decays_all)
MOBILENET = (
    *INVERTED,
    swish_that_is_not_hard,
    gate_that_is_not_hard,
    relu_that_leaks,
    loss_smoothed,
    optimizer_that_spares_the_normalisation,
)
MUTANTS = {
    "resnet50": (
        *REPRESENTATIVE,
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
    ),
    "resnext101_32x4d": (*REPRESENTATIVE, optimizer_with_other_momentum, optimizer_that_decays_all),
    "efficientnet_b0": EFFICIENTNET,
    "efficientnet_b4": EFFICIENTNET,
    "mobilenet_v3_small": MOBILENET,
    "mobilenet_v3_large": MOBILENET,
    "image_compression": (
        *EVERYWHERE,
        relu_that_leaks,
        relu_that_saturates,
        pixels_clamped,
        loss_of_absolute_differences,
        adam_without_bias_correction,
    ),
}
