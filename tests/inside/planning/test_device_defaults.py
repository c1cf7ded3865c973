"""Defaults for the device that is here: what its memory holds, what precisions it has, and what can compile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from entrypoints.contract import cards
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.contract.statuses import UsageError
from entrypoints.metering import present_device
from entrypoints.metering.present_device import PresentDevice
from entrypoints.planning import device_defaults
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.worker.memory_estimate import estimate

CARDS = cards.load()
MODELS = [card for card in CARDS.values() if MICROBENCHMARK not in card.tasks]
H200 = PresentDevice("NVIDIA H200", 143155.9, (9, 0))
A100 = PresentDevice("NVIDIA A100-SXM4-40GB", 40536.0, (8, 0))
T4 = PresentDevice("Tesla T4", 15109.0, (7, 5))
P100 = PresentDevice("Tesla P100-PCIE-16GB", 16280.0, (6, 0))


@pytest.fixture()
def here(monkeypatch):
    """Put a device here, with a compiler for it."""

    def put(device):
        monkeypatch.setattr(present_device, "find", lambda kind: device)

    obstacle = {(6, 0): "not for sm_60"}
    monkeypatch.setattr(device_defaults, "obstacle_to_triton", obstacle.get)
    return put


def configured(*words, framework="pytorch", device="cuda"):
    options = parse(list(words))
    return resolve(options, CARDS[str(options.workload)], {"framework": framework, "device": device})


SERVED = {"serving"}  # tasks in which an engine decides what fits, the same on every device


@pytest.mark.parametrize("card", MODELS, ids=lambda card: card.name)
def test_every_card_has_defaults_for_gpus_and_ipus_with_a_source(card):
    for kind in ("cuda", "xpu", "ipu") if card.set == "papers" else ("cuda", "xpu"):
        assert set(card.defaults[kind]) == set(card.tasks) - SERVED
    assert card.sources["defaults"]
    for task in set(card.tasks) - SERVED:
        assert card.defaults["xpu"][task]["precision"] != "tf32", "which these GPUs do not have here"
        assert card.set != "papers" or card.defaults["ipu"][task]["precision"] in ("fp32", "fp16")


def test_adapters_are_not_divided():
    with pytest.raises(UsageError, match="adapters of llama_8b_lora are not divided"):
        configured("llama_8b_lora", "--tensor", "2")


def test_ipus_have_the_set_of_the_papers():
    with pytest.raises(UsageError, match="llama_1b: the set of 2026 is not for IPUs"):
        configured("llama_1b", device="ipu")


@pytest.mark.parametrize("card", MODELS, ids=lambda card: card.name)
def test_tiers_rise_and_what_they_hold_fits_by_the_estimate(card):
    for kind, smallest in (("cuda", 14), ("xpu", 46)):
        for task in set(card.tasks) - SERVED:
            defaults = dict(card.defaults[kind][task])
            tiers = [{"gib": smallest}, *defaults.pop("by_memory", ())]
            assert [tier["gib"] for tier in tiers] == sorted({tier["gib"] for tier in tiers})
            for tier in tiers:
                defaults.update({key: value for key, value in tier.items() if key != "gib"})
                batch = int(defaults["batch_size"])
                micro = int(defaults.get("micro_batch_size") or batch)
                assert batch % micro == 0
                run = resolve(parse([card.name, "--task", task, "--batch-size", str(batch)]), card, None)
                run = replace(
                    run,
                    compile=None,
                    precision=defaults["precision"],
                    micro_batch_size=micro,
                    gradient_accumulation=batch // micro,
                )
                too_large = micro == 1  # then the smallest possible is the default, whatever it needs
                assert too_large or estimate(card, run).total <= 0.65 * tier["gib"] * 1024


def test_a_batch_is_chosen_by_memory_and_the_result_says_for_which_device(here):
    sizes = {}
    for device in (T4, A100, H200):
        here(device)
        run = configured("gpt_800m")
        sizes[device.name] = (run.batch_size, run.micro_batch_size)
    assert sizes == {"Tesla T4": (32, 1), A100.name: (32, 2), "NVIDIA H200": (32, 16)}
    assert run.chosen_for == {"name": "NVIDIA H200", "memory_mib": 143155.9, "notes": []}
    here(PresentDevice())
    assert configured("gpt_800m").micro_batch_size == 1, "unknown memory may be small"
    assert configured("gpt_800m", device="cpu").chosen_for is None


def test_a_precision_that_a_device_does_not_have_is_replaced_with_a_word(here):
    for device, precision in ((A100, "bf16"), (T4, "fp16"), (P100, "fp32")):
        here(device)
        run = configured("resnet50")
        assert run.precision == precision
    replaced = "precision fp32 in place of bf16: Tesla P100-PCIE-16GB does not have it"
    assert run.chosen_for["notes"] == [replaced, "not compiled: not for sm_60"]
    assert run.compile is None
    here(T4)
    assert configured("image_compression").precision == "fp32", "in place of tf32"
    here(PresentDevice(memory_mib=65536.0))
    amd = configured("image_compression")
    assert amd.precision == "fp32" and configured("resnet50").precision == "bf16"
    assert amd.chosen_for["notes"] == ["precision fp32 in place of tf32: this device is not known to have it"]
    here(T4)
    asked = configured("resnet50", "--precision", "bf16")
    assert asked.precision == "bf16" and not asked.chosen_for["notes"], "what is asked for is refused by the session"


def test_networks_in_tensorflow_have_single_precision_and_are_compiled_if_asked(here):
    here(H200)
    run = configured("resnet50", framework="tensorflow")
    assert (run.precision, run.compile) == ("tf32", None)
    here(PresentDevice(memory_mib=65536.0))
    assert configured("resnet50", framework="tensorflow").precision == "fp32"
    assert configured("resnet50", framework="tensorflow", device="ipu").precision == "fp32"


def test_a_card_says_that_a_model_is_compiled_and_an_option_that_it_is_not(here, monkeypatch):
    here(H200)
    assert configured("resnet50").compile == "reduce-overhead"
    assert configured("resnet50", "--micro-batch-size", "64").compile == "default", "no graphs"
    assert configured("resnet50", "--compile", "none").compile is None
    assert configured("lstm").compile is None
    smoke = configured("resnet50", "--smoke")
    assert smoke.compile is None and smoke.chosen_for["notes"] == ["not compiled: --smoke is to be quick"]
    assert configured("gpt2", "--replicas", "2", "--strategy", "fsdp").compile == "default", "block by block"
    monkeypatch.setattr(device_defaults, "obstacle_to_triton", lambda capability: "Triton is not here")
    run = configured("resnet50")
    assert run.compile is None and run.chosen_for["notes"] == ["not compiled: Triton is not here"]
    assert configured("resnet50", "--compile").compile == "reduce-overhead", "the session says why it cannot"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("resnet50 --task inference --concurrency 2", "a request may come before a model is compiled"),
        ("resnet50 --find-max-batch", "each trial would compile again"),
        ("gpt2 --stages 2", "parts of a model are compiled only if it is asked for"),
        ("gpt2 --tensor 2", "parts of a model are compiled only if it is asked for"),
        ("gpt2 --activation-checkpointing", "a compiler decides itself what is computed again"),
    ],
)
def test_what_is_not_compiled_by_default_says_why(here, words, why):
    here(H200)
    run = configured(*words.split())
    assert run.compile is None and run.chosen_for["notes"] == [f"not compiled: {why}"]


def test_a_usual_micro_batch_gives_way_where_it_fills_no_pipeline(here):
    """A card's is for one GPU; a pipeline of 2 wants 2 micro-batches at least."""
    here(H200)
    whole, halves = configured("gpt2"), configured("gpt2", "--stages", "2")
    assert (whole.batch_size, whole.micro_batch_size, whole.gradient_accumulation) == (64, 64, 1)
    assert (halves.batch_size, halves.micro_batch_size, halves.gradient_accumulation) == (64, 32, 2)
    large = configured("gpt2", "--stages", "2", "--batch-size", "256")
    assert (large.micro_batch_size, large.gradient_accumulation) == (64, 4)


