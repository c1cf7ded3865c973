"""How well chains mixed, as ArviZ tells it."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")

from entrypoints.workloads import diagnostics  # noqa: E402


def autoregressive(chains, draws, correlation, seed=0, apart=0.0, stuck=0.0):
    """Chains whose draws follow each other, some of them repeated, around places apart; one parameter."""
    random = np.random.default_rng(seed)
    made = random.standard_normal((chains, draws))
    for draw in range(1, draws):
        made[:, draw] += correlation * made[:, draw - 1]
        repeated = random.random(chains) < stuck
        made[repeated, draw] = made[repeated, draw - 1]
    return (made + apart * random.standard_normal((chains, 1)))[..., None]


@pytest.mark.parametrize("chains", [1, 4])
@pytest.mark.parametrize("draws", [4, 5, 6, 7, 100])
@pytest.mark.parametrize(
    ("correlation", "apart", "stuck"),
    [(0, 0, 0), (-0.9, 0, 0), (0.9, 0, 0.5), (0.99, 0, 0), (0.5, 3, 0), (-0.5, 0, 0.9)],
)
def test_both_are_those_of_arviz(chains, draws, correlation, apart, stuck):
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    for seed in range(3):
        made = autoregressive(chains, draws, correlation, seed, apart, stuck)
        parameter = made[..., 0]
        expected = array_stats.ess(parameter, chain_axis=0, draw_axis=1, method="bulk")
        assert diagnostics.effective_sample_size(made)[0] == pytest.approx(expected, rel=1e-10)
        if chains > 1:
            expected = array_stats.rhat(parameter, chain_axis=0, draw_axis=1, method="rank")
            assert diagnostics.r_hat(made)[0] == pytest.approx(expected, rel=1e-10, nan_ok=True)


def test_every_parameter_is_judged_on_its_own():
    parts = [autoregressive(3, 50, correlation) for correlation in (0.0, 0.9)]
    both = np.concatenate(parts, axis=2)
    for judge in (diagnostics.effective_sample_size, diagnostics.r_hat):
        assert judge(both) == pytest.approx([judge(part)[0] for part in parts])


def test_the_worst_parameter_is_told():
    draws = np.concatenate([autoregressive(2, 200, 0.0), autoregressive(2, 200, 0.9, apart=4)], axis=2)
    effective, r_hat = diagnostics.worst(list(np.moveaxis(draws, 1, 0)))
    assert effective == diagnostics.effective_sample_size(draws)[1] < 20
    assert r_hat == diagnostics.r_hat(draws)[1] > 1.3


def test_independent_draws_count_whole():
    """300 estimates scatter around the number of draws."""
    draws = np.random.default_rng(1).standard_normal((4, 250, 300))
    assert np.median(diagnostics.effective_sample_size(draws)) == pytest.approx(1000, rel=0.05)
    assert np.median(diagnostics.r_hat(draws)) == pytest.approx(1.0, abs=0.005)


def test_too_little_is_told_as_nothing():
    still = np.zeros((2, 3))
    assert diagnostics.worst([still] * 3) == (None, None)
    assert diagnostics.worst([still] * 8) == (16.0, None), "as ArviZ counts what never moves"
    effective, r_hat = diagnostics.worst(list(np.moveaxis(autoregressive(1, 30, 0.3), 1, 0)))
    assert effective is not None and math.isfinite(effective) and r_hat is None
