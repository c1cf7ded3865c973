"""The highest throughput of a workload on a device: a bound that no measurement passes."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.cli.bounds import bounds, bounds_of_workload, devices
from entrypoints.contract import cards
from entrypoints.contract.choices import FP8, PRECISIONS
from entrypoints.contract.messages import Message, Phase, Step
from entrypoints.contract.session import DeviceFacts
from entrypoints.contract.storage import BYTES
from entrypoints.metering.present_device import PresentDevice
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.results import peaks, roofline
from entrypoints.results.measurement import fold
from entrypoints.results.metrics import compute
from entrypoints.rules.check import violations
from entrypoints.rules.facts import Facts
from entrypoints.rules.metrics import bound_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CARDS = cards.load()
TASKS = [(card.name, task) for card in CARDS.values() for task in card.tasks if card.flops_per_unit(task)]
WHOLE = [precision for precision in PRECISIONS if precision != FP8]  # of all operations
CUDA = {"framework": "pytorch", "device": "cuda"}
H200 = DeviceFacts("cuda", "NVIDIA", "NVIDIA H200", 1, "package", None, 1, 1, "", simulated=False)
# Figures of published studies as they printed them: workload, task, device, devices, units/s, in half precision.
PUBLISHED = [
    ("gpt_117m", "training", "GC200", 4, 193.41),  # CARAML (SC24), 4 stages, batch 16384
    ("resnet50", "training", "GC200", 1, 1893.07),  # CARAML, batch 1024
    ("resnet50", "training", "GC200", 1, 2130.0),  # PEARC'22, table 3, 24 micro-batches of 20
    ("resnet50", "training", "GC200", 64, 107535.0),  # PEARC'22, table 3
    ("resnet50", "training", "GC200", 16, 2189.7),  # PEARC'22, table 1, held back by its data
    ("efficientnet_b0", "training", "GC200", 4, 8905.0),  # PEARC'22, table 2
    ("efficientnet_b4", "training", "GC200", 16, 4200.0),
    ("mobilenet_v3_small", "training", "GC200", 4, 7222.6),
    ("mobilenet_v3_large", "training", "GC200", 16, 7347.6),
    ("bert_base", "training", "GC200", 4, 1297.0),
    ("efficientnet_b0", "training", "NVIDIA A100-SXM4-40GB", 2, 3749.09),  # PEARC'22, section 3.2
    ("efficientnet_b0", "training", "Tesla V100-SXM2-32GB", 4, 5745.0),
    ("image_compression", "training", "NVIDIA A100-SXM4-40GB", 2, 8642.0),  # PEARC'22, table 4
    ("image_compression", "training", "GC200", 16, 21547.0),
    ("resnet50", "inference", "GC200", 4, 58112.0),  # Graphcore, IPU-M2000
    ("resnext101_32x4d", "inference", "GC2", 2, 2526.35),  # Qwant, table 2
]


def configured(name, task, *words, device="cuda"):
    image = {"framework": "pytorch", "device": device}
    return resolve(parse([name, "--task", task, *words]), CARDS[name], image)


def roof_of(device, precision):
    roof = peaks.roof(device, precision)
    assert roof is not None
    return roof


def work(name, task, *words, device="cuda"):
    return roofline.work_of_step(CARDS[name], task, configured(name, task, *words, device=device).as_json())


@pytest.mark.parametrize(("name", "task", "device", "count", "rate"), PUBLISHED)
def test_no_published_figure_passes_its_bound(name, task, device, count, rate):
    kind = "ipu" if device.startswith("GC") else "cuda"
    facts = DeviceFacts(kind, None, device, count, "package", None, 1, 1, "", simulated=False)
    highest = roofline.bound(work(name, task, device=kind), roof_of(facts, "fp16"), count)
    assert rate < 0.5 * highest.throughput, "the largest fraction that a study reached is 48 %"


@pytest.mark.parametrize("name", ["gpt_117m_bf16", "lstm_fp16", "resnet50_bf16"])
def test_no_measured_result_passes_its_bound(name):
    document = json.loads((FIXTURES / "h200" / f"{name}.json").read_text("utf-8"))
    precision = document["configuration"]["precision"]
    highest = bound_of(Facts(document), roof_of(H200, precision))
    assert highest is not None
    assert 0.01 < document["metrics"]["throughput"]["value"] / highest.throughput < 0.5
    assert not [text for text in violations(document) if "throughput-is-possible" in text or "bound" in text]


@given(st.sampled_from(TASKS), st.sampled_from(WHOLE), st.floats(1e9, 1e16), st.floats(1.0, 9.0))
def test_a_bound_grows_with_peak_bandwidth_and_cache(which, precision, peak, more):
    step = work(*which) if precision == "bf16" else work(*which, "--precision", precision)
    slow = roofline.bound(step, roofline.Roof(peak, 1e12, 1e6), 1).throughput
    for roof in (
        roofline.Roof(peak * more, 1e12, 1e6),
        roofline.Roof(peak, 1e12 * more, 1e6),
        roofline.Roof(peak, 1e12, 1e6 * more),
        roofline.Roof(peak),
    ):
        assert roofline.bound(step, roof, 1).throughput >= slow * (1 - 1e-12)
    assert roofline.bound(step, roofline.Roof(peak, 1e12, 1e6), 2).throughput >= slow * (1 - 1e-12)


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_a_larger_batch_has_no_lower_bound(name, task):
    if task == "microbenchmark":
        pytest.skip("it has no batch")
    roof = roof_of(H200, "bf16")
    rates = [
        roofline.bound(work(name, task, "--batch-size", size, "--precision", "bf16"), roof, 1).throughput
        for size in ("1", "8", "64")
    ]
    assert rates == sorted(rates)


def test_operations_that_a_causal_model_does_not_see_do_not_count():
    step, card = work("gpt_117m", "training", "--batch-size", "1"), CARDS["gpt_117m"]
    unseen = card.flops_per_unit("training") - step.parts[0].operations
    assert unseen == 3 * 4 * 12 * 768 * 1024 * 1023 / 2
    assert work("bert_base", "training", "--batch-size", "1").parts[0].operations == 212000440320


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_rates_and_bounds_count_the_same_operations(name, task):
    """And only a causal model has some that it does not need, fewer than half of all."""
    flops = roofline.flops_of_unit(CARDS[name], task)
    if task != "microbenchmark":  # which has no batch
        step = work(name, task, "--batch-size", "2")
        assert sum(part.operations for part in step.parts) == pytest.approx(
            step.units * flops.needed_per_unit, rel=1e-12
        )
    causal = CARDS[name].problem["model"].get("attention") == "causal" if "model" in CARDS[name].problem else False
    assert (flops.needed_per_unit < flops.per_unit) == causal
    assert 2 * flops.needed_per_unit > flops.per_unit


@pytest.mark.parametrize(("length", "window"), [(9, None), (9, 4), (9, 1), (9, 9), (5, 8)])
def test_pairs_are_counted_one_by_one(length, window):
    pairs = [(place, other) for place in range(length) for other in range(length)]
    seen = sum(0 <= place - other < (window or length) for place, other in pairs)
    assert roofline.seen_pairs(length, window) == seen


def test_places_before_a_window_are_not_needed():
    """Half of the blocks of gpt-oss have one: 22.88 GFLOP for a token of training, where all pairs are 30.05."""
    flops = roofline.flops_of_unit(CARDS["gpt_oss_20b"], "training")
    unseen = 12 * (8192 * 8191 // 2) + 12 * (8192**2 - (128 * 129 // 2 + (8192 - 128) * 128))
    assert flops.per_unit - flops.needed_per_unit == 3 * 4 * 64 * 64 * unseen
    assert flops.needed_per_unit / 8192 == pytest.approx(22.88e9, rel=1e-3)


def test_the_parts_of_a_generation_are_what_the_card_counts():
    card, step = CARDS["gpt_117m"], work("gpt_117m", "inference", "--batch-size", "2")
    unseen = 4 * 12 * 768 * 512 * 511 / 2
    assert len(step.parts) == 128 and step.units == 2
    assert sum(part.operations for part in step.parts) == 2 * (card.flops_per_unit("inference") - unseen)


def test_a_token_reads_weights_and_keys_and_values_once():
    step = work("gpt_13b", "inference", "--batch-size", "1", "--precision", "bf16")
    weights = 12843141120 * 2
    assert step.parts[0].bytes == weights + 2 * 1024
    assert step.parts[-1].bytes == weights + 2 * 40 * 5120 * 2 * (1024 + 126)
    roof = roof_of(H200, "bf16")
    highest = roofline.bound(step, roof, 1)
    assert highest.limit == "bytes"
    assert highest.throughput == pytest.approx(1 / (128 * weights / 4.8e12), rel=0.1)


def test_a_token_reads_one_key_for_each_group_of_queries():
    step = work("llama_8b", "inference", "--batch-size", "3", "--precision", "bf16")
    weights = (8030261248 - 128256 * 4096) * 2  # an embedding that is no head is not read as a whole
    assert step.parts[-1].bytes == weights + 3 * 2 * 32 * 8 * 128 * 2 * (2048 + 126)


@pytest.mark.parametrize(("texts", "read"), [(1, 8), (3, 24), (8, 64), (20, 64)])
def test_tokens_read_no_more_experts_than_they_have(texts, read):
    step = work("olmoe_1b_7b", "inference", "--batch-size", str(texts), "--precision", "bf16")
    expert, cached = 3 * 2048 * 1024, 2 * 16 * 16 * 128
    weights = 6919161856 - 50304 * 2048 - 16 * (64 - read) * expert
    assert step.parts[-1].bytes == pytest.approx(2 * (weights + texts * cached * (2048 + 126)), rel=1e-12)


def test_a_window_has_no_more_keys_than_places():
    step = work("gpt_oss_20b", "inference", "--batch-size", "8", "--precision", "bf16")
    weights = 20495244864 - 128256 * 2880
    assert step.parts[-1].bytes == 2 * (weights + 8 * 2 * 8 * 64 * (12 * (2048 + 126) + 12 * 127))


def test_a_token_is_computed_after_the_one_before():
    """A prompt that only computes and a token that only reads take their times one after the other."""
    step = roofline.Work(4, [roofline.WorkPart(6.0, 0.0), roofline.WorkPart(0.0, 2.0), roofline.WorkPart(1.0, 1.0)])
    assert roofline.bound(step, roofline.Roof(1.0, 1.0), 1) == (4 / 9, "operations")


def test_requests_at_the_same_time_may_share_weights():
    alone, four = (
        work("resnet50", "inference", "--concurrency", count, "--precision", "bf16").parts[0].bytes
        for count in ("1", "4")
    )
    weights = 25557032 * 2
    assert alone - four == weights * 3 / 4 and alone > weights


def test_an_update_moves_weights_and_states_in_single_precision():
    words = ("--batch-size", "4", "--precision", "bf16")
    whole, parts = (work("gpt_800m", "training", *words, "--micro-batch-size", size) for size in ("4", "1"))
    parameters = 908759040
    inputs = 4 * 2048 * 2
    assert whole.parts[0].bytes == inputs + 2 * parameters + 2 * 4 * parameters * 3
    assert parts.parts[0].bytes - whole.parts[0].bytes == 3 * 2 * parameters


def test_an_update_moves_what_is_trained():
    step = work("llama_8b_lora", "training", "--batch-size", "1", "--precision", "bf16")
    read = 8039698432 - 128256 * 4096  # an embedding is looked up
    assert step.parts[0].bytes == 8192 * 2 + 2 * read + 2 * 4 * 9437184 * 3


def test_ranks_read_what_they_do_not_divide():
    """And what they keep on the host is not read from the device's memory."""
    words = ("--precision", "bf16", "--replicas", "2", "--batch-size", "4", "--micro-batch-size", "2")
    copied = work("gpt_800m", "training", *words).parts[0].bytes
    divided, offloaded = (
        work("gpt_800m", "training", *words, "--strategy", "fsdp", *more).parts[0].bytes
        for more in ((), ("--offload",))
    )
    inputs = 4 * 2048 * 2
    assert copied - inputs == 2 * (divided - inputs)
    assert offloaded == inputs + 2 * 908759040


