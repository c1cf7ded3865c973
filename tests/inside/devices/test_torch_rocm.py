"""GPUs of AMD: the memory format of images, MIOpen's databases and TunableOp, by stand-ins: no such GPU is here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small_networks import losses_of  # noqa: E402
from torch import nn  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch import cpu, cuda  # noqa: E402
from entrypoints.devices.pytorch.shared import compiling, layout, rocm  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

CARD = cards.load()["image_compression"]
CHANNELS_LAST, CONTIGUOUS = torch.channels_last, torch.contiguous_format


@pytest.fixture(autouse=True)
def usual_layout(monkeypatch):
    """The format of a process is chosen anew in each test."""
    monkeypatch.setattr(layout.LAYOUT, "format", CHANNELS_LAST)
    monkeypatch.setattr(layout.LAYOUT, "reason", "")


def network():
    grouped = nn.Conv2d(8, 8, 3, groups=4)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 64, 3), nn.Conv2d(8, 16, 1), grouped, nn.Linear(2, 2))


def test_miopen_is_given_channels_last_unless_the_user_has_switched_that_off():
    environment: dict[str, str] = {}
    rocm.prepare(environment)
    assert environment == dict.fromkeys(rocm.NHWC, "1")
    environment = {rocm.NHWC[0]: "0"}
    rocm.prepare(environment)
    rocm.choose_layout(network(), lambda *_: pytest.fail("nothing is to be measured"), float, environment)
    assert layout.LAYOUT.format is CONTIGUOUS
    assert compiling.planned(None, "cuda").startswith("eager, contiguous (PYTORCH_MIOPEN_SUGGEST_NHWC=0);")


@pytest.mark.parametrize(("last", "first", "name"), [(0.001, 0.004, "channels_last"), (0.005, 0.004, "contiguous")])
def test_the_format_is_the_faster_one_and_the_result_says_which(last, first, name):
    took = {CHANNELS_LAST: last, CONTIGUOUS: first}
    rocm.choose_layout(network(), lambda _, memory_format: took[memory_format], float, {})
    said = f"{name} (by measurement: channels_last {1000 * last:.3g} ms, contiguous {1000 * first:.3g} ms)"
    assert f"eager, {said};" in compiling.planned(None, "cuda")


def test_a_process_chooses_once():
    rocm.choose_layout(network(), lambda _, memory_format: float(memory_format is CHANNELS_LAST), float, {})
    rocm.choose_layout(network(), lambda *_: pytest.fail("tensors in the first format exist"), float, {})
    assert layout.LAYOUT.format is CONTIGUOUS


def test_ranks_take_the_format_of_the_first():
    rocm.choose_layout(network(), lambda _, memory_format: float(memory_format is CONTIGUOUS), lambda _: 0.0, {})
    assert layout.LAYOUT.format is CONTIGUOUS


def test_a_model_without_convolutions_is_not_measured():
    rocm.choose_layout(nn.Linear(2, 2), lambda *_: pytest.fail("there is nothing to measure"), float, {})
    assert str(layout.LAYOUT) == "channels_last"


def test_layers_of_each_kind_stand_for_a_network():
    shapes = [(layer.kernel_size, layer.groups, layer.out_channels) for layer in rocm.typical(network())]
    assert shapes == [((3, 3), 1, 64), ((3, 3), 4, 8), ((1, 1), 1, 16)] or shapes[0] == ((3, 3), 1, 64)
    assert len(shapes) == 3


def test_both_formats_are_timed_forward_and_backward():
    waited = []
    seconds = rocm.seconds_of(torch.device("cpu"), None, lambda: waited.append(1))
    layers = [nn.Conv2d(3, 4, 3)]
    assert all(seconds(layers, memory_format) > 0 for memory_format in (CHANNELS_LAST, CONTIGUOUS))
    assert len(waited) == 4, "before and after each"
    assert layers[0].weight.grad is None, "the model itself is not touched"


def test_the_search_for_kernels_in_the_first_calls_is_not_timed(monkeypatch):
    monkeypatch.setattr(rocm, "SAMPLES", 1)
    calls, calls_before = [], []
    layer = nn.Conv2d(3, 4, 3)
    layer.register_forward_hook(lambda *_: calls.append(1))
    rocm.seconds_of(torch.device("cpu"), None, lambda: calls_before.append(len(calls)))([layer], CONTIGUOUS)
    assert calls_before == [rocm.WARM_UP, rocm.WARM_UP + rocm.REPEATS]


@pytest.mark.parametrize("memory_format", [CHANNELS_LAST, CONTIGUOUS])
def test_model_and_images_have_the_format_and_learn_the_same(memory_format):
    layout.LAYOUT.choose(memory_format, "a test")
    ours = cpu.open_session(build.model(CARD, 1), rule_of(CARD.problem, 4), "fp32")
    batch = ours.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    kernels = [weight for weight in ours.model.parameters() if weight.dim() == 4 and weight.shape[1] > 1]
    tensors = [tensor for tensor in (batch.inputs, *kernels) if tensor.shape[2] > 1]
    assert all(tensor.is_contiguous(memory_format=memory_format) for tensor in tensors)
    layout.LAYOUT.choose(CHANNELS_LAST, "")
    usual = cpu.open_session(build.model(CARD, 1), rule_of(CARD.problem, 4), "fp32")
    losses = [losses_of(each, batch, 3) for each in (ours, usual)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3), "sums are in another order"
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)


class Tunable:
    """PyTorch's interface to TunableOp, as torch.cuda.tunable has it."""

    def __init__(self):
        self.on = self.tuning = False
        self.written = True

    def enable(self, val):
        self.on = val

    def tuning_enable(self, val):
        self.tuning = val

    def is_enabled(self):
        return self.on

    def write_file_on_exit(self, val):
        self.written = val