def test_memory_of_cards_that_the_kernel_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(present_device, "DRM", tmp_path)
    assert present_device.find("xpu") == PresentDevice()
    for number, size in enumerate((68702699520, 34359738368)):
        folder = tmp_path / f"card{number}" / "device"
        folder.mkdir(parents=True)
        (folder / "mem_info_vram_total").write_text(f"{size}\n")
        (folder.parent / "lmem_total_bytes").write_text(f"{size}\n")
    (tmp_path / "card0-DP-1").mkdir()
    assert present_device.find("xpu").memory_mib == 32768.0
    assert present_device.find("ipu") == PresentDevice()


def test_a_compiled_batch_is_tried_though_its_eager_activations_would_not_fit():
    """Eager, gpt_117m has 156 GB of activations at a micro-batch of 512; 128 were refused while logits counted."""
    from entrypoints.contract.statuses import RunError
    from entrypoints.worker.memory_estimate import require_memory

    card, words = CARDS["gpt_117m"], ("gpt_117m", "--batch-size", "512", "--precision", "bf16")
    eager, compiled = configured(*words, "--compile", "none"), configured(*words, "--compile")
    with pytest.raises(RunError, match="not tried"):
        require_memory(card, eager, 80e9 / 2**20)
    require_memory(card, compiled, 80e9 / 2**20)
    states = 4 * 124439808 * 4 / 2**20
    assert estimate(card, compiled).total == pytest.approx(states), "weights, gradients and states"
    with pytest.raises(RunError, match="not tried"):
        require_memory(card, compiled, states - 1)


def test_cards_of_the_schema_have_tiers():
    schema = json.loads((Path(__file__).resolve().parents[3] / "schemas" / "card-1.0.json").read_text("utf-8"))
    tier = schema["$defs"]["task_defaults"]["properties"]["by_memory"]["items"]
    assert set(tier["properties"]) == {"gib", "batch_size", "micro_batch_size"}
