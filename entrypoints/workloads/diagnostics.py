"""How well Markov chains mixed (Vehtari, Gelman, Simpson, Carpenter and Bürkner, Bayesian Analysis 16, 2021).

Draws have the shape (chains, draws, parameters), results (parameters,). The tests compare the numbers with ArviZ's.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Sequence

import numpy as np

from entrypoints.contract.messages import LEAST_DRAWS

LEAST_CHAINS = 2  # for R-hat, which compares chains


def worst(positions: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Return the smallest effective sample size of any parameter and the largest R-hat.

    `positions` are successive draws (chains, parameters). A number is None if there are too few draws or chains, or if
    a parameter never moved.
    """
    if len(positions) < LEAST_DRAWS:
        return None, None
    draws = np.stack(positions, axis=1)
    largest = float(r_hat(draws).max()) if len(draws) >= LEAST_CHAINS else math.nan
    return float(effective_sample_size(draws).min()), largest if math.isfinite(largest) else None


def effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """Return the bulk effective sample size: how many independent draws estimate the centre equally well."""
    halves = split(draws)
    sizes = np.array([_effective(normal_scores(parameter)) for parameter in np.moveaxis(halves, 2, 0)])
    still = np.ptp(halves, axis=(0, 1)) < np.finfo(float).resolution
    return np.where(still, math.prod(halves.shape[:2]), sizes)


def r_hat(draws: np.ndarray) -> np.ndarray:
    """Return the rank-normalised split R-hat, of location or of spread, whichever is larger.

    It is NaN if nothing moved, and infinite if chains rest at different positions.
    """
    halves = split(draws)
    spread = np.abs(halves - np.median(halves, axis=(0, 1)))
    location, tails = (
        np.array([_r_hat(normal_scores(parameter)) for parameter in np.moveaxis(values, 2, 0)])
        for values in (halves, spread)
    )
    return np.where(tails > location, tails, location)


def split(draws: np.ndarray) -> np.ndarray:
    """Return the first and the last half of each chain as separate chains; a draw in the middle is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]]).astype(np.float64)


def normal_scores(values: np.ndarray) -> np.ndarray:
    """Return normal quantiles of the ranks of values, with the mean rank for equal values (Blom, 1958)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    double_ranks = 2 * np.cumsum(counts) - counts + 1  # from 2
    return quantiles(values.size)[double_ranks - 2][inverse.reshape(values.shape)]


@functools.lru_cache(maxsize=1)
def quantiles(size: int) -> np.ndarray:
    """Return quantiles of the normal distribution at the ranks 1, 1.5, 2, ... of `size` values."""
    at = NormalDist().inv_cdf
    return np.array([at((double_rank / 2 - 3 / 8) / (size + 1 / 4)) for double_rank in range(2, 2 * size + 1)])


def _r_hat(chains: np.ndarray) -> float:
    """Return the root of the variance over all chains divided by that within them; (chains, draws)."""
    draws = chains.shape[1]
    between = draws * chains.mean(axis=1).var(ddof=1)
    within = chains.var(axis=1, ddof=1).mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sqrt((between / within + draws - 1) / draws))


def _effective(chains: np.ndarray) -> float:
    """Return the number of draws over their autocorrelation time (Geyer, 1992).

    Correlations at an even lag and the next are summed in pairs, as long as pairs are positive, each limited by the one
    before it. Of the first other pair the even lag counts once. The time is at least one over the logarithm of the
    number of draws, which limits the count for oscillating chains.
    """
    count, draws = chains.shape
    covariance = autocovariance(chains).mean(axis=0)
    total = covariance[0] + (chains.mean(axis=1).var(ddof=1) if count > 1 else 0.0)
    if not total:
        return math.nan
    correlation = 1 - (covariance[0] * draws / (draws - 1) - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[0 : draws // 2 * 2 : 2] + correlation[1::2]
    limit = max(0, (draws - 3) // 2)
    last = next((pair for pair in range(limit) if pairs[pair] <= 0), limit)
    even = correlation[2 * last]
    time = 2 * np.minimum.accumulate(pairs[:last]).sum() - 1 + (even if pairs[last] >= 0 else max(0.0, even))
    return chains.size / max(time, 1 / math.log10(chains.size))


def autocovariance(chains: np.ndarray) -> np.ndarray:
    """Return each chain's autocovariance at each lag over the number of draws; (chains, draws) -> the same shape."""
    draws = chains.shape[1]
    spectrum = np.fft.rfft(chains - chains.mean(axis=1, keepdims=True), 2 * draws)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * draws)[:, :draws] / draws
