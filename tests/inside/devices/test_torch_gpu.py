"""The GPUs' session: the calls that it makes are PyTorch's, and it steps as the CPU's does. No GPU is here."""

from __future__ import annotations

import ast
import contextlib
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asked_of_pytorch import called  # noqa: E402
from small_networks import losses_of  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.group import Parallelism, Place  # noqa: E402
from entrypoints.contract.messages import Step  # noqa: E402
from entrypoints.contract.session import BatchPartition, OptimizerRule, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices import missing_device  # noqa: E402
from entrypoints.devices.pytorch import cpu, cuda, xpu  # noqa: E402
from entrypoints.devices.pytorch.shared import gpu  # noqa: E402
from entrypoints.devices.pytorch.shared.updates import updates_fused  # noqa: E402
from entrypoints.devices.pytorch.strategies import group  # noqa: E402
from entrypoints.metering.meters import intel  # noqa: E402
from entrypoints.results import peaks  # noqa: E402
from entrypoints.worker.loop import Loop  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, optimizers  # noqa: E402

CARD = cards.load()["image_compression"]


@pytest.mark.skipif(not hasattr(ast, "unparse"), reason="Python 3.8 cannot print syntax trees")
def test_pytorch_has_what_is_called():
    shared = called("pytorch/shared/gpu.py", "self.runtime", "runtime")
    shared |= called("pytorch/shared/transfer.py", "self.runtime", "runtime")
    assert {"Event", "synchronize", "max_memory_allocated", "reset_peak_memory_stats"} <= shared
    asked = shared | called("pytorch/cuda.py", "torch.cuda")
    assert {name for name in asked if not hasattr(torch.cuda, name)} == set()
    if hasattr(torch, "xpu") and hasattr(torch.xpu, "mem_get_info"):  # torch 2.6 and newer
        asked = shared | called("pytorch/xpu.py", "xpu", "torch.xpu")
        assert {name for name in asked if not hasattr(torch.xpu, name)} == set()


def rule_by(workload):
    """The rule by which a workload trains."""
    return OptimizerRule.from_problem(cards.load()[workload].problem["optimizer"], 4)


class Event:
    """Passed a moment after it was recorded, as on a device that is behind."""

    def __init__(self, enable_timing=False):
        self.timing = enable_timing

    def record(self):
        self.at = time.perf_counter() + 0.002

    def query(self):
        return time.perf_counter() >= self.at

    def synchronize(self):
        time.sleep(max(0.0, self.at - time.perf_counter()))

    def elapsed_time(self, later):
        assert self.timing and later.timing
        return (later.at - self.at) * 1000


def synchronize():
    time.sleep(0.003)


RUNTIME: Any = SimpleNamespace(  # in place of a module
    Event=Event,
    Stream=lambda _: SimpleNamespace(wait_stream=lambda _: None),
    stream=contextlib.nullcontext,
    current_stream=lambda *_: None,
    synchronize=synchronize,
    current_device=lambda: 0,
    reset_peak_memory_stats=lambda: None,
    max_memory_allocated=lambda: 3 << 20,
    max_memory_reserved=lambda: 5 << 20,
    empty_cache=lambda: None,
)


def sessions(partition=None):
    """That of GPUs, whose device is the host for once, and that of the CPU."""
    rule = rule_of(CARD.problem, 4)
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    ask = lambda: {"driver": {"value": "1"}}  # noqa: E731
    session = gpu.GpuSession(RUNTIME, build.model(CARD, 1), rule, "fp32", None, partition, facts, ask)
    return session, cpu.open_session(build.model(CARD, 1), rule, "fp32", partition=partition)


@pytest.mark.parametrize(
    ("amd", "properties", "size"),
    [
        (False, {"L2_cache_size": 40 << 20}, 40 << 20),
        (False, {}, None),  # as in PyTorch 1.13
        (True, {"L2_cache_size": 4 << 20}, None),  # in front of another
    ],
)
def test_the_last_level_cache_is_the_drivers_where_no_other_is_behind_it(monkeypatch, amd, properties, size):
    monkeypatch.setattr(cuda, "AMD", amd)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**properties))
    session: Any = SimpleNamespace(hardware=torch.device("cuda", 0))
    cache = cuda.CudaSession.last_level_cache(session)
    assert (cache and cache.bytes) == size
    _, host = sessions()
    of_host = host.last_level_cache()
    assert of_host is None or of_host.bytes >= 1 << 15


