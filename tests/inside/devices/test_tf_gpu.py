"""The GPUs' session in TensorFlow: it steps as the CPU's does. No GPU is here, and the host stands in for one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import DeviceFacts, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.tensorflow import cpu, cuda  # noqa: E402
from entrypoints.workloads.tensorflow import build, loader  # noqa: E402

FACTS = DeviceFacts("cuda", "NVIDIA", "stand-in", 1, "package", None, 1, 1, "", True)
EXPERIMENTAL = tf.config.experimental


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """TensorFlow counts none on a CPU."""
    monkeypatch.setattr(EXPERIMENTAL, "reset_memory_stats", lambda device: None)
    monkeypatch.setattr(EXPERIMENTAL, "get_memory_info", lambda device: {"current": 1 << 20, "peak": 3 << 20})


def sessions(name):
    """That of GPUs, whose device is the host for once, and that of the CPU, over models of the same seed."""
    card = cards.load()[name]
    first, second = (build.model(card, seed=1) for _ in range(2))
    rule = rule_of(card.problem, 4)
    return card, cuda.GpuSession(first, rule, False, FACTS, "/device:CPU:0"), cpu.open_session(second, rule, "fp32")


def test_it_steps_as_the_cpu_does():
    card, ours, theirs = sessions("image_compression")
    batch = loader.synthetic_batch(card, 4, seed=3)
    placed = ours.to_device(batch)
    assert not ours.asynchronous
    losses = [[session.train(placed).loss() for _ in range(4)] for session in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and losses[0][-1] < losses[0][0]
    assert ours.evaluate(batch).loss == pytest.approx(theirs.evaluate(batch).loss, rel=1e-5)
    answers = [session.infer_request(batch) for session in (ours, theirs)]
    np.testing.assert_allclose(answers[0].output, answers[1].output, rtol=1e-4, atol=1e-5)
    assert all(min(answer.transfer, answer.compute, answer.retrieval) >= 0 for answer in answers)
    usage = ours.usage()
    assert usage.peak_allocated == 3 and isinstance(usage.peak_reserved, str)
    ours.close()


def test_chains_go_on_as_on_the_cpu():
    card, ours, theirs = sessions("mcmc")
    batch = loader.synthetic_batch(card, 8, seed=0)
    drawn = []
    for session in (ours, theirs):
        state = session.begin(batch, 3, chains=2)
        for _ in range(3):
            state = session.next_state(state)
        drawn.append(session.chain_sample(state))
    np.testing.assert_allclose(drawn[0].position, drawn[1].position, rtol=1e-5)


def test_without_a_gpu_the_reason_is_told():
    with pytest.raises(RunError, match="is a build for the CPU: it knows neither CUDA nor ROCm") as raised:
        cuda.prepare("fp32", 1)
    assert raised.value.state == "no_device"


@pytest.mark.parametrize(
    ("capability", "precision", "able"),
    [((9, 0), "tf32", True), ((7, 5), "tf32", False), ((7, 5), "fp32", True), ((7, 5), "bf16", False)],
)
def test_a_gpu_is_taken_alone_and_asked_for_what_it_can(monkeypatch, capability, precision, able):
    calls = []
    gpus = [SimpleNamespace(name="/physical_device:GPU:0"), SimpleNamespace(name="/physical_device:GPU:1")]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: calls.append((devices, kind)))
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", calls.append)
    monkeypatch.setattr(EXPERIMENTAL, "set_memory_growth", lambda device, wanted: calls.append((device, wanted)))
    described = {"device_name": "NVIDIA stand-in", "compute_capability": capability}
    monkeypatch.setattr(EXPERIMENTAL, "get_device_details", lambda device: described)
    monkeypatch.setattr(EXPERIMENTAL, "enable_tensor_float_32_execution", calls.append)
    if not able:
        with pytest.raises(RunError, match=f"--precision {precision} on NVIDIA stand-in: it can do fp32") as raised:
            cuda.prepare(precision, 2)
        assert raised.value.state == "unsupported"
        return
    cuda.prepare(precision, 2)
    assert calls == [(gpus[:1], "GPU"), (gpus[0], True), precision == "tf32", 2]
