"""Mistakes that samplers are written with, each as a context in which ours makes it."""

from __future__ import annotations

import dataclasses
from unittest import mock

import torch

from entrypoints.workloads.pytorch import samplers
from entrypoints.workloads.pytorch.bayesian_network import Posterior
from entrypoints.workloads.pytorch.samplers import HamiltonianMonteCarlo


def rule(change):
    """The sampler's rule, with what is changed of it."""
    original = HamiltonianMonteCarlo.__init__

    def begin(self, density, given, *others):
        original(self, density, dataclasses.replace(given, **change(given)), *others)

    return mock.patch.object(HamiltonianMonteCarlo, "__init__", begin)


def posterior(**changes):
    """The density, with constants of its own changed."""
    original = Posterior.__init__

    def begin(self, model):
        original(self, model)
        for name, value in changes.items():
            setattr(self, name, value)

    return mock.patch.object(Posterior, "__init__", begin)


def trajectory(change):
    """Trajectories that are handed something else."""
    original = HamiltonianMonteCarlo.trajectory
    return mock.patch.object(HamiltonianMonteCarlo, "trajectory", lambda self, *given: original(self, *change(*given)))


def density(change):
    """Another log density and gradient, made from ours and the position."""
    original = Posterior.forward

    def forward(self, position, observed):
        return change(position, *original(self, position, observed))

    return mock.patch.object(Posterior, "forward", forward)


def whole_steps_of_momentum():
    """No half steps at the ends of a trajectory."""

    def run(self, chains, momentum):
        position, gradient = chains.position, chains.gradient
        for _ in range(self.rule.leapfrog_steps):
            momentum = momentum + chains.step_size * gradient
            position = position + chains.step_size * momentum
            log_density, gradient = self.density_and_gradient(position, chains.observed)
        return position, log_density, gradient, momentum

    return mock.patch.object(HamiltonianMonteCarlo, "trajectory", run)


def last_half_step_whole():
    original = HamiltonianMonteCarlo.trajectory

    def run(self, chains, momentum):
        position, log_density, gradient, momentum = original(self, chains, momentum)
        return position, log_density, gradient, momentum + chains.step_size / 2 * gradient

    return mock.patch.object(HamiltonianMonteCarlo, "trajectory", run)


def one_step_too_few():
    return rule(lambda given: {"leapfrog_steps": given.leapfrog_steps - 1})


def step_twice_as_long():
    return rule(lambda given: {"step_size": 2 * given.step_size})


def step_not_adapted():
    return mock.patch.object(HamiltonianMonteCarlo, "adapted", lambda self, chains, ratio: chains.step_size)


def step_adapted_the_other_way():
    original = HamiltonianMonteCarlo.adapted
    return mock.patch.object(
        HamiltonianMonteCarlo, "adapted", lambda self, chains, ratio: original(self, chains, -ratio)
    )


def decrement_of_another_policy():
    return rule(lambda _: {"decrement": 0.01})


def increment_of_another_policy():
    return rule(lambda _: {"increment": 0.1})


def prior_left_out():
    return posterior(prior_scale=1e9)


def prior_of_half_the_scale():
    return posterior(prior_scale=100.0)


def likelihood_of_another_scale():
    return posterior(spread=1.0)


def likelihood_normal():
    """As the degrees of freedom grow, Student's t becomes normal."""
    return posterior(freedom=1e6)


def features_not_scaled():
    return posterior(feature_scale=1.0)


def likelihood_averaged():
    return density(lambda position, value, gradient: (value / 256, gradient / 256))


def gradient_downhill():
    return density(lambda position, value, gradient: (value, -gradient))


def activation_relu():
    return mock.patch.object(torch.Tensor, "tanh_", torch.Tensor.relu_)


def last_layer_left_out():
    """As if the network ended with its second layer."""

    def change(position, value, gradient):
        return value, torch.cat([gradient[:, :-2], torch.zeros_like(gradient[:, -2:])], 1)

    return density(change)


def proposals_all_accepted():
    original = samplers.energy
    return mock.patch.object(samplers, "energy", lambda value, momentum: 0 * original(value, momentum))


def acceptance_of_the_other_sign():
    original = samplers.energy
    return mock.patch.object(samplers, "energy", lambda value, momentum: -original(value, momentum))


def kinetic_energy_left_out():
    return mock.patch.object(samplers, "energy", lambda value, momentum: value)


def kinetic_energy_not_halved():
    original = samplers.energy
    return mock.patch.object(
        samplers, "energy", lambda value, momentum: original(value, momentum) - momentum.square().sum(1) / 2
    )


def momentum_kept():
    """Drawn once, and never anew."""
    first = []

    def change(chains, momentum):
        first.append(momentum)
        return chains, first[0]

    return trajectory(change)


def momentum_of_another_mass():
    return trajectory(lambda chains, momentum: (chains, 2 * momentum))


def momentum_shared_by_chains():
    return trajectory(lambda chains, momentum: (chains, momentum[:1].expand_as(momentum)))


def chains_start_elsewhere():
    original = Posterior.start
    return mock.patch.object(Posterior, "start", lambda self: original(self) + 0.1)


CHAINS = (
    whole_steps_of_momentum,
    last_half_step_whole,
    one_step_too_few,
    step_twice_as_long,
    step_not_adapted,
    step_adapted_the_other_way,
    decrement_of_another_policy,
    increment_of_another_policy,
    prior_left_out,
    prior_of_half_the_scale,
    likelihood_of_another_scale,
    likelihood_normal,
    features_not_scaled,
    likelihood_averaged,
    gradient_downhill,
    activation_relu,
    last_layer_left_out,
    proposals_all_accepted,
    acceptance_of_the_other_sign,
    kinetic_energy_left_out,
    kinetic_energy_not_halved,
    momentum_kept,
    momentum_of_another_mass,
    momentum_shared_by_chains,
    chains_start_elsewhere,
)