@pytest.mark.parametrize("partition", [None, BatchPartition(2, accumulation=2)])
def test_it_learns_what_the_cpu_learns(partition):
    batch = loader.synthetic_batch(CARD, 4, seed=1)
    losses = [[session.train(session.to_device(batch)).loss() for _ in range(3)] for session in sessions(partition)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_steps_are_told_when_the_device_has_done_them():
    session, _ = sessions()
    batch = session.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    sent: list[Any] = []
    loop = Loop(session, "training", iter([batch] * 20), sent.append, CARD, "fp32")
    loop.advance()
    assert not sent, "the device has not done it yet"
    for _ in range(9):
        loop.advance()
    loop.settle()
    steps = [message for message in sent if isinstance(message, Step)]
    assert len(steps) == 10 and all(step.seconds > 0 for step in steps)
    assert steps[-1].loss is not None, "the last one is read once nothing is under way"


def test_the_time_between_two_events_is_in_seconds():
    session, _ = sessions()
    earlier, later = Event(True), Event(True)
    earlier.at, later.at = 1.0, 1.5
    assert session.seconds_between(earlier, later) == pytest.approx(0.5)


def test_each_part_of_an_answer_ends_when_the_device_has_done_it():
    session, _ = sessions()
    answer = session.infer_request(loader.synthetic_batch(CARD, 4, seed=1))
    assert answer.transfer >= 0.002 and answer.compute >= 0.002, "the device is behind by as much"


@pytest.mark.parametrize(
    ("kind", "partition", "mode", "training"),
    [
        ("cuda", None, "reduce-overhead", "reduce-overhead"),
        ("cuda", None, "max-autotune", "max-autotune"),
        ("cuda", None, "default", None),
        ("cuda", BatchPartition(2, accumulation=2), "max-autotune", "max-autotune-no-cudagraphs"),
        ("xpu", None, "default", None),
    ],
)
def test_compiled_steps_are_replayed_as_graphs_where_that_is_right(monkeypatch, kind, partition, mode, training):
    modes = []

    def compiled(model, mode):
        modes.append(mode)
        return model

    sessions()  # PyTorch imports with an optimizer what annotates with torch.device, which is replaced here
    monkeypatch.setattr(torch, "compile", compiled, raising=False)
    monkeypatch.setattr(torch, "device", lambda *_: SimpleNamespace(type="cpu"))
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *_, **__: self)
    facts = gpu.facts(kind, "nobody", "none", "package", 1 << 30)
    rule = rule_of(CARD.problem, 4)
    session = gpu.GpuSession(RUNTIME, build.model(CARD, 1), rule, "fp32", mode, partition, facts, dict)
    batch = loader.synthetic_batch(CARD, 4, seed=1)
    session.hardware = torch.empty(0).device
    session.infer_request(batch)
    session.infer(batch)
    without = "max-autotune-no-cudagraphs" if mode == "max-autotune" else None
    assert modes[:2] == [training, without], "of training, and of requests, which are of several threads"
    assert modes[2:] == ([training] if session.graphs else []), "of batches, which are of one thread"
    assert "CUDA graphs" not in session.facts.execution, "nothing ran so far"


class Extension:
    """Intel's extension, of which there is no build here: the call as it is documented. The optimizer that it gives
    back has a step of its own, which does not look at what a scaler found, and says as before that it would."""

    __version__ = "2.8.10"
    asked = 0

    def optimize(self, model, dtype=None, optimizer=None, level="O1", inplace=False):
        assert dtype is None and level == "O1" and inplace and model.training and optimizer is not None
        self.asked += 1
        own = optimizer.step
        optimizer.step = lambda closure=None: own()
        optimizer._step_supports_amp_scaling = True
        return model, optimizer


