"""Rules about Markov chains: how well they mixed is bounded by how often they were drawn."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.contract.messages import LEAST_DRAWS, MOST_DRAWS, MOST_NUMBERS
from entrypoints.rules.facts import Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule

LEAST_CHAINS = 2  # for R-hat, which compares chains
# The largest sum of the autocorrelations of any numbers around their mean, up to any lag, over how many they are: the
# largest eigenvalue of a band of ones between vectors that sum to 0. It is 0.19 for 200 numbers, and less for fewer.
MOST_CORRELATION = 0.2
FEWEST_DRAWS = 7  # of half a chain, for that bound


def draws_kept(facts: Facts) -> int:
    """Return of how many draws each chain was judged: the last ones, as many as memory is meant to hold."""
    numbers = int(facts.configuration["batch_size"] * (facts.document["workload"]["parameters"] or 1))
    return max(0, min(facts.timed_count, MOST_DRAWS, MOST_NUMBERS // numbers))


@rule(
    "`effective_sample_size` and `r_hat` are of 4 draws or more of chains that moved, `r_hat` of 2 chains or more, and "
    "only of a run that ended; `effective_sample_throughput` is there exactly if the size is",
    "Chains are judged at the end.",
)
def chains_are_judged_by_draws(facts: Facts) -> Iterator[str]:
    """Look for a judgement without draws."""
    size, rate, spread = (
        facts.metric(name) for name in ("effective_sample_size", "effective_sample_throughput", "r_hat")
    )
    if (size is None) != (rate is None):
        yield differ("metrics.effective_sample_throughput", rate, size, "effective_sample_size")
    judged = draws_kept(facts) >= LEAST_DRAWS and facts.metric("acceptance_rate")
    if size is not None and not judged:
        yield f"metrics.effective_sample_size: {size!r} of chains that did not move, or hardly"
    if spread is not None and not (judged and facts.configuration["batch_size"] >= LEAST_CHAINS):
        yield f"metrics.r_hat: {spread!r} of chains that did not move, or of one"


@rule(
    "`effective_sample_size` <= S x log10(S) of S draws, and the autocorrelation time S / size is no longer than "
    "`r_hat` allows; `r_hat` >= sqrt((n - 1) / n) for n draws of half a chain; size / `effective_sample_throughput` = "
    "the seconds of these draws",
    "Both are computed from the same draws.",
    ROUNDING,
)
def chains_mix_as_far_as_drawn(facts: Facts) -> Iterator[str]:
    """Bound the diagnosis of chains by their draws."""
    size, spread, half = facts.metric("effective_sample_size"), facts.metric("r_hat"), draws_kept(facts) // 2
    if half < LEAST_DRAWS // 2:
        return
    if spread is not None and spread * spread < (half - 1) / half * (1 - 1e-9):
        yield f"metrics.r_hat: {spread!r} of {half} draws of half a chain"
    if size is None:
        return
    drawn = 2 * half * facts.configuration["batch_size"]
    most = drawn * max(1.0, math.log10(drawn))
    if not 0 < size <= most * (1 + 1e-9):
        yield f"metrics.effective_sample_size: {size!r} of {drawn} draws"
    elif spread and half >= FEWEST_DRAWS and drawn / size > _longest_correlation(spread, half) * (1 + 1e-9):
        yield f"metrics.effective_sample_size: {size!r} of {drawn} draws whose R-hat is {spread!r}"
    rate, seconds = facts.metric("effective_sample_throughput"), _seconds_of_draws(facts)
    if rate and seconds is not None and not near(size / rate, seconds):
        yield differ("metrics.effective_sample_throughput", size / rate, seconds, "the seconds of its draws")


def _longest_correlation(spread: float, draws: int) -> float:
    """Return the longest autocorrelation time, in draws, of halves of chains whose R-hat is at most `spread`.

    In the sum of `workloads.diagnostics` a correlation at any lag is 1 - (1 - c) / R-hat squared, where c is that
    within chains; the sum of all c is bounded.
    """
    square = max(1.0, spread * spread)
    return 2.0 + 2 * ((square - 1) * (draws - FEWEST_DRAWS // 2 - 1) + MOST_CORRELATION * draws) / square


def _seconds_of_draws(facts: Facts) -> float | None:
    draws = draws_kept(facts)
    if draws == facts.timed_count:
        return facts.window
    return None if facts.timed is None else math.fsum(facts.timed[-draws:])