def test_what_is_looked_up_is_not_read_whole():
    step = work("bert_base", "inference", "--batch-size", "1", "--precision", "bf16")
    assert step.parts[0].bytes == 2 * (108893186 - 768 * (30522 + 512)) + 384 * 2
    step = work("dit_xl_2", "inference", "--batch-size", "1", "--precision", "bf16")
    assert step.parts[0].bytes == 2 * (675129632 - 1152 * 1000) + 4 * 32 * 32 * 2


def test_a_small_model_stays_in_the_cache():
    step, roof = work("mobilenet_v3_small", "inference", "--batch-size", "1"), roof_of(H200, "bf16")
    assert roofline.bound(step, roof, 1) == roofline.bound(step, roof._replace(bandwidth=None), 1)


def test_metrics_have_the_bound_of_the_device():
    step = work("resnet50", "training", "--batch-size", "256", "--precision", "bf16")
    messages: list[Message] = [H200, Phase("steady", 0.0), Step(0.1, 0.0, 256, 1, 1.0)]
    run = fold(messages, "images", "training", work=step, precision="bf16")
    assert compute.throughput_bound(run).value == pytest.approx(40721.7, rel=1e-5)
    assert compute.fraction_of_bound(run).value == pytest.approx(2560 / 40721.7, rel=1e-5)
    unknown = replace(run, device=H200._replace(name="NVIDIA H300"))
    assert compute.throughput_bound(unknown).reason == "no cited peak for NVIDIA H300 (package) in bf16"
    measured = replace(unknown, measured_peak={"flops": 1e15, "device": "NVIDIA H300", "result": "x"})
    assert compute.throughput_bound(measured).value == pytest.approx(1e15 / 24299077632)