@pytest.mark.parametrize("installed", [True, False])
def test_intel_s_extension_makes_over_what_it_is_there_for(monkeypatch, installed):
    extension = Extension()
    monkeypatch.setattr(xpu, "extension", extension if installed else None)
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    rule, batch = rule_of(CARD.problem, 4), loader.synthetic_batch(CARD, 4, seed=1)
    session = xpu.XpuSession(RUNTIME, build.model(CARD, 1), rule, "fp32", None, None, facts, dict)
    expected = cpu.open_session(build.model(CARD, 1), rule, "fp32")
    losses = [(*losses_of(candidate, batch, 1), candidate.evaluate(batch).loss) for candidate in (session, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert extension.asked == installed
    assert ("intel_extension_for_pytorch 2.8.10" in session.facts.execution) == installed


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this PyTorch has no scaler for the CPU")
def test_gradients_that_are_not_finite_change_nothing_with_intel_s_extension(monkeypatch):
    monkeypatch.setattr(xpu, "extension", Extension())
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    rule, batch = rule_of(CARD.problem, 4), loader.synthetic_batch(CARD, 4, seed=1)
    session = xpu.XpuSession(RUNTIME, build.model(CARD, 1), rule, "fp32", None, None, facts, dict)
    session.scaler = torch.amp.GradScaler("cpu")
    before = {name: weight.copy() for name, weight in session.weights().items()}
    session.forward_backward(session.to_device(batch))
    next(session.model.parameters()).grad.fill_(float("inf"))
    session.update()
    assert all((weight == before[name]).all() for name, weight in session.weights().items())


def test_what_was_taken_of_the_device_is_told():
    session, _ = sessions()
    assert session.usage()[:2] == (3.0, 5.0)
    assert session.conditions().facts["driver"]["value"] == "1"
    assert session.facts.memory_mib == 1024.0 and "channels_last" in session.facts.execution


def test_the_peak_of_the_window_is_without_what_was_taken_once(monkeypatch):
    """As the search for the fastest kernels takes before the window, and an evaluation after it."""
    session, _ = sessions()
    peak = {"bytes": 0}

    def take(mib):
        peak["bytes"] = max(peak["bytes"], mib << 20)

    monkeypatch.setattr(RUNTIME, "max_memory_allocated", lambda: peak["bytes"])
    monkeypatch.setattr(RUNTIME, "reset_peak_memory_stats", lambda: peak.update(bytes=1 << 20))
    take(900)
    assert session.usage()[::3] == (900.0, gpu.NO_WINDOW)
    session.reset_peak_memory()
    take(70)
    assert session.usage()[::3] == (900.0, 70.0), "of a window that was cut short"
    session.reset_peak_memory()
    take(300)
    assert session.usage()[::3] == (900.0, 70.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize("device", [cuda, xpu])
def test_a_build_for_the_cpu_finds_no_gpu(device):
    with pytest.raises(RunError) as raised:
        device.prepare("fp32", 1)
    assert raised.value.state == "no_device"


def test_a_framework_that_knows_no_gpu_says_so():
    assert "build for the CPU" in missing_device.no_gpu(False, "PyTorch 2", None).message
    with pytest.raises(RunError, match="/dev/kfd here"):
        missing_device.no_gpu(True, "PyTorch 2", "6.2")


@pytest.mark.parametrize(
    ("name", "hierarchy", "mask", "granularity"),
    [
        ("Intel(R) Data Center GPU Max 1550", None, None, "tile"),
        ("Intel(R) Data Center GPU Max 1550", "COMPOSITE", None, "package"),
        ("Intel(R) Data Center GPU Max 1550", "COMPOSITE", "0.1", "tile"),
        ("Intel(R) Data Center GPU Max 1550", "COMPOSITE", "1.0, 0.1", "tile"),
        ("Intel(R) Data Center GPU Max 1550", "COMPOSITE", "1.0,1.1", "package"),
        ("Intel(R) Data Center GPU Max 1550", "COMPOSITE", "1", "package"),
        ("Intel(R) Data Center GPU Max 1100", None, None, "package"),
    ],
)
def test_what_one_device_of_intel_s_is(monkeypatch, name, hierarchy, mask, granularity):
    for variable, value in ((intel.HIERARCHY, hierarchy), (intel.MASK, mask)):
        monkeypatch.delenv(variable, raising=False)
        if value:
            monkeypatch.setenv(variable, value)
    assert xpu.granularity(name) == granularity


@pytest.mark.parametrize(
    ("version", "timed"), [("1.13.1", True), ("2.1.0", True), ("2.3.1+xpu", False), ("2.5.0", False), ("2.6.0", True)]
)
def test_a_pytorch_whose_events_tell_no_time_is_refused(monkeypatch, version, timed):
    available = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setattr(torch, "xpu", available, raising=False)
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    if timed:
        xpu.prepare("fp32", torch.get_num_threads())
    else:
        with pytest.raises(RunError, match="times nothing on GPUs of Intel") as raised:
            xpu.prepare("fp32", 1)
        assert raised.value.state == "unsupported"


@pytest.mark.parametrize(
    ("kind", "version", "fused"),
    [
        ("cuda", "1.13.1", True),
        ("xpu", "2.0.1", False),
        ("xpu", "2.1.0a0+cxx11.abi", True),
        ("cpu", "2.3.1", False),
        ("cpu", "2.4.0", True),
        ("hpu", "2.9.0", False),
    ],
)
def test_updates_in_one_kernel_are_asked_for_where_pytorch_has_them(monkeypatch, kind, version, fused):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    assert updates_fused(torch.device(kind), rule_by("image_compression"), "fp16") is fused


def test_a_first_step_that_overflows_leaves_no_trace_in_the_momentum(monkeypatch):
    """Fused gradient descent would return without writing it: seen on an H200, where losses exploded afterwards."""
    rule = rule_by("resnet50")
    assert not updates_fused(torch.device("cuda"), rule, "fp16") and updates_fused(torch.device("cuda"), rule, "bf16")
    scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else pytest.skip("no scaler for the CPU")
    model = torch.nn.Linear(2, 1)
    optimizer = optimizers.optimizer(model, rule, updates_fused(torch.device("cuda"), rule, "fp16"))
    before = [weight.detach().clone() for weight in model.parameters()]
    for gradient in (float("inf"), 0.0):
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        for weight in model.parameters():
            weight.grad.fill_(gradient)
        scaler.step(optimizer)
        scaler.update()
    decay = 1 - rule.learning_rate * rule.weight_decay
    for weight, start in zip(model.parameters(), before):
        assert torch.allclose(weight, start * decay) or torch.equal(weight, start)


@pytest.mark.parametrize(("visible", "local_rank", "chosen"), [(4, 2, 2), (1, 2, 0), (2, 2, None)])
def test_a_rank_takes_its_own_gpu_of_the_node(monkeypatch, visible, local_rank, chosen):
    taken: list[int] = []
    runtime = SimpleNamespace(device_count=lambda: visible, set_device=taken.append)
    monkeypatch.setattr(torch, "xpu", runtime, raising=False)
    place = Place(local_rank, 4, local_rank, 4)
    if chosen is None:
        with pytest.raises(RunError, match="--replicas 4: 4 ranks of this host, and 2 devices") as raised:
            group.use_device(place, "xpu")
        assert raised.value.state == "no_device"
        return
    group.use_device(place, "xpu")
    assert taken == [chosen]


@pytest.mark.parametrize("alike", [True, False])
def test_ranks_that_were_given_one_gpu_say_so(monkeypatch, alike):
    monkeypatch.setattr(group, "_named", lambda _: "GPU-1 of here")
    store = torch.distributed.HashStore()
    store.set("exchange 1 of 1", json.dumps(["GPU-1 of here" if alike else "GPU-2 of here"]))  # of the other rank
    joined = group.Group(Place(0, 2, 0, 2), Parallelism("ddp"), torch.device("xpu", 0), store)
    if not alike:
        joined.require_own_devices()
        return
    with pytest.raises(RunError, match="ranks 0 and 1 share a device, GPU-1 of here") as raised:
        joined.require_own_devices()
    assert raised.value.state == "no_device"


def test_memory_that_the_driver_does_not_show_is_unknown():
    def refused():
        raise RuntimeError("doesn't support querying the available free memory")

    def free_mib(**functions):
        runtime: Any = SimpleNamespace(**functions)
        return gpu.free_mib(runtime)

    assert free_mib(mem_get_info=refused) is None
    assert free_mib(mem_get_info=lambda: (1 << 30, 1 << 31)) == 1024
    assert free_mib() is None


VOLTA, HOPPER = ["sm_50", "sm_60", "sm_70"], ["sm_75", "sm_80", "sm_86", "sm_90", "compute_90"]


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((7, 0), VOLTA, True),
        ((7, 0), HOPPER, False),  # as V100 with a base of CUDA 13
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((10, 0), HOPPER, True),  # by PTX
        ((10, 0), HOPPER[:-1], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["compute_90a"], False),
        ((12, 0), ["something_new"], True),
        ((12, 0), [], True),
    ],
)
def test_a_gpu_without_kernels_is_named_before_anything_runs(monkeypatch, capability, built, runs):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla")
    if runs:
        cuda.require_kernels(built)
    else:
        with pytest.raises(
            RunError, match="Tesla is sm_.* has kernels for .*: take an image on another base"
        ) as raised:
            cuda.require_kernels(built)
        assert raised.value.state == "unsupported"


@pytest.mark.parametrize(
    ("amd", "capability", "architecture", "able"),
    [
        (False, (7, 0), "", ("fp32", "fp16")),
        (False, (8, 6), "", ("fp32", "tf32", "bf16", "fp16")),
        (False, (8, 9), "", ("fp32", "tf32", "bf16", "fp16", "fp8")),
        (False, (12, 0), "", ("fp32", "tf32", "bf16", "fp16", "fp8")),
        (True, None, "gfx90a:sramecc+:xnack-", ("fp32", "bf16", "fp16")),
        (True, None, "gfx942:sramecc+:xnack-", ("fp32", "bf16", "fp16", "fp8")),
    ],
)
def test_precisions_are_those_of_the_generation(monkeypatch, amd, capability, architecture, able):
    monkeypatch.setattr(cuda, "AMD", amd)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(gcnArchName=architecture)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert cuda.precisions() == able


@pytest.mark.parametrize(
    ("architecture", "built", "runs"),
    [
        ("gfx90a:sramecc+:xnack-", ["gfx908", "gfx90a"], True),
        ("gfx908", ["gfx90a"], False),
        ("gfx942", ["gfx9-4-generic"], True),
        ("", ["gfx90a"], True),  # before torch 2.2 nobody tells
    ],
)
def test_a_gpu_of_amd_without_kernels_is_named(monkeypatch, architecture, built, runs):
    monkeypatch.setattr(cuda, "AMD", True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = {"gcnArchName": architecture} if architecture else {}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**properties))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "AMD Instinct")
    if runs:
        cuda.require_kernels(built)
    else:
        with pytest.raises(RunError, match="is gfx908, and .* has kernels for gfx90a"):
            cuda.require_kernels(built)


