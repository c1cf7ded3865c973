"""Intel Gaudi, against a stand-in for Intel's bridge: its calls are those of the bridge's source. No Gaudi is here."""

from __future__ import annotations

import ast
import os
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asked_of_pytorch import called  # noqa: E402
from gpu_stand_in import Runtime  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.choices import HPU_BACKEND, compiler_of  # noqa: E402
from entrypoints.contract.group import Parallelism, Place  # noqa: E402
from entrypoints.contract.session import OptimizerRule, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch import hpu  # noqa: E402
from entrypoints.devices.pytorch.shared import compiling, gpu  # noqa: E402
from entrypoints.devices.pytorch.shared.compiling import planned  # noqa: E402
from entrypoints.devices.pytorch.shared.updates import updates_fused  # noqa: E402
from entrypoints.devices.pytorch.strategies import ddp, group  # noqa: E402
from entrypoints.metering.meter import MeterError  # noqa: E402
from entrypoints.metering.meters import hlml  # noqa: E402
from entrypoints.results import peaks  # noqa: E402
from entrypoints.rules import machine  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

CARD = cards.load()["image_compression"]
# What habana_frameworks.torch.hpu has in release 1.19, of what sessions may ask: hpu/__init__.py, events.py, memory.py,
# streams.py in https://github.com/HabanaAI/gaudi-pytorch-bridge.
OF_THE_BRIDGE = {
    *("Event", "Stream", "stream", "current_stream", "synchronize", "current_device", "device_count", "is_available"),
    *("max_memory_allocated", "max_memory_reserved", "mem_get_info", "reset_peak_memory_stats", "get_device_name"),
}


class StandInBridge(Runtime):
    """In place of `torch.hpu`: a device with the interface of the bridge, which has no `empty_cache`."""

    def __getattribute__(self, name):
        if name == "empty_cache":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def is_available(self):
        return True

    def get_device_name(self):
        return "GAUDI2"

    def mem_get_info(self):
        return 90 << 30, 94 << 30


class Fallbacks:
    """The bridge's count of operations that the host computed."""

    def __init__(self, *operations):
        self.operations = operations

    def stats(self):
        return [("TotalNumber", len(self.operations)), ("FallbackOps", dict.fromkeys(self.operations, 1))]


@pytest.fixture()
def bridge(monkeypatch):
    runtime = StandInBridge()
    monkeypatch.setattr(torch, "hpu", runtime, raising=False)
    monkeypatch.setattr(hpu, "bridge", object())
    monkeypatch.setattr(hpu, "is_lazy", lambda: False)
    monkeypatch.setattr(hlml, "modules", lambda: [2, 5])
    monkeypatch.setenv(hlml.MODULE, "")  # so that what is set is undone
    monkeypatch.delenv(hlml.MODULE)
    return runtime


@pytest.mark.skipif(not hasattr(ast, "unparse"), reason="Python 3.8 cannot print syntax trees")
def test_the_bridge_has_what_is_called():
    asked = called("pytorch/hpu.py", "hpu", "torch.hpu")
    for file in ("pytorch/shared/gpu.py", "pytorch/shared/transfer.py"):
        asked |= called(file, "self.runtime", "runtime")
    assert asked - OF_THE_BRIDGE == {"empty_cache"}, "which is asked for only where it is there"


def test_a_device_is_prepared_and_its_card_chosen(bridge):
    hpu.prepare("bf16", torch.get_num_threads())
    assert os.environ[hlml.MODULE] == "2" and hpu.free_mib() == 90 * 1024


def test_a_card_that_was_chosen_already_stays(bridge, monkeypatch):
    monkeypatch.setenv(hlml.MODULE, "5")
    hpu.prepare("fp32", torch.get_num_threads())
    assert os.environ[hlml.MODULE] == "5"


def test_without_the_management_library_the_bridge_chooses(bridge, monkeypatch):
    monkeypatch.setattr(hlml, "modules", unreadable)
    hpu.prepare("fp32", torch.get_num_threads())
    assert hlml.MODULE not in os.environ


def unreadable():
    raise MeterError("libhlml.so is not here")


def test_what_gaudi_does_not_do_is_refused(bridge, monkeypatch):
    with pytest.raises(RunError, match="--precision fp16 on hpu: it can do fp32, bf16"):
        hpu.prepare("fp16", 1)
    monkeypatch.setattr(hpu, "is_lazy", lambda: True)
    with pytest.raises(RunError, match="PT_HPU_LAZY_MODE is not 0") as raised:
        hpu.prepare("fp32", 1)
    assert raised.value.state == "unsupported"


def test_an_image_without_the_bridge_finds_no_device(monkeypatch):
    monkeypatch.setattr(hpu, "require_files", lambda *_: None)
    with pytest.raises(RunError, match="finds no Gaudi. Intel's bridge is not in this image.*habanalabs") as raised:
        hpu.prepare("fp32", 1)
    assert raised.value.state == "no_device"
    monkeypatch.undo()
    with pytest.raises(RunError, match="accel_controlD.*was it started with --bind /dev/accel"):
        hpu.prepare("fp32", 1)


