"""The sampler rules of the cards. Markov chains run in parallel, each a row of every tensor."""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Tuple

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from entrypoints.contract.session import ChainSample, SamplerRule
from entrypoints.data.generated import synthetic as data


class Observed(NamedTuple):
    """The observations that all chains share, in the density's form."""

    features: torch.Tensor
    targets: torch.Tensor


# From position, momentum, step, last step of the momentum and observations to position, log density, gradient and
# momentum, which the next call may overwrite.
Leaps = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Observed], Tuple[torch.Tensor, ...]]
MOST_TOGETHER = 10  # leapfrog steps of a call


class Density(nn.Module):
    """A density to sample from: it maps positions (C, P) to log densities (C,) and gradients (C, P)."""

    chance: data.RandomSource = data.SeededRandom(0)

    def start(self) -> torch.Tensor:
        """Return the start of every chain: the parameters as one vector (P,)."""
        return parameters_to_vector(self.parameters()).detach()

    def observe(self, inputs: torch.Tensor, targets: torch.Tensor) -> Observed:
        """Return the observations in the density's form. Called once."""
        return Observed(inputs, targets)


class ChainState(NamedTuple):
    """The positions of all chains, and the result of the last transition of each."""

    observed: Observed
    position: torch.Tensor  # (C, P)
    log_density: torch.Tensor  # (C,), up to a constant
    gradient: torch.Tensor  # (C, P)
    step_size: torch.Tensor  # (C, 1)
    log_acceptance: torch.Tensor  # (C,), log acceptance ratio of the proposal, may exceed 0
    accepted: torch.Tensor  # (C,)
    transitions: int
    adapting: int  # transitions after which the step sizes change
    evaluations: int  # of the gradient, since the start


class Leapfrog(nn.Module):
    """A leapfrog step of all chains, as one function that can be compiled."""

    def __init__(self, density: Density) -> None:
        super().__init__()
        self.density = density

    def forward(
        self, position: torch.Tensor, momentum: torch.Tensor, step: torch.Tensor, last: torch.Tensor, observed: Observed
    ) -> tuple[torch.Tensor, ...]:
        """Return position, log density, gradient and momentum. The position moves by `step`, the momentum by `last`."""
        position = torch.addcmul(position, step, momentum)
        log_density, gradient = self.density(position, observed)
        return position, log_density, gradient, torch.addcmul(momentum, last, gradient)


def several(leapfrog: Leaps, steps: int) -> Leaps:
    """Return a function that does some leapfrog steps, the momentum its last one by `last`."""

    def leaps(
        position: torch.Tensor, momentum: torch.Tensor, step: torch.Tensor, last: torch.Tensor, observed: Observed
    ) -> tuple[torch.Tensor, ...]:
        # Another tensor though it is equal: what is compiled depends on which inputs are the same.
        whole = step.clone()
        for left in reversed(range(steps)):
            position, *values, momentum = leapfrog(position, momentum, step, whole if left else last, observed)
        return (position, *values, momentum)

    return leaps


def together(steps: int) -> int:
    """Return how many leapfrog steps of a trajectory are one call: a divisor, so that all calls are alike."""
    return max(number for number in range(1, MOST_TOGETHER + 1) if steps % number == 0)


class HamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo with unit masses (Neal, arXiv:1206.1901, section 5.2): trajectories of leapfrog steps
    with a new random momentum each, accepted by the Metropolis rule.

    While a chain adapts, its steps grow by the rule's `increment` after a proposal whose acceptance probability was
    above the target, otherwise they shrink by its `decrement`.
    """

    def __init__(
        self, density: Density, rule: SamplerRule, optimised: Callable[[Leapfrog, int], Leaps] = several
    ) -> None:
        self.density, self.rule = density, rule
        self.together = together(rule.leapfrog_steps)
        self.leaps = optimised(Leapfrog(density), self.together)
        self.evaluations = 0  # since the chains started

    def first_state(self, inputs: torch.Tensor, targets: torch.Tensor, adapting: int, chains: int) -> ChainState:
        """Return all chains after their first transition."""
        self.evaluations = 0
        observed = self.density.observe(inputs, targets)
        position = self.density.start().repeat(chains, 1)
        log_density, gradient = self.density_and_gradient(position, observed)
        step_size = position.new_full((chains, 1), self.rule.step_size)
        zeros = torch.zeros_like(log_density)
        start = ChainState(observed, position, log_density, gradient, step_size, zeros, zeros > 0, 0, adapting, 1)
        return self.next_state(start)

    def density_and_gradient(self, position: torch.Tensor, observed: Observed) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log densities (C,) and gradients (C, P) at positions (C, P), and count the evaluation."""
        self.evaluations += 1
        evaluated: tuple[torch.Tensor, torch.Tensor] = self.density(position, observed)
        return evaluated

    def next_state(self, chains: ChainState) -> ChainState:
        """Return all chains after one transition."""
        chance, number = self.density.chance, chains.transitions
        momentum = torch.from_numpy(chance.normal(f"momentum {number}", chains.position.shape)).to(chains.position)
        uniform = torch.from_numpy(chance.share(f"threshold {number}", chains.log_density.shape))
        threshold = uniform.log().to(chains.log_density)
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
            evaluations=self.evaluations,
        )

    def trajectory(self, chains: ChainState, momentum: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the end: position, log density, gradient, momentum. The momentum starts and ends with half a step."""
        position, log_density, gradient = chains.position, chains.log_density, chains.gradient
        step, whole, half = chains.step_size, chains.step_size.clone(), chains.step_size / 2
        momentum = torch.addcmul(momentum, half, gradient)
        for left in reversed(range(self.rule.leapfrog_steps // self.together)):
            last = whole if left else half
            position, log_density, gradient, momentum = self.leaps(position, momentum, step, last, chains.observed)
            self.evaluations += self.together
        return position, log_density, gradient, momentum

    def adapted(self, chains: ChainState, ratio: torch.Tensor) -> torch.Tensor:
        """Return the step sizes of the next transition (C, 1)."""
        if chains.transitions >= chains.adapting:
            return chains.step_size
        likely = (ratio >= math.log(self.rule.target_acceptance))[:, None]
        grown, shrunk = chains.step_size * (1 + self.rule.increment), chains.step_size / (1 + self.rule.decrement)
        return torch.where(likely, grown, shrunk)


def energy(log_density: torch.Tensor, momentum: torch.Tensor) -> torch.Tensor:
    """Return the log joint density of position and momentum (C,), up to a constant."""
    return log_density - momentum.square().sum(1) / 2


def chain_sample(chains: ChainState) -> ChainSample:
    """Return a sample of all chains as arrays on the host."""
    parts = (chains.position, chains.log_density, chains.accepted, chains.log_acceptance, chains.step_size[:, 0])
    of_chains = [part.cpu().numpy() for part in parts]
    return ChainSample(*of_chains, chains.evaluations)  # type: ignore[call-arg] # five


RULES = {"hamiltonian_monte_carlo": HamiltonianMonteCarlo}


def sampler(
    density: Density, rule: SamplerRule, optimised: Callable[[Leapfrog, int], Leaps] = several
) -> HamiltonianMonteCarlo:
    """Return the sampler of a rule; `optimised` returns what does so many of its leapfrog steps."""
    return RULES[rule.name](density, rule, optimised)
