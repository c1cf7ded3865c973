"""Hamiltonian Monte Carlo in PyTorch: the density, its gradient, the trajectory, and that it draws what it should."""

from __future__ import annotations

import dataclasses
import math
import sys

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import written_chains  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import SamplerRule, rule_of  # noqa: E402
from entrypoints.data.generated import synthetic  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.devices.pytorch.shared.recorded import Recorded  # noqa: E402
from entrypoints.workloads import diagnostics  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, samplers  # noqa: E402
from entrypoints.workloads.pytorch.samplers import Density, HamiltonianMonteCarlo, Observed  # noqa: E402

CARD = cards.load()["mcmc"]
RULE = SamplerRule("hamiltonian_monte_carlo", 7, 0.25, 0.2, 0.01, 0.1)


def opened(seed=0, **changes):
    rule = dataclasses.replace(rule_of(CARD.problem, 4), **changes)
    return cpu.open_session(build.model(CARD, seed), rule, "fp32")


def positions(session, batch, steps, chains=3, adapting=0):
    state, samples = session.begin(batch, adapting, chains), []
    for _ in range(steps):
        samples.append(session.chain_sample(state))
        state = session.next_state(state)
    return samples


def test_density_and_gradient_are_those_of_the_distributions():
    """Up to a constant; the gradient by the chain rule is that of autograd."""
    network, batch = build.model(CARD, 0).network.double(), loader.synthetic_batch(CARD, 2, seed=1)
    features, targets = batch.inputs.double(), batch.targets.double()
    position = torch.randn(3, CARD.problem["parameters"], generator=torch.Generator().manual_seed(2)).double() * 5
    with torch.no_grad():
        values, gradients = network(position, network.observe(features, targets))
    reference = written_chains.log_density(CARD.problem, features, targets)
    for at, value, gradient in zip(position, values, gradients):
        expected, slope = written_chains.sloped(reference, at)
        assert value.item() == pytest.approx(expected - written_chains.constant(CARD.problem), rel=1e-9)
        torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-12)


class Regression(Density):
    """Weights of a linear function with a normal prior and normal noise: known in closed form."""

    prior, noise = 2.0, 0.5

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(weights, dtype=torch.float64))

    def forward(self, position, observed):
        error = observed.targets - position @ observed.features.t()
        value = -error.square().sum(1) / (2 * self.noise**2) - position.square().sum(1) / (2 * self.prior**2)
        return value, error @ observed.features / self.noise**2 - position / self.prior**2


def observations():
    random = np.random.default_rng(5)
    features = random.standard_normal((12, 3)) @ [[1.0, 0.6, 0.0], [0.0, 0.8, 0.5], [0.0, 0.0, 0.4]]
    return features, features @ [1.0, -2.0, 0.5] + 0.5 * random.standard_normal(12)


def test_the_posterior_of_a_linear_regression_is_the_exact_one():
    features, targets = observations()
    density = Regression(3)
    density.chance = synthetic.SeededRandom(3)
    sampler = HamiltonianMonteCarlo(density, dataclasses.replace(RULE, step_size=0.12))
    sampled, accepted = [], 0
    with torch.no_grad():
        chains = sampler.first_state(torch.from_numpy(features), torch.from_numpy(targets), 0, 20)
        for step in range(500):
            chains = sampler.next_state(chains)
            if step >= 50:
                sampled.append(chains.position.numpy())
                accepted += int(chains.accepted.sum())
    draws = np.stack(sampled, axis=1)
    covariance = np.linalg.inv(features.T @ features / density.noise**2 + np.eye(3) / density.prior**2)
    mean = covariance @ features.T @ targets / density.noise**2
    assert 0.5 < accepted / draws[..., 0].size < 0.999, "proposals are refused, too"
    assert diagnostics.r_hat(draws).max() < 1.01
    deviation = np.sqrt(np.diag(covariance))
    error = deviation / np.sqrt(diagnostics.effective_sample_size(draws))
    assert np.all(np.abs(draws.mean((0, 1)) - mean) < 5 * error)
    squares = (draws - mean) ** 2
    error = np.sqrt(2) * deviation**2 / np.sqrt(diagnostics.effective_sample_size(squares))
    assert np.all(np.abs(squares.mean((0, 1)) - deviation**2) < 5 * error)
    flat = draws.reshape(-1, 3)
    assert np.cov(flat.T) == pytest.approx(covariance, rel=0.1, abs=0.1 * covariance.max())


