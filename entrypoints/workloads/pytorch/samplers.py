"""The sampler rules of the cards: Markov chains side by side, each a row of every tensor."""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Tuple

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from entrypoints.contract.session import Draw, SamplerRule
from entrypoints.data.generated import synthetic as data


class Observed(NamedTuple):
    """What all chains share, as a density wants it."""

    features: torch.Tensor
    targets: torch.Tensor


DensityAndGradient = Callable[[torch.Tensor, Observed], Tuple[torch.Tensor, torch.Tensor]]


class Density(nn.Module):
    """What is sampled: called with positions (C, P), it gives their log density (C,) and its gradient (C, P)."""

    chance: data.Draw = data.Random(0)

    def start(self) -> torch.Tensor:
        """Where every chain begins: its parameters, one after the other (P,)."""
        return parameters_to_vector(self.parameters()).detach()

    def observe(self, inputs: torch.Tensor, targets: torch.Tensor) -> Observed:
        """The observations, prepared once."""
        return Observed(inputs, targets)


class ChainState(NamedTuple):
    """Where the chains are, and what came of the last transition of each."""

    observed: Observed
    position: torch.Tensor  # (C, P)
    log_density: torch.Tensor  # (C,), up to a constant
    gradient: torch.Tensor  # (C, P)
    step_size: torch.Tensor  # (C, 1)
    log_acceptance: torch.Tensor  # (C,), of the proposal: the logarithm of a ratio, above 0 too
    accepted: torch.Tensor  # (C,)
    transitions: int
    adapting: int  # transitions after which the step sizes change


class HamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo with unit masses (Neal, arXiv:1206.1901, section 5.2): a trajectory of leapfrog steps
    from a momentum drawn anew, accepted as Metropolis has it.

    While a chain adapts, its steps grow by the rule's `increment` after a proposal that was likelier than the target to
    be accepted, else they shrink by its `decrement`.
    """

    def __init__(self, density: Density, sloped: DensityAndGradient, rule: SamplerRule) -> None:
        self.density, self.density_and_gradient, self.rule = density, sloped, rule

    def begin(self, inputs: torch.Tensor, targets: torch.Tensor, adapting: int, chains: int) -> ChainState:
        """All chains after their first transition."""
        observed = self.density.observe(inputs, targets)
        position = self.density.start().repeat(chains, 1)
        log_density, gradient = self.density_and_gradient(position, observed)
        step_size = position.new_full((chains, 1), self.rule.step_size)
        nothing = torch.zeros_like(log_density)
        start = ChainState(observed, position, log_density, gradient, step_size, nothing, nothing > 0, 0, adapting)
        return self.follow(start)

    def follow(self, chains: ChainState) -> ChainState:
        """One transition of each chain."""
        chance, number = self.density.chance, chains.transitions
        momentum = torch.from_numpy(chance.normal(f"momentum {number}", chains.position.shape)).to(chains.position)
        share = torch.from_numpy(chance.share(f"threshold {number}", chains.log_density.shape))
        threshold = share.log().to(chains.log_density)
        position, log_density, gradient, last = self.trajectory(chains, momentum)
        ratio = energy(log_density, last) - energy(chains.log_density, momentum)
        ratio = ratio.masked_fill(ratio.isnan(), -math.inf)  # a trajectory that diverged
        accepted = threshold < ratio
        moved = accepted[:, None]
        return chains._replace(
            position=torch.where(moved, position, chains.position),
            log_density=torch.where(accepted, log_density, chains.log_density),
            gradient=torch.where(moved, gradient, chains.gradient),
            step_size=self.adapted(chains, ratio),
            log_acceptance=ratio,
            accepted=accepted,
            transitions=chains.transitions + 1,
        )

    def trajectory(self, chains: ChainState, momentum: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Position, log density, gradient and momentum at its end: half a step of momentum at either end."""
        position, log_density, gradient = chains.position, chains.log_density, chains.gradient
        step, half = chains.step_size, chains.step_size / 2
        momentum = torch.addcmul(momentum, half, gradient)
        for left in reversed(range(self.rule.leapfrog_steps)):
            position = torch.addcmul(position, step, momentum)
            log_density, gradient = self.density_and_gradient(position, chains.observed)
            momentum = torch.addcmul(momentum, step if left else half, gradient)
        return position, log_density, gradient, momentum

    def adapted(self, chains: ChainState, ratio: torch.Tensor) -> torch.Tensor:
        """Step sizes of the next transition (C, 1)."""
        if chains.transitions >= chains.adapting:
            return chains.step_size
        likely = (ratio >= math.log(self.rule.target_acceptance))[:, None]
        grown, shrunk = chains.step_size * (1 + self.rule.increment), chains.step_size / (1 + self.rule.decrement)
        return torch.where(likely, grown, shrunk)


def energy(log_density: torch.Tensor, momentum: torch.Tensor) -> torch.Tensor:
    """The logarithm of the joint density of position and momentum (C,), up to a constant."""
    return log_density - momentum.square().sum(1) / 2


def chain_sample(chains: ChainState) -> Draw:
    """The part of their state that is told of."""
    told = (chains.position, chains.log_density, chains.accepted, chains.log_acceptance, chains.step_size[:, 0])
    return Draw(*(one.cpu().numpy() for one in told))


RULES = {"hamiltonian_monte_carlo": HamiltonianMonteCarlo}


def sampler(density: Density, sloped: DensityAndGradient, rule: SamplerRule) -> HamiltonianMonteCarlo:
    """The sampler that a rule names; `sloped` is the density, or what stands for it once it is compiled."""
    return RULES[rule.name](density, sloped, rule)