def test_the_stand_in_of_tunable_op_has_the_names_of_pytorch():
    tunable = getattr(torch.cuda, "tunable", None)
    if tunable is None:
        pytest.skip("this PyTorch has no TunableOp")
    assert {"enable", "tuning_enable", "is_enabled"} <= set(dir(tunable))


def test_every_kernel_is_tried_before_the_window_and_none_in_it(monkeypatch, tmp_path):
    tunable = Tunable()
    monkeypatch.setattr(torch.cuda, "tunable", tunable, raising=False)
    monkeypatch.setattr(torch.version, "hip", "6.4", raising=False)
    environment = {rocm.USER_DATABASE: str(tmp_path)}
    assert rocm.described(environment) == "MIOpen's find mode MIOpen's own, its database cold"
    rocm.tune(environment)
    assert (tunable.on, tunable.tuning, tunable.written) == (True, True, False)
    (tmp_path / "gfx942.HIP.3_4.ufdb.txt").touch()
    said = "MIOpen's find mode NORMAL, its database warm, matrix products by TunableOp"
    assert rocm.described(environment) == said
    rocm.stop_tuning()
    assert (tunable.on, tunable.tuning) == (True, False)
    environment[rocm.FIND_MODE] = "FAST"
    rocm.tune(environment)
    assert environment[rocm.FIND_MODE] == "FAST", "the user has chosen it"


def test_kernels_are_tried_only_by_a_pytorch_for_amd(monkeypatch):
    if torch.version.hip is None:
        with pytest.raises(RunError, match="--tune-kernels is for GPUs of AMD"):
            cuda.tune()
    monkeypatch.setattr(cuda, "AMD", True)
    monkeypatch.setattr(torch.cuda, "tunable", None, raising=False)
    with pytest.raises(RunError, match="has no TunableOp") as raised:
        cuda.tune()
    assert raised.value.state == "unsupported"


def properties(**more: Any) -> Any:
    return SimpleNamespace(total_memory=64 << 30, gcnArchName="gfx90a:sramecc+", multi_processor_count=104, **more)


def test_each_die_of_an_mi250_has_the_address_by_which_it_is_metered(monkeypatch):
    monkeypatch.setattr(cuda, "AMD", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "AMD Instinct MI250X / MI250")
    dies = [cuda.facts(properties(pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)) for bus in (0x2F, 0x30)]
    assert [die.identifier for die in dies] == ["0000:2f:00.0", "0000:30:00.0"]
    assert {(die.name, die.granularity) for die in dies} == {("AMD Instinct MI250", "die")}
    assert cuda.facts(properties()).identifier is None, "before torch 2.5"
