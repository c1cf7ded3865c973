"""Mistakes in how ranks train together in TensorFlow, each a context in which it is made."""

from __future__ import annotations

from unittest import mock

import tensorflow as tf

from entrypoints.devices.tensorflow.shared.session import TensorFlowSession
from entrypoints.devices.tensorflow.strategies.group import Group
from entrypoints.workloads.tensorflow import loader


def no_synchronisation():
    return mock.patch.object(Group, "means", lambda _, tensors: tensors)


def sum_for_mean():
    """Only of ranks: the one that they are compared with trains as ever."""
    original = Group.means
    return mock.patch.object(
        Group, "means", lambda self, tensors: [mean * self.place.world for mean in original(self, tensors)]
    )


def one_slice_for_all():
    original = loader.slice_of
    return mock.patch.object(loader, "slice_of", lambda batch, _, samples: original(batch, 0, samples))


def the_last_left_out():
    """As if one gradient of all were not averaged."""
    original = Group.means
    return mock.patch.object(
        Group, "means", lambda self, tensors: [*original(self, tensors[:-1]), tf.identity(tensors[-1])]
    )


def clipped_before_the_mean():
    original = TensorFlowSession._loss_and_gradients

    def clipped(self, inputs, targets):
        samples, loss, *gradients = original(self, inputs, targets)
        if self.group and self.rule.gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.rule.gradient_norm)
        return (samples, loss, *gradients)

    return mock.patch.object(TensorFlowSession, "_loss_and_gradients", clipped)


# Each with a workload in which it shows.
MUTANTS = (
    (no_synchronisation, "lstm"),
    (sum_for_mean, "lstm"),
    (one_slice_for_all, "lstm"),
    (the_last_left_out, "image_compression"),
    (clipped_before_the_mean, "gpt2"),
)