def test_leapfrog_goes_back_where_it_came_from():
    """With the momentum turned around; and its error falls with the square of the step."""
    features, targets = (torch.from_numpy(array) for array in observations())
    density, observed = Regression(3), Observed(features, targets)
    position, momentum = torch.ones(2, 3).double(), torch.tensor([[0.3, -1.0, 0.5], [1.0, 0.2, -0.4]]).double()
    errors = []
    with torch.no_grad():
        for step, steps in ((0.04, 10), (0.02, 20)):
            rule = dataclasses.replace(RULE, leapfrog_steps=steps)
            sampler = HamiltonianMonteCarlo(density, rule)
            log_density, slope = density(position, observed)
            sizes, accepted = torch.full((2, 1), step).double(), position[:, 0] > 9
            rest = torch.zeros(2), accepted, 0, 0, 1
            start = samplers.ChainState(observed, position, log_density, slope, sizes, *rest)
            end, value, gradient, last = sampler.trajectory(start, momentum)
            proposal = start._replace(position=end, log_density=value, gradient=gradient)
            back, _, _, turned = sampler.trajectory(proposal, -last)
            torch.testing.assert_close(back, position)
            torch.testing.assert_close(turned, -momentum)
            change = samplers.energy(value, last) - samplers.energy(start.log_density, momentum)
            errors.append(change.abs().max().item())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.3)


def test_steps_follow_acceptance_while_they_adapt_and_then_stay():
    batch = loader.synthetic_batch(CARD, 3, seed=1)
    short = positions(opened(leapfrog_steps=2), batch, 4, adapting=2)
    sizes = [draw.step_size[0] for draw in short]
    assert sizes == pytest.approx([0.0101, 0.010201, 0.010201, 0.010201], rel=1e-5)
    long = positions(opened(leapfrog_steps=8, step_size=30.0), batch, 2, adapting=1)
    assert not long[0].accepted.any() and long[0].step_size == pytest.approx(30 / 1.1, rel=1e-5)
    assert not long[0].position.any(), "what is refused moves nothing"


def test_a_trajectory_that_diverges_is_refused():
    draws = positions(opened(leapfrog_steps=40, step_size=1e25), loader.synthetic_batch(CARD, 3, seed=1), 2)
    assert not draws[1].accepted.any() and np.all(draws[1].log_acceptance == -math.inf)
    assert np.isfinite(draws[1].log_density).all()


def test_the_seed_decides_and_chains_differ():
    batch = loader.synthetic_batch(CARD, 3, seed=1)
    first, same, other = (positions(opened(seed, leapfrog_steps=3), batch, 3)[-1].position for seed in (1, 1, 2))
    assert np.array_equal(first, same) and not np.isclose(first, other).any()
    assert not np.isclose(first[0], first[1]).any()


def table(folder, card, spoil=None):
    rule, random = card.problem["input"], np.random.default_rng(0)
    rows = random.standard_normal((rule["observations"], rule["features"] + 1)).round(3).astype(str).tolist()
    if spoil:
        rows[6][2] = spoil
    header = ",".join([*(f"x{number}" for number in range(rule["features"])), "y"])
    path = folder / "table.csv"
    path.write_text("\n".join([header, *map(",".join, rows)]))
    return path


@pytest.mark.full
def test_a_run_over_a_table(program, tmp_path):
    words = ("mcmc", "--steps", 6, "--warmup-steps", 1, "--batch-size", 2, "--threads", 1, "--meter", "none")
    document = program.result(*words, "--data", table(tmp_path, CARD))
    assert document["status"]["state"] == "completed" and document["numerics"]["state"] == "passed"
    assert document["workload"]["task"] == "sampling" and document["workload"]["unit"] == "samples"
    assert document["data"]["source"] == document["configuration"]["data"] == "csv"
    assert document["data"]["samples"] == CARD.problem["input"]["observations"]
    values = {name: metric["value"] for name, metric in document["metrics"].items()}
    assert 0 <= values["acceptance_rate"] <= 1 and values["r_hat"] > 0.5 and 0 < values["effective_sample_size"] < 20
    assert values["effective_sample_throughput"] == pytest.approx(
        values["effective_sample_size"] / sum(document["steps"]["seconds"][1:])
    )
    assert document["steps"]["units"] == 12 and document["steps"]["updates"] == 0