def test_a_session_is_opened_on_the_device_as_the_bridge_describes_it(bridge, monkeypatch):
    monkeypatch.setattr(hpu, "HpuSession", lambda *arguments: arguments)
    opened: Any = hpu.open_session(build.model(CARD, 1), rule_of(CARD.problem, 4), "bf16", "default")
    facts = opened[6]
    assert (facts.kind, facts.vendor, facts.name, facts.granularity) == ("hpu", "Intel", "GAUDI2", "package")
    assert facts.memory_mib == 94 * 1024 and opened[0] is bridge and opened[7] is hlml.conditions
    assert peaks.of_device(facts, "bf16").flops == 432e12 and peaks.of_device(facts, "fp32").flops is None


def session(bridge):
    """One whose device is the host for once."""
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    return hpu.HpuSession(bridge, build.model(CARD, 1), rule_of(CARD.problem, 4), "fp32", None, None, facts, dict)


def test_a_step_waits_for_nothing_and_the_allocator_keeps_its_memory(bridge):
    opened = session(bridge)
    report = opened.train(loader.synthetic_batch(CARD, 1, seed=1))
    assert report.updates == 1 and not bridge.of("device awaited") and not bridge.of("event awaited")
    opened.close()  # without empty_cache


@pytest.mark.parametrize(
    ("operations", "said"), [((), None), (("aten::sort", "aten::cumsum"), "; on the host: aten::cumsum, aten::sort")]
)
def test_operations_that_the_host_computed_are_named(bridge, monkeypatch, operations, said):
    monkeypatch.setattr(hpu, "metric_global", lambda name: {"cpu_fallback": Fallbacks(*operations)}[name])
    execution = session(bridge).executed().execution
    assert execution.startswith("eager, ") and (said is None or execution.endswith(said))
    assert ("on the host" in execution) == bool(said)


def test_a_bridge_that_counts_nothing_says_nothing(bridge, monkeypatch):
    monkeypatch.setattr(hpu, "metric_global", lambda _: None)
    assert hpu.left_to_the_host() == set()


def test_models_are_compiled_by_the_bridge_s_backend(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda _, **how: how, raising=False)
    assert compiling.compile_model(torch.nn.Identity(), "default", False, compiler_of("hpu")) == {
        "backend": "hpu_backend"
    }
    assert planned("default", "hpu").startswith("compiled by hpu_backend (default), channels_last")
    assert machine.EXECUTION["pytorch"][True].format(compiler=HPU_BACKEND) == "compiled by hpu_backend"
    assert compiling.described("default", False, {"graph_breaks": 1}, HPU_BACKEND).endswith("with graph breaks")


@pytest.mark.parametrize(("modules", "local_rank", "chosen"), [([2, 5], 1, "5"), ([3], 1, "3"), ([2, 5], 2, None)])
def test_a_rank_takes_its_own_card_of_the_node(bridge, monkeypatch, modules, local_rank, chosen):
    monkeypatch.setattr(hlml, "modules", lambda: modules)
    place = Place(local_rank, 4, local_rank, 4)
    if chosen is None:
        with pytest.raises(RunError, match="--replicas 4: 4 ranks of this host, and 2 devices"):
            group.use_device(place, "hpu")
        return
    group.use_device(place, "hpu")
    assert os.environ[hlml.MODULE] == chosen
    bridge.get_device_properties = lambda _: "(sramBaseAddress=1, device_id=0)"  # a text
    name = group._named(SimpleNamespace(type="hpu", index=0))
    assert hlml.MODULE in name and f"'{chosen}'" in name, "or two ranks would seem to share number 0"


def test_ranks_that_cannot_choose_a_card_say_so(bridge, monkeypatch):
    monkeypatch.setattr(hlml, "modules", unreadable)
    with pytest.raises(RunError, match="a rank cannot choose its Gaudi: libhlml.so is not here") as raised:
        group.use_device(Place(0, 2, 0, 2), "hpu")
    assert raised.value.state == "no_device"


def test_ranks_add_up_by_hccl_and_update_without_one_kernel_of_pytorch_s():
    assert group.BACKENDS["hpu"] == "hccl" and "hpu" in ddp.WITHOUT_NUMBERS
    assert not updates_fused(torch.device("hpu"), OptimizerRule.from_problem(CARD.problem["optimizer"], 4), "bf16")


@pytest.mark.skipif(torch.__version__ < (2, 1), reason="backends of other devices are registered from 2.1 on")
def test_ranks_join_by_a_backend_as_the_bridge_registers_it(bridge, monkeypatch):
    """By `torch.distributed.Backend.register_backend`, as habana_frameworks.torch.distributed.hccl does on import."""
    made = []

    def create(options, _):
        made.append((options.group_rank, options.group_size))
        return torch.distributed.ProcessGroupGloo(options.store, options.group_rank, options.group_size)

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.Backend.register_backend("hccl", create, devices=["hpu"], extended_api=True)
    bridge.get_device_properties = lambda _: "(device_id=0)"
    joined = group.join(Place(0, 1, 0, 1), "hpu", Parallelism("ddp"), lambda _: None)
    assert (joined.hardware, torch.distributed.get_backend()) == (torch.device("hpu", 0), "hccl")
    joined.close()
    assert made == [(0, 1)]