@pytest.mark.parametrize(
    ("units", "name"), [(104, "AMD Instinct MI250"), (110, "AMD Instinct MI250X"), (1, "AMD Instinct MI250X / MI250")]
)
def test_one_name_for_two_modules_is_told_apart(monkeypatch, units, name):
    monkeypatch.setattr(cuda, "AMD", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "AMD Instinct MI250X / MI250")
    facts = cuda.facts(SimpleNamespace(gcnArchName="gfx90a", total_memory=1 << 36, multi_processor_count=units))
    assert (facts.name, facts.granularity) == (name, "die")
    assert (peaks.of_device(facts, "bf16").flops is not None) == (units != 1)


@pytest.mark.parametrize(
    ("units", "name", "granularity"),
    [
        (304, "AMD Instinct MI300X", "package"),
        (80, "AMD Instinct MI308X", "package"),
        (38, "AMD Instinct MI300X (38 compute units)", "die"),
    ],
)
def test_a_partition_is_not_taken_for_the_whole(monkeypatch, units, name, granularity):
    monkeypatch.setattr(cuda, "AMD", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name.partition(" (")[0])
    facts = cuda.facts(
        SimpleNamespace(gcnArchName="gfx942:sramecc+", total_memory=1 << 36, multi_processor_count=units)
    )
    assert (facts.name, facts.granularity) == (name, granularity)
    assert (peaks.of_device(facts, "bf16").flops is not None) == (units == 304)