@pytest.mark.full
def test_a_table_with_text_in_it_is_an_error_of_data(program, tmp_path):
    document = program.result("mcmc", "--smoke", "--meter", "none", "--data", table(tmp_path, CARD, spoil="high"))
    assert document["status"]["state"] == "data_error" and document["status"]["exit_code"] == 4
    assert "row 8, column 'x2': 'high' is no number of single precision. Mend" in document["status"]["message"]


def test_compiled_steps_are_asked_for(monkeypatch):
    """Whatever stands for some leapfrog steps is what does them, all of a trajectory."""
    if not hasattr(torch, "compile"):
        pytest.skip("this torch compiles nothing")
    asked = []

    def compiled(model, mode):
        def called(*given):
            asked.append(model)
            return model(*given)

        return called

    monkeypatch.setenv("CXX", sys.executable)  # a compiler has to be here, which is not called
    monkeypatch.setattr(torch, "compile", compiled)
    session = cpu.open_session(build.model(CARD, 0), dataclasses.replace(RULE, leapfrog_steps=20), "fp32", "default")
    positions(session, loader.synthetic_batch(CARD, 3, seed=1), 1)
    assert len(asked) == 2 * 20 and {leapfrog.density for leapfrog in asked} == {session.model.network}


def drawn(optimised=samplers.several, steps=30, rounds=4):
    """What chains draw whose leapfrog steps are done by what `optimised` makes of them."""
    network, batch = build.model(CARD, 0).network, loader.synthetic_batch(CARD, 3, seed=1)
    sampler = HamiltonianMonteCarlo(network, dataclasses.replace(RULE, leapfrog_steps=steps), optimised)
    with torch.no_grad():
        states = [sampler.first_state(batch.inputs, batch.targets, 2, 3)]
        for _ in range(rounds - 1):
            states.append(sampler.next_state(states[-1]))
    return [samplers.chain_sample(state) for state in states]


def same(ours, theirs, rtol=0.0, of_energies=0.0):
    """Within a tolerance, and differences of energies within another: they are small, and energies are large."""
    assert any(draw.accepted.any() for draw in ours)
    for mine, other in zip(ours, theirs):
        assert mine.evaluations == other.evaluations
        for field in ("position", "log_density", "log_acceptance", "step_size"):
            slack = of_energies if field == "log_acceptance" else rtol
            np.testing.assert_allclose(getattr(mine, field), getattr(other, field), rtol=rtol, atol=slack)


def capture_stand_in(replays):
    """The host in place of a GPU: a replay does again what was recorded, into the same memory."""

    def capture(function):
        outputs = function()

        def replay():
            replays.append(1)
            for kept, new in zip(outputs, function()):
                kept.copy_(new)

        return replay, outputs

    return capture


def test_replayed_trajectories_are_the_same():
    replays: list[int] = []
    ours = drawn(lambda leapfrog, steps: Recorded(samplers.several(leapfrog, steps), capture_stand_in(replays)))
    same(ours, drawn())
    assert len(replays) == 4 * 30 / 10, "one for ten steps, however many kernels they are"


def test_a_recording_is_made_anew_for_other_shapes():
    replays: list[int] = []
    double = Recorded(lambda x, pair: (2 * x + pair[0],), capture_stand_in(replays))
    for size in (2, 2, 3):
        x, added = torch.rand(size), torch.rand(size)
        assert torch.equal(double(x, (added, added))[0], 2 * x + added)
    first = double(x, (added, added))[0]
    assert torch.equal(double(first, (added, added))[0], 2 * (2 * x + added) + added), "outputs may be inputs"


@pytest.mark.full
@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch compiles nothing")
def test_compiled_trajectories_are_the_same():
    compiled = drawn(lambda leapfrog, steps: samplers.several(torch.compile(leapfrog), steps))
    same(compiled, drawn(), 1e-4, 0.1)