def test_an_impossible_result_is_refused_with_its_numbers():
    document = json.loads((FIXTURES / "h200" / "resnet50_bf16.json").read_text("utf-8"))
    assert not violations(document)
    forged = copy.deepcopy(document)
    forged["metrics"]["throughput"]["value"] = 41000.0
    (text,) = (text for text in violations(forged) if "[throughput-is-possible]" in text)
    assert text.startswith(
        "metrics.throughput: 41000 images/s are impossible: operations allow at most 40721.7 on 1 x NVIDIA H200 in bf16"
    )
    forged["provenance"]["simulated"] = True  # a model of a device has another clock
    assert not [text for text in violations(forged) if "[throughput-is-possible]" in text]


def test_a_description_has_the_bounds_of_all_devices_of_its_kind():
    resolved = configured("resnet50", "training", "--precision", "bf16", "--batch-size", "256")
    rates = {each["device"]: each["throughput"] for each in bounds(CARDS["resnet50"], resolved)}
    assert rates["NVIDIA H200"] == pytest.approx(40721.7, rel=1e-5)
    assert "AMD Instinct MI250 (die)" in rates and "GC200" not in rates and "Tesla T4" not in rates
    assert not bounds(CARDS["resnet50"], replace(resolved, device="cpu"))
    measured = {"flops": 1e12, "device": "a CPU", "result": "x"}
    (only,) = bounds(CARDS["resnet50"], replace(resolved, device="cpu", measured_peak=measured))
    assert only["device"] == "a CPU" and only["throughput"] == pytest.approx(1e12 / 24299077632)