def test_an_instance_of_mig_is_known_as_one(monkeypatch):
    monkeypatch.setattr(cuda, "AMD", False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    facts = cuda.facts(SimpleNamespace(total_memory=1 << 33, multi_processor_count=16, uuid="1-2"))
    assert facts.identifier == "MIG-1-2"


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_gradients_are_scaled_by_the_device_s_own_scaler_or_not_at_all(monkeypatch, kind):
    monkeypatch.setattr(gpu.torch, "amp", SimpleNamespace())  # before torch 2.3
    own = SimpleNamespace(GradScaler=lambda init_scale: "own")
    monkeypatch.setattr(gpu.torch, kind, SimpleNamespace(amp=own), raising=False)
    assert gpu.scaler(kind) == "own"
    monkeypatch.setattr(gpu.torch, kind, SimpleNamespace(), raising=False)
    with pytest.raises(RunError, match=f"fp16 on {kind}: PyTorch .* has no GradScaler"):
        gpu.scaler(kind)


def test_a_driver_of_the_kernel_is_named_with_its_version(tmp_path, monkeypatch):
    monkeypatch.setattr(missing_device, "MODULES", tmp_path)
    assert missing_device.kernel_driver("xe", "i915").startswith("xe or i915 of Linux ")
    assert "not loaded" in missing_device.kernel_driver("amdgpu")
    (tmp_path / "amdgpu").mkdir()
    assert "not loaded" not in missing_device.kernel_driver("amdgpu")
    (tmp_path / "amdgpu" / "version").write_text("6.8.5\n")
    assert missing_device.kernel_driver("amdgpu") == "amdgpu 6.8.5"


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this PyTorch has no scaler for the CPU")
def test_a_step_that_overflows_updates_nothing_and_is_not_counted():
    session, _ = sessions()
    session.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    batch = session.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    reports = [session.train(batch)]
    huge = batch._replace(inputs=torch.full_like(batch.inputs, 3e38))
    reports += [session.train(huge), session.train(batch)]
    assert [report.done_updates for report in reports] == [1, 0, 1]
