"""A small Bayesian network: the posterior density of its weights, given observations of its output."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn

from entrypoints.workloads.pytorch.samplers import Density, Observed

SATURATED = 16.0


class Posterior(Density):
    """The posterior of three linear layers with tanh after the first.

    Weights have a normal prior, targets a Student's t distribution around the output. Chains (C) differ in their
    weights and share the observations (N).
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.features, self.units = model["features"], model["hidden"]
        self.hidden = nn.Linear(self.features, self.units)
        self.output = nn.Linear(self.units, 1)
        self.scale = nn.Linear(1, 1)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.feature_scale = model["feature_scale"]
        self.prior_scale = model["prior"]["scale"]
        self.freedom, self.spread = model["likelihood"]["degrees_of_freedom"], model["likelihood"]["scale"]

    def observe(self, inputs: torch.Tensor, targets: torch.Tensor) -> Observed:
        """Return the scaled features (N, F + 1), with a column of ones for the bias, and the targets (N,)."""
        scaled = self.feature_scale * inputs
        return Observed(torch.cat([scaled, torch.ones_like(scaled[:, :1])], 1), targets)

    def forward(self, position: torch.Tensor, observed: Observed) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log density (C,), up to a constant, at flat weights (C, P), and its gradient (C, P)."""
        chains, units = len(position), self.units
        sizes = [units * self.features, units, units, 1, 1, 1]
        weight, bias, output, output_bias, scale, shift = position.split(sizes, 1)
        first = torch.cat([weight.reshape(chains, units, -1), bias[..., None]], -1).flatten(0, 1)
        active = hyperbolic_tangent((first @ observed.features.t()).view(chains, units, -1))  # (C, H, N)
        inner = (output[:, None] @ active)[:, 0] + output_bias  # (C, N)
        error = observed.targets - (scale * inner + shift)
        width = self.freedom * self.spread**2
        log_likelihood = (error.square() / width).log1p().sum(1) * (-(self.freedom + 1) / 2)
        log_prior = position.square().sum(1) / (-2 * self.prior_scale**2)
        pull = (self.freedom + 1) * error / (width + error.square())  # derivative of the log likelihood by the output
        back = (scale * pull)[:, None]  # (C, 1, N)
        weighted = active * back
        slope = back - active * weighted  # back * (1 - active**2)
        to_first = (slope.flatten(0, 1) @ observed.features).view(chains, units, -1) * output[..., None]
        parts = [
            *(to_first[..., :-1].flatten(1), to_first[..., -1], weighted.sum(-1), back.sum(-1)),
            *((pull * inner).sum(1, keepdim=True), pull.sum(1, keepdim=True)),
        ]
        return log_likelihood + log_prior, torch.cat(parts, 1) - position / self.prior_scale**2


def hyperbolic_tangent(x: torch.Tensor) -> torch.Tensor:
    """Return tanh, which may be in the memory of `x`.

    Inductor writes it with exponentials for a CPU, which takes three times as long where they underflow. In single
    precision tanh is 1 from 10 on.
    """
    if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling") and torch.compiler.is_compiling():
        return x.clamp(-SATURATED, SATURATED).tanh()
    return x.tanh_()


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the density of a card's `problem.model`."""
    return Posterior(model)
