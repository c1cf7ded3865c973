"""Hamiltonian Monte Carlo over a small network, chain by chain and row by row, without any code of ours.

The density is Student's t and a normal distribution as torch.distributions has them, its gradient that of autograd.
"""

from __future__ import annotations

import math

import torch
from torch.distributions import Normal, StudentT


def log_density(problem, features, targets):
    """Of a flat vector of weights, all constants included."""
    model, count = problem["model"], problem["model"]["features"]
    units, prior, likelihood = model["hidden"], model["prior"], model["likelihood"]

    def of_weights(flat):
        rows = flat[: units * count].reshape(units, count)
        biases, outputs = flat[units * count :][:units], flat[units * (count + 1) :][:units]
        bias, scale, shift = flat[-3:]
        predicted = torch.stack(
            [
                (torch.tanh(rows @ (inputs * model["feature_scale"]) + biases) * outputs).sum() + bias
                for inputs in features
            ]
        )
        around = StudentT(likelihood["degrees_of_freedom"], scale * predicted + shift, likelihood["scale"])
        weights = Normal(torch.zeros_like(flat), prior["scale"])
        return around.log_prob(targets).sum() + weights.log_prob(flat).sum()

    return of_weights


def constant(problem):
    """What `log_density` has more than one without constants."""
    prior, likelihood = problem["model"]["prior"], problem["model"]["likelihood"]
    nothing = torch.zeros(1, dtype=torch.float64)
    of_prior = Normal(nothing, prior["scale"]).log_prob(nothing)
    of_target = StudentT(likelihood["degrees_of_freedom"], nothing, likelihood["scale"]).log_prob(nothing)
    return float(problem["parameters"] * of_prior + problem["input"]["observations"] * of_target)


def sloped(density, at):
    """The density there, and its gradient."""
    at = at.clone().requires_grad_()
    value = density(at)
    (gradient,) = torch.autograd.grad(value, at)
    return value.item(), gradient


def transition(density, rule, start, step, momentum, threshold):
    """(position, density, logarithm of the ratio) of one chain."""
    value, gradient = sloped(density, start)
    before = value - float(momentum @ momentum) / 2
    position = start
    for _ in range(rule["leapfrog_steps"]):
        momentum = momentum + step / 2 * gradient
        position = position + step * momentum
        new, gradient = sloped(density, position)
        momentum = momentum + step / 2 * gradient
    ratio = new - float(momentum @ momentum) / 2 - before
    accepted = math.log(threshold) < ratio
    return (position, new, ratio) if accepted else (start, value, ratio)


def run(problem, rule, start, features, targets, momenta, thresholds):
    """What stands at each transition: lists, a number or a vector of each chain, by the names of `Draw`."""
    density, less = log_density(problem, features, targets), constant(problem)
    at = [start] * len(thresholds[0])
    steps = [rule["step_size"]] * len(at)
    for drawn, shares in zip(momenta, thresholds):
        done = [transition(density, rule, *chain) for chain in zip(at, steps, drawn, shares)]
        at = [position for position, *_ in done]
        likely = [ratio >= math.log(rule["target_acceptance"]) for *_, ratio in done]
        steps = [
            step * (1 + rule["increment"]) if more else step / (1 + rule["decrement"])
            for step, more in zip(steps, likely)
        ]
        yield {
            "position": [position.numpy() for position in at],
            "log_density": [value - less for _, value, _ in done],
            "log_acceptance": [ratio for *_, ratio in done],
        }