@pytest.mark.parametrize("name", ["NVIDIA H200", "Tesla T4", "NVIDIA GH200 120GB", "GC200", "Tesla V100-SXM2-32GB"])
def test_every_workload_that_is_no_microbenchmark_has_a_bound_on_a_device(name):
    (entry,) = (entry for entry in peaks.table() if name in entry["names"])
    for card in CARDS.values():
        each = {bound["task"]: bound for bound in bounds_of_workload(card, name)}
        assert set(each) == set(card.tasks) - {"microbenchmark", "serving"}  # whose work is that of a rate of requests
        for highest in each.values():
            assert highest["precision"] in entry["flops"] and highest["throughput"] > 0


@pytest.mark.parametrize(
    ("name", "mib"),
    [("NVIDIA H100 80GB HBM3", 81559), ("Tesla T4", 15360), ("NVIDIA H200", 143771), ("NVIDIA GB200", 189471)],
)
def test_a_list_has_the_batches_that_a_run_on_that_device_has(monkeypatch, name, mib):
    reported = PresentDevice(name, mib, (9, 0))
    monkeypatch.setattr("entrypoints.metering.present_device.find", lambda kind: reported)
    for card in CARDS.values():
        for bound in bounds_of_workload(card, name):
            assert bound["batch_size"] == configured(card.name, bound["task"]).batch_size


