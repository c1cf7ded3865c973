"""The sampler rules of the cards. Markov chains run in parallel, each a row of every tensor."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from entrypoints.contract.session import ChainSample, SamplerRule
from entrypoints.data.generated import synthetic as data


class Observed(NamedTuple):
    """The observations that all chains share, in the density's form."""

    features: tf.Tensor
    targets: tf.Tensor


class Density(tf.Module):
    """A density to sample from: it maps positions (C, P) to log densities (C,) and gradients (C, P)."""

    chance: data.RandomSource = data.SeededRandom(0)

    def start(self) -> tf.Tensor:
        """Return the start of every chain (P,)."""
        raise NotImplementedError

    def observe(self, inputs: tf.Tensor, targets: tf.Tensor) -> Observed:
        """Return the observations in the density's form. Called once."""
        return Observed(inputs, targets)

    def __call__(self, position: tf.Tensor, observed: Observed) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the log density and its gradient."""
        raise NotImplementedError


class ChainPosition(NamedTuple):
    """The positions of all chains, with their density."""

    position: tf.Tensor  # (C, P)
    log_density: tf.Tensor  # (C,), up to a constant
    gradient: tf.Tensor  # (C, P)


class ChainState(NamedTuple):
    """The positions of all chains, and the result of the last transition of each."""

    observed: Observed
    current: ChainPosition
    step_size: tf.Tensor  # (C, 1)
    log_acceptance: tf.Tensor  # (C,), log acceptance ratio of the proposal, may exceed 0
    accepted: tf.Tensor  # (C,)
    transitions: int
    adapting: int  # transitions after which the step sizes change
    evaluations: int  # of the gradient, since the start


class HamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo with unit masses (Neal, arXiv:1206.1901, section 5.2): trajectories of leapfrog steps
    with a new random momentum each, accepted by the Metropolis rule.

    While a chain adapts, its steps grow by the rule's `increment` after a proposal whose acceptance probability was
    above the target, otherwise they shrink by its `decrement`. A transition is one graph.
    """

    def __init__(self, density: Density, rule: SamplerRule, compiled: bool) -> None:
        self.density, self.rule = density, rule
        self.transition = tf.function(self._transition, autograph=False, jit_compile=compiled or None)

    def first_state(self, inputs: tf.Tensor, targets: tf.Tensor, adapting: int, chains: int) -> ChainState:
        """Return all chains after their first transition."""
        observed = self.density.observe(inputs, targets)
        position = tf.tile(self.density.start()[None], [chains, 1])
        standing = ChainPosition(position, *self.density(position, observed))
        step_size = tf.fill([chains, 1], tf.cast(self.rule.step_size, position.dtype))
        zeros = tf.zeros_like(standing.log_density)
        return self.next_state(ChainState(observed, standing, step_size, zeros, zeros > 0, 0, adapting, 1))

    def next_state(self, chains: ChainState) -> ChainState:
        """Return all chains after one transition."""
        chance, number, standing = self.density.chance, chains.transitions, chains.current
        momentum = tf.cast(chance.normal(f"momentum {number}", standing.position.shape), standing.position.dtype)
        threshold = tf.cast(chance.share(f"threshold {number}", standing.log_density.shape), momentum.dtype)
        standing, ratio, accepted, evaluations = self.transition(
            chains.observed, standing, chains.step_size, momentum, threshold
        )
        return chains._replace(
            current=standing,
            step_size=self.adapted(chains, ratio),
            log_acceptance=ratio,
            accepted=accepted,
            transitions=number + 1,
            evaluations=chains.evaluations + int(evaluations),
        )

    def _transition(
        self, observed: Observed, start: ChainPosition, step: tf.Tensor, momentum: tf.Tensor, threshold: tf.Tensor
    ) -> tuple[ChainPosition, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the new positions, the log acceptance ratio (C,), whether the proposal was accepted (C,), and how
        often the gradient was evaluated."""
        end, last, evaluations = self.trajectory(observed, start, step, momentum)
        ratio = energy(end.log_density, last) - energy(start.log_density, momentum)
        ratio = tf.where(
            tf.math.is_nan(ratio), tf.constant(-math.inf, ratio.dtype), ratio
        )  # a trajectory that diverged
        accepted = tf.math.log(threshold) < ratio
        moved = accepted[:, None]
        chosen = ChainPosition(
            tf.where(moved, end.position, start.position),
            tf.where(accepted, end.log_density, start.log_density),
            tf.where(moved, end.gradient, start.gradient),
        )
        return chosen, ratio, accepted, evaluations

    def trajectory(
        self, observed: Observed, start: ChainPosition, step: tf.Tensor, momentum: tf.Tensor
    ) -> tuple[ChainPosition, tf.Tensor, tf.Tensor]:
        """Return the end, the momentum there, and how often the gradient was evaluated.

        The momentum makes half a step at either end.
        """

        def leap(
            evaluations: tf.Tensor, at: ChainPosition, momentum: tf.Tensor
        ) -> tuple[tf.Tensor, ChainPosition, tf.Tensor]:
            position = at.position + step * momentum
            log_density, gradient = self.density(position, observed)
            evaluations += 1
            momentum_step = tf.where(evaluations < steps, step, step / 2)
            return evaluations, ChainPosition(position, log_density, gradient), momentum + momentum_step * gradient

        steps = self.rule.leapfrog_steps
        state = (tf.constant(0), start, momentum + step / 2 * start.gradient)
        evaluations, end, last = tf.while_loop(lambda evaluations, *_: evaluations < steps, leap, state)
        return end, last, evaluations

    def adapted(self, chains: ChainState, ratio: tf.Tensor) -> tf.Tensor:
        """Return the step sizes of the next transition (C, 1)."""
        if chains.transitions >= chains.adapting:
            return chains.step_size
        likely = (ratio >= math.log(self.rule.target_acceptance))[:, None]
        grown, shrunk = chains.step_size * (1 + self.rule.increment), chains.step_size / (1 + self.rule.decrement)
        return tf.where(likely, grown, shrunk)


def energy(log_density: tf.Tensor, momentum: tf.Tensor) -> tf.Tensor:
    """Return the log joint density of position and momentum (C,), up to a constant."""
    return log_density - tf.reduce_sum(tf.square(momentum), 1) / 2


def chain_sample(chains: ChainState) -> ChainSample:
    """Return a sample of all chains as arrays."""
    position, log_density, _ = chains.current
    parts = (position, log_density, chains.accepted, chains.log_acceptance, chains.step_size[:, 0])
    of_chains = [part.numpy() for part in parts]
    return ChainSample(*of_chains, chains.evaluations)  # type: ignore[call-arg] # five


RULES = {"hamiltonian_monte_carlo": HamiltonianMonteCarlo}


def sampler(density: Density, rule: SamplerRule, compiled: bool) -> HamiltonianMonteCarlo:
    """Return the sampler of a rule."""
    return RULES[rule.name](density, rule, compiled)
