"""Hamiltonian Monte Carlo in TensorFlow: what PyTorch computes, what TensorFlow Probability does, and what is exact."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from program import Program, lay

tf = pytest.importorskip("tensorflow")

import numpy as np  # noqa: E402

from entrypoints.contract import cards, reference  # noqa: E402
from entrypoints.contract.messages import Probed  # noqa: E402
from entrypoints.contract.session import SamplerRule, rule_of  # noqa: E402
from entrypoints.data.generated import synthetic  # noqa: E402
from entrypoints.devices.tensorflow import cpu  # noqa: E402
from entrypoints.results import numerics  # noqa: E402
from entrypoints.worker import probe  # noqa: E402
from entrypoints.workloads import diagnostics  # noqa: E402
from entrypoints.workloads.tensorflow import build, loader, samplers  # noqa: E402
from entrypoints.workloads.tensorflow.bayesian_network import Posterior  # noqa: E402
from entrypoints.workloads.tensorflow.samplers import Density, HamiltonianMonteCarlo  # noqa: E402

cpu.prepare("fp32", threads=1)  # before other tests make their first tensor
CARD = cards.load()["mcmc"]
RULE = SamplerRule("hamiltonian_monte_carlo", 7, 0.25, 0.2, 0.01, 0.1)


def judged():
    """By the stored values, which PyTorch is held against too."""
    messages: list[Probed] = []
    configuration: Any = SimpleNamespace(
        precision="fp32",
        threads=1,
        seed=0,
        compile=False,
        memory_limit_mib=None,
        gradient_accumulation=1,
        recomputed_by_framework=False,
        staged=lambda partition, _: partition,
        offload=False,
    )
    probe.run(CARD, configuration, cpu, build, loader, messages.append)
    return numerics.compare_with_reference([Probed(*message) for message in messages], reference.load(CARD), "fp32")


def test_the_code_as_it_is_passes():
    assert judged().state == "passed"


def whole_steps_of_momentum():
    trajectory = HamiltonianMonteCarlo.trajectory

    def run(self, observed, start, step, momentum):
        return trajectory(self, observed, start, step, momentum + step / 2 * start.gradient)

    return mock.patch.object(HamiltonianMonteCarlo, "trajectory", run)


def acceptance_of_the_other_sign():
    energy = samplers.energy
    return mock.patch.object(samplers, "energy", lambda value, momentum: -energy(value, momentum))


def prior_left_out():
    original = Posterior.__init__

    def begin(self, model):
        original(self, model)
        self.prior_scale = 1e9

    return mock.patch.object(Posterior, "__init__", begin)


def step_not_adapted():
    return mock.patch.object(HamiltonianMonteCarlo, "adapted", lambda self, chains, ratio: chains.step_size)


def weights_as_tensorflow_has_them():
    """Inputs before outputs in what chains stand for."""

    def start(self):
        layers = (self.hidden, self.output, self.scale)
        parts = [part for layer in layers for part in (tf.transpose(layer.weight), layer.bias)]
        return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)

    return mock.patch.object(Posterior, "start", start)


@pytest.mark.parametrize(
    "mutant",
    [
        whole_steps_of_momentum,
        acceptance_of_the_other_sign,
        prior_left_out,
        step_not_adapted,
        weights_as_tensorflow_has_them,
    ],
)
def test_a_mistake_fails(mutant):
    with mutant():
        assert judged().state == "failed"


def test_density_and_gradient_are_those_of_autograd():
    network, batch = build.model(CARD, 0).network, loader.synthetic_batch(CARD, 2, seed=1)
    position = tf.constant(np.random.default_rng(2).standard_normal((3, 963)), tf.float32)
    observed = network.observe(batch.inputs, batch.targets)
    with tf.GradientTape() as tape:
        tape.watch(position)
        value, gradient = network(position, observed)
    slope = tape.gradient(value, position)
    assert numerics.deviation(gradient.numpy().ravel().tolist(), slope.numpy().ravel().tolist()) < 1e-5


class Gaussian(Density):
    """Two numbers of deviations 1 and 0.5 around 3 and -1, which depend on each other."""

    mean, covariance = np.array([3.0, -1.0]), np.array([[1.0, 0.3], [0.3, 0.25]])

    def start(self):
        return tf.zeros(2, tf.float64)

    def __call__(self, position, observed):
        away = position - self.mean
        gradient = -tf.matmul(away, tf.constant(np.linalg.inv(self.covariance)))
        return tf.reduce_sum(away * gradient, 1) / 2, gradient


def test_a_gaussian_is_drawn_exactly():
    density = Gaussian()
    density.chance = synthetic.SeededRandom(3)
    sampler = HamiltonianMonteCarlo(density, RULE, compiled=False)
    chains = sampler.first_state(tf.zeros([1, 1]), tf.zeros([1]), 0, 20)
    positions, accepted = [], 0
    for step in range(450):
        chains = sampler.next_state(chains)
        if step >= 50:
            positions.append(chains.current.position.numpy())
            accepted += int(chains.accepted.numpy().sum())
    draws = np.stack(positions, axis=1)
    assert diagnostics.r_hat(draws).max() < 1.01 and accepted < draws[..., 0].size
    deviation = np.sqrt(np.diag(density.covariance))
    error = deviation / np.sqrt(diagnostics.effective_sample_size(draws))
    assert np.all(np.abs(draws.mean((0, 1)) - density.mean) < 5 * error)
    assert np.cov(draws.reshape(-1, 2).T) == pytest.approx(density.covariance, rel=0.1)


def test_density_and_trajectory_are_those_of_tensorflow_probability():
    """With the library's kernel, as the study ran it; its constants are left out of ours."""
    tfp = pytest.importorskip("tensorflow_probability")
    model, batch = CARD.problem["model"], loader.synthetic_batch(CARD, 2, seed=1)
    features, units = model["features"], model["hidden"]

    def log_density(position):
        weight, bias, output, output_bias, scale, shift = tf.split(
            position, [units * features, units, units, 1, 1, 1], axis=-1
        )
        active = tf.tanh(
            tf.einsum("nf,chf->cnh", batch.inputs * model["feature_scale"], tf.reshape(weight, [-1, units, features]))
            + bias[:, None]
        )
        predicted = (tf.einsum("cnh,ch->cn", active, output) + output_bias) * scale + shift
        around = tfp.distributions.StudentT(
            model["likelihood"]["degrees_of_freedom"], predicted, model["likelihood"]["scale"]
        )
        prior = tfp.distributions.Normal(0.0, model["prior"]["scale"])
        return tf.reduce_sum(around.log_prob(batch.targets), 1) + tf.reduce_sum(prior.log_prob(position), 1)

    sampler_rule = rule_of(CARD.problem, 4)
    assert isinstance(sampler_rule, SamplerRule)
    rule = dataclasses.replace(sampler_rule, leapfrog_steps=20, step_size=0.2)
    kernel = tfp.mcmc.UncalibratedHamiltonianMonteCarlo(log_density, rule.step_size, rule.leapfrog_steps)
    start = tf.constant(np.random.default_rng(4).standard_normal((3, 963)), tf.float32)
    end, results = kernel.one_step(start, kernel.bootstrap_results(start))
    network = build.model(CARD, 0).network
    sampler = HamiltonianMonteCarlo(network, rule, compiled=False)
    observed = network.observe(batch.inputs, batch.targets)
    standing = samplers.ChainPosition(start, *network(start, observed))
    step = tf.fill([3, 1], rule.step_size)
    (momentum,) = results.initial_momentum if isinstance(results.initial_momentum, list) else [results.initial_momentum]
    ours, last, evaluations = sampler.trajectory(observed, standing, step, momentum)
    assert int(evaluations) == 20 and ours.position.numpy() == pytest.approx(end.numpy(), rel=1e-3, abs=1e-4)
    difference = (log_density(end) - log_density(start)).numpy()
    assert (ours.log_density - standing.log_density).numpy() == pytest.approx(difference, abs=0.01)
    kinetic = (tf.reduce_sum(tf.square(momentum), 1) - tf.reduce_sum(tf.square(last), 1)).numpy() / 2
    assert results.log_acceptance_correction.numpy() == pytest.approx(kinetic, abs=0.01)


@pytest.fixture()
def program(tmp_path_factory, tmp_path):
    tree = lay(tmp_path_factory.mktemp("image") / "sifmark", recipe="cpu_tf", framework="tensorflow", device="cpu")
    return Program(tree, tmp_path)


@pytest.mark.parametrize("words", [(), pytest.param(("--compile",), marks=pytest.mark.full)])
def test_a_run(program, words):
    document = program.result("mcmc", "--smoke", "--threads", 1, "--meter", "none", *words)
    assert document["status"]["state"] == "completed", document["status"]
    assert document["workload"]["task"] == "sampling" and document["metrics"]["throughput"]["unit"] == "samples/s"
    assert 0 < document["metrics"]["acceptance_rate"]["value"] <= 1
    assert document["steps"]["units"] == 8