def test_a_larger_memory_has_larger_batches():
    (training,) = (
        each for each in bounds_of_workload(CARDS["bert_large"], "NVIDIA H100 80GB HBM3") if each["task"] == "training"
    )
    assert training["batch_size"] == 64
    (training,) = (
        each for each in bounds_of_workload(CARDS["efficientnet_b0"], "NVIDIA H100 PCIe") if each["task"] == "training"
    )
    assert training["batch_size"] == 512


def test_the_bound_in_a_list_is_that_of_a_description():
    resolved = configured("resnet50", "inference", "--precision", "bf16", "--batch-size", "1024")
    described = {each["device"]: each["throughput"] for each in bounds(CARDS["resnet50"], resolved)}
    (listed,) = (each for each in bounds_of_workload(CARDS["resnet50"], "NVIDIA H200") if each["task"] == "inference")
    assert listed["throughput"] == described["NVIDIA H200"]
    parts = [each["part"] for each in bounds_of_workload(CARDS["mcmc"], "Intel(R) Data Center GPU Max 1550")]
    assert parts == ["package", "tile"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nvidia h100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"]),
        ("nvidia h200", ["NVIDIA H200"]),
        ("GC2", ["GC2"]),
        ("max 1550", ["Intel(R) Data Center GPU Max 1550"]),
        ("H1000", []),
    ],
)
def test_a_device_is_named_in_full_or_in_part(text, names):
    assert devices(text) == names


def test_bytes_of_a_number_are_known_for_every_precision():
    assert set(BYTES) == set(PRECISIONS)


def test_fp8_takes_its_own_peak_and_the_rest_that_of_bf16():
    """By hand, of Llama 3.1 8B over 8192 tokens: 224 matrices of 32 blocks, and attention with the head."""
    step = work("llama_8b", "training", "--batch-size", "1", "--precision", "fp8")
    (part,) = step.parts
    of_block = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    assert part.in_fp8 == 6 * 8192 * 32 * of_block
    rest = 6 * 8192 * 4096 * 128256 + 3 * 4 * 32 * 4096 * 8192 * 8193 // 2
    assert part.operations == part.in_fp8 + rest
    roof = roof_of(H200, "fp8")
    assert (roof.operations, roof.fp8) == (989.5e12, 1979e12)
    expected = 1 / (part.in_fp8 / 1979e12 + rest / 989.5e12)
    assert roofline.bound(step, roof, 1).throughput == pytest.approx(expected, rel=1e-9)
    whole = work("llama_8b", "training", "--batch-size", "1")
    in_bf16 = roofline.bound(whole, roof_of(H200, "bf16"), 1).throughput
    assert whole.parts[0].in_fp8 == 0 and in_bf16 < expected < 2 * in_bf16


def test_adapters_have_no_gradients_of_frozen_weights_in_fp8():
    (part,) = work("llama_8b_lora", "training", "--batch-size", "1", "--precision", "fp8").parts
    of_block = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    assert part.in_fp8 == 4 * 8192 * 32 * of_block < part.operations


def test_devices_without_a_peak_of_fp8_have_no_bound_in_it():
    a100 = H200._replace(name="NVIDIA A100-SXM4-80GB")
    assert peaks.roof(a100, "fp8") is None and peaks.roof(a100, "bf16") is not None
    assert "NVIDIA H200" in peaks.roofs("cuda", "fp8")
