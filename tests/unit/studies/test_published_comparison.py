"""Results beside published figures: what matches, what is only marked, what is refused, ratios, ranges and states."""

import csv
import io
import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.refusals import refused

from sifmark.commands.compare import compare
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.paths import import_shared
from sifmark.core.settings import load_settings
from sifmark.recipes.names import cards
from sifmark.results.comparison.observation import ComparisonGroup, Observation
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.documents import MetricValue
from sifmark.results.load import document_problems
from sifmark.studies.published.comparison import PublishedComparison, Reason, compare_with_published
from sifmark.studies.published.load import load_published
from sifmark.studies.published.matching import decides
from sifmark.studies.published.measured import FIELD_OF, MeasuredGroup, MeasuredResults, devices_like

FLOPS, CARDS = import_shared("results.roofline"), import_shared("rules.identity")
SERIAL = itertools.count(1)
Result = dict[str, Any]


def result(rate: float | None, batch_size: int = 16, workload: str = "resnet50", **changes: Any) -> Result:
    """A valid result of training, edited: of one GC200 in half precision, and of no framework that exists."""
    card = cards()[workload]
    unit = card["problem"]["unit"]
    flops = FLOPS.flops_of_unit(CARDS.cards_by_name()[workload], "training")
    throughput = {"value": rate, "unit": f"{unit}/s"} | ({} if rate else {"reason": "nothing was timed"})
    settings: Result = {
        "workload__name": workload,
        "workload__task": "training",
        "workload__unit": unit,
        "workload__parameters": card["problem"]["parameters"],
        "workload__flops__per_unit": flops.per_unit,
        "workload__flops__needed_per_unit": flops.needed_per_unit,
        "configuration__batch_size": batch_size,
        "configuration__precision": "fp16",
        "accelerator__name": "GC200",
        "accelerator__vendor": "Graphcore",
        "accelerator__granularity": "package",
        "metrics__throughput": throughput,
    }
    identifier = str(uuid.UUID(int=next(SERIAL), version=4))
    document = documents.valid(id=identifier, **settings | changes)
    assert document_problems(document) == []
    return document


def repeats(rate: float, batch_size: int = 16, count: int = 3, **changes: Any) -> list[Result]:
    return [result(rate * (1 + 0.01 * (index - 1)), batch_size, **changes) for index in range(count)]


def written(folder: Path, results: Sequence[Result]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for document in results:
        (folder / f"{document['id']}.json").write_text(json.dumps(document))
    return str(folder)


def asked(folder: Path, results: Sequence[Result], name: str, *allowed: str) -> PublishedComparison:
    return compare_with_published(name, [written(folder / "results", results)], allowed)


def reasons(comparison: PublishedComparison) -> set[Reason]:
    return {each.reason for each in comparison.unmatched}


# Absolute figures


def test_a_figure_is_beside_the_mean_of_the_results_with_its_conditions(tmp_path: Path) -> None:
    comparison = asked(tmp_path, [*repeats(1700), *repeats(1800, 48)], "caraml/cv-ipu")
    (row,) = comparison.rows
    assert row.figure.printed == "1827.72"
    assert row.measured.count == 3
    assert row.measured.value == pytest.approx(1700, rel=1e-3)
    assert row.ratio is not None
    assert row.ratio.value == pytest.approx((row.measured.value or 0.0) / 1827.72)
    assert row.ratio.low is not None
    assert row.ratio.low < (row.ratio.value or 0) < (row.ratio.high or 0)


def test_what_has_no_counterpart_says_why(tmp_path: Path) -> None:
    comparison = asked(tmp_path, repeats(1700), "caraml")
    assert {Reason.DIFFERS, Reason.NO_FIELD, Reason.NO_RESULTS, Reason.NO_VALUE} <= reasons(comparison)
    differs = [each.detail for each in comparison.unmatched if each.reason is Reason.DIFFERS]
    assert "batch_size 16 (32)" in differs
    figures = sum(len(table.figures) for table in comparison.tables)
    assert len(comparison.rows) + len(comparison.unmatched) == figures


def test_another_platform_is_marked(tmp_path: Path) -> None:
    (row,) = asked(tmp_path / "a", repeats(2000, 20), "pearc22/3").rows
    assert row.figure.printed == "2,130"
    assert [each.name for each in row.differs] == ["framework", "framework_version", "data"]
    another: Result = {"accelerator__name": "NVIDIA H200", "accelerator__vendor": "NVIDIA"}
    another["accelerator__memory_mib"] = 144384
    (row,) = asked(tmp_path / "b", repeats(2000, 20, **another), "pearc22/3").rows
    assert "device NVIDIA H200 (gc200)" in [each.text for each in row.differs]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"configuration__batch_size": 24}, "batch_size"),
        ({"configuration__batch_size": 24}, "configuration.batch_size"),
        ({"accelerator__granularity": "node"}, "granularity"),
        ({"accelerator__granularity": "node"}, "accelerator.granularity"),
        ({"provenance__simulated": True}, "simulated"),
        ({"accelerator__count": 2}, "devices"),
    ],
)
def test_what_decides_is_refused_unless_allowed(tmp_path: Path, changes: Result, name: str) -> None:
    refused = asked(tmp_path, repeats(1700, **changes), "caraml/cv-ipu")
    assert not refused.rows
    assert Reason.DIFFERS in reasons(refused)
    allowed = asked(tmp_path, [], "caraml/cv-ipu", name)
    assert allowed.rows
    assert name.rpartition(".")[2] in {"granularity", *(each.name for each in allowed.rows[0].differs)}


def test_another_precision_is_refused_and_mixed_is_either_half(tmp_path: Path) -> None:
    full: Result = {"configuration__precision": "fp32"}
    assert not asked(tmp_path / "a", repeats(2000, 20, **full), "pearc22/3").rows
    for precision in ("fp16", "bf16"):
        half: Result = {"configuration__precision": precision}
        assert asked(tmp_path / precision, repeats(2000, 20, **half), "pearc22/3").rows


def test_allowing_a_field_takes_the_results_with_the_fewest_differences(tmp_path: Path) -> None:
    comparison = asked(tmp_path, [*repeats(1700), *repeats(1750, 24)], "caraml/cv-ipu", "batch_size")
    pairs = [(row.figure.conditions["batch_size"], row.group.conditions["batch_size"]) for row in comparison.rows]
    assert [measured for (published,), measured in pairs if published == 16] == [16]
    assert sorted(measured or 0 for (published,), measured in pairs if published == 64) == [16, 24]


def test_an_epoch_of_real_data_has_all_their_samples(tmp_path: Path) -> None:
    real: Result = {"configuration__data": "shards", "configuration__data_path": "/d", "configuration__data_workers": 0}
    ipu: Result = {"configuration__framework": "pytorch", "configuration__device": "ipu", "accelerator__kind": "ipu"}
    ipu |= {"accelerator__vendor": "Graphcore", "configuration__fp8_scaling": None}
    of_imagenet: Result = {"data__source": "shards", "data__samples": 1281167, "data__classes": 1000}
    results = repeats(1700, **real, **ipu, **of_imagenet)
    (row,) = asked(tmp_path, results, "caraml/cv-ipu").rows
    assert row.group.conditions["samples_per_epoch"] == results[0]["data"]["samples"]
    assert row.group.conditions["data"] == "real"
    assert "data" not in {each.name for each in row.differs}


def test_what_the_document_does_not_print_is_named(tmp_path: Path) -> None:
    (row,) = asked(tmp_path, repeats(1700), "caraml/cv-ipu").rows
    assert [each.name for each in row.missing] == ["precision"]


def test_a_stand_in_network_is_refused_unless_allowed(tmp_path: Path) -> None:
    results = repeats(3000, 10, workload="image_compression")
    comparison = asked(tmp_path, results, "pearc22/4")
    assert not comparison.rows
    assert {each.detail for each in comparison.unmatched if each.reason is Reason.REFUSED} == {
        "the network is not published; sifmark's image_compression is a stand-in"
    }
    allowed = asked(tmp_path, [], "pearc22/4", "not_comparable")
    assert [row.figure.printed for row in allowed.rows] == ["270", "2,954"]  # of an A100, and of an IPU


@pytest.mark.parametrize(("state", "field"), [("smoke", "configuration.smoke")])
def test_results_that_are_no_measurement_are_excluded(tmp_path: Path, state: str, field: str) -> None:
    comparison = asked(tmp_path, [*repeats(1700), *repeats(1, configuration__smoke=True)], "caraml/cv-ipu")
    assert len(comparison.results.excluded) == 3
    assert len(comparison.rows) == 1


def test_two_repeats_have_a_ratio_without_an_interval(tmp_path: Path) -> None:
    (row,) = asked(tmp_path, repeats(1700, count=2), "caraml/cv-ipu").rows
    assert row.ratio is not None
    assert row.ratio.low is None
    assert "2 repeats" in (row.ratio.reason or "")


# States


def failed(**changes: Any) -> Result:
    return result(None, 128, "gpt2_medium", status__state="out_of_memory", status__exit_code=4, **changes)


@pytest.mark.parametrize(
    ("results", "verdict"), [("failed", "as published"), ("completed", "differs from what is published")]
)
def test_out_of_memory_is_compared_as_a_state(tmp_path: Path, results: str, verdict: str) -> None:
    name: Result = {"accelerator__name": "NVIDIA A100-SXM4-40GB", "accelerator__vendor": "NVIDIA"}
    name["accelerator__memory_mib"] = 40960
    documents_of = [failed(**name)] if results == "failed" else repeats(10, 128, workload="gpt2_medium", **name)
    comparison = asked(tmp_path, documents_of, "turing/figure-2-memory")
    row = next(row for row in comparison.rows if row.figure.row == 2)
    assert row.figure.state == "out_of_memory"
    assert row.verdict == verdict
    assert not {"device", "samples_per_epoch"} & {each.name for each in row.differs}
    assert row.ratio is None


def test_results_out_of_memory_stand_beside_a_published_number(tmp_path: Path) -> None:
    results = [result(None, 16, status__state="out_of_memory", status__exit_code=4)]
    comparison = asked(tmp_path, results, "caraml/cv-ipu")
    rows = [row for row in comparison.rows if row.figure.metric == "throughput"]
    assert [row.group.state for row in rows] == ["out_of_memory"]
    assert rows[0].verdict == "differs from what is published"


@pytest.mark.parametrize(
    ("unit", "decides_it"), [("images/Wh", True), ("J/images", True), ("W", True), ("images/s", False), ("J2", False)]
)
def test_what_a_meter_covers_decides_about_every_unit_of_energy(unit: str, decides_it: bool) -> None:
    figure = load_published("qwant").figures[0]
    assert decides("power_scope", replace(figure, unit=unit)) is decides_it


# Ratios: groups as results would give them, of many devices and with metrics of a meter


def group(values: Sequence[float], metric: str = "throughput", **conditions: Any) -> MeasuredGroup:
    whole: Result = {
        "workload": "gpt2", "task": "training", "precision": "fp16", "devices": 1, "nodes": 1, "replicas": 1,
        "batch_size": 64, "micro_batch_size": 64, "batch_size_per_replica": 64, "instances": 1, "stages": 1,
        "strategy": None, "concurrency": None, "epochs": 2, "samples_per_epoch": 1000, "framework": "pytorch",
        "framework_version": "2.0.1", "power_scope": None, "granularity": "package", "simulated": False,
        "device": "NVIDIA A100-SXM4-40GB", "data": "real",
    } | conditions  # fmt: skip
    devices = whole.pop("devices_of_the_study", ("a100_40",))
    unit = {"throughput": "sequences/s", "peak_allocated_memory": "MiB"}.get(metric, "s")
    key = ComparisonGroup("sha256:0", "training", "steady", "tokens")
    observations = [
        Observation("results", f"{next(SERIAL)}.json", "id", "GPT", key, {}, {metric: MetricValue(value, unit, None)})
        for value in values
    ]
    fields = {path: whole.get(name) for name, path in FIELD_OF.items()} | {"numerics.state": "passed"}
    return MeasuredGroup(RepeatGroup("results", fields, observations), "completed", whole, devices)


def beside(monkeypatch: Any, groups: Sequence[MeasuredGroup], name: str, *allowed: str) -> PublishedComparison:
    results = MeasuredResults(tuple(groups), (), (), (), 0)
    monkeypatch.setattr("sifmark.studies.published.comparison.load_measured", lambda *_: results)
    return compare_with_published(name, ["results"], allowed)


def on(devices: int) -> Result:
    batches = {"batch_size": 64 * devices, "replicas": devices, "batch_size_per_replica": 64}
    return batches | {"devices": devices, "strategy": "ddp" if devices > 1 else None}


@pytest.mark.parametrize(
    ("rates", "verdict", "value"),
    [
        ((185, 186, 187), "within the published range", None),
        ((150, 151, 152), "", 3.02 / 3.5),
        ((210, 211, 212), "", 4.22 / 3.9),
    ],
)
def test_a_speedup_is_compared_with_a_published_range(
    monkeypatch: Any, rates: tuple[float, ...], verdict: str, value: float | None
) -> None:
    groups = [group((49.9, 50, 50.1), **on(1)), group(rates, **on(4))]
    comparison = beside(monkeypatch, groups, "turing/figure-3-speedup")
    (row,) = comparison.rows
    assert (row.figure.low, row.figure.high) == (3.5, 3.9)
    assert row.verdict == verdict
    assert (row.ratio and row.ratio.value) == (pytest.approx(value, rel=1e-3) if value else None)
    assert reasons(comparison) == {Reason.DIFFERS}


def test_a_speedup_needs_the_same_batch_on_each_device(monkeypatch: Any) -> None:
    groups = [group((50, 51, 52), **on(1)), group((180, 181, 182), **on(4) | {"batch_size_per_replica": 16})]
    comparison = beside(monkeypatch, groups, "turing/figure-3-speedup")
    assert not comparison.rows
    assert Reason.NO_REFERENCE in reasons(comparison)


def test_a_percentage_is_a_ratio_of_times(monkeypatch: Any) -> None:
    def times(batch: int, *seconds: float) -> MeasuredGroup:
        sizes = dict.fromkeys(("batch_size", "batch_size_per_replica", "micro_batch_size"), batch)
        return group(seconds, "epoch_time", **sizes)

    groups = [times(64, 100, 101, 99), times(128, 85, 86, 84), times(32, 131, 130, 132)]
    rows = beside(monkeypatch, groups, "turing/figure-3-batch").rows
    assert [(row.figure.printed, row.figure.low) for row in rows] == [("15%", 0.85), ("31%", 1.31)]
    assert all(row.ratio and row.ratio.value == pytest.approx(1, rel=1e-2) for row in rows)


def test_a_doubled_batch_is_divided_by_its_half(monkeypatch: Any) -> None:
    def memory(batch: int, mib: float) -> MeasuredGroup:
        sizes = dict.fromkeys(("batch_size", "batch_size_per_replica", "micro_batch_size"), batch)
        return group([mib] * 3, "peak_allocated_memory", **sizes)

    comparison = beside(monkeypatch, [memory(16, 1000), memory(32, 1500), memory(128, 9000)], "turing/figure-4-batch")
    assert [row.measured.value for row in comparison.rows] == [pytest.approx(1.5)]


def test_a_ratio_of_devices_needs_both(monkeypatch: Any) -> None:
    h100 = {"device": "NVIDIA H100 PCIe", "devices_of_the_study": ("h100",), "precision": "bf16"}
    new = {"device": "NVIDIA H200", "devices_of_the_study": (), "precision": "bf16"}
    a100 = {"precision": "bf16"}
    both = [group((60, 61, 62), "epoch_time", **h100), group((90, 91, 92), "epoch_time", **a100)]
    (row,) = beside(monkeypatch, both, "turing/figure-2-h100").rows
    assert row.verdict == "within the published range"
    other = [group((60, 61, 62), "epoch_time", **new), group((90, 91, 92), "epoch_time", **a100)]
    assert reasons(beside(monkeypatch, other, "turing/figure-2-h100")) == {Reason.DIFFERS}
    assert len(beside(monkeypatch, other, "turing/figure-2-h100", "batch_size").rows) == 0


def answered(device: str, batch: int, rate: float, latency: float, **more: Any) -> MeasuredGroup:
    """Results of requests on four IPUs or one A100: a throughput and a median latency."""
    count = 4 if device == "gc200" else 1
    conditions: Result = {
        "workload": "efficientnet_b0", "task": "inference", "concurrency": 1, "epochs": None, "device": device,
        "devices_of_the_study": (device,), "devices": count, "replicas": count, "batch_size": batch * count,
        "batch_size_per_replica": batch, "micro_batch_size": batch,
    }  # fmt: skip
    answers = group([rate] * 3, **conditions | more)
    for observation in answers.row.observations:
        observation.numbers["latency_p50"] = MetricValue(latency, "s", None)
    return answers


ANSWERS = [
    answered("gc200", 1, 4000, 0.001),
    answered("gc200", 8, 20000, 0.0016),
    answered("a100", 1, 100, 0.010),
    answered("a100", 256, 5000, 0.050),
]


def test_a_ratio_at_the_lowest_latency_is_of_each_devices_own_batch(monkeypatch: Any) -> None:
    rows = beside(monkeypatch, ANSWERS, "graphcore/efficientnet-b0-inference").rows
    assert [row.figure.metric for row in rows] == ["throughput", "latency_p50"]
    assert [row.measured.value for row in rows] == [pytest.approx(4000 / 100), pytest.approx(0.001 / 0.010)]


def test_a_ratio_at_any_batch_is_to_the_highest_throughput(monkeypatch: Any) -> None:
    (row,) = beside(monkeypatch, ANSWERS, "graphcore/efficientnet-b0-any-batch").rows
    assert row.measured.value == pytest.approx(4000 / 5000)
    assert row.verdict == "", "the document says: higher"


def test_a_throughput_within_the_others_latency_is_of_a_batch_that_keeps_it(monkeypatch: Any) -> None:
    slow = answered("gc200", 1024, 90000, 0.011)
    groups = [replace(each, conditions={**each.conditions, "workload": "lstm"}) for each in [*ANSWERS, slow]]
    (row,) = beside(monkeypatch, groups, "graphcore/lstm-inference").rows
    assert row.measured.value == pytest.approx(20000 / 100), "the batch of 1024 is slower than the GPU's lowest latency"


def test_each_site_has_its_own_best(monkeypatch: Any) -> None:
    other = answered("a100", 1, 200, 0.009)
    other.row.fields["site"] = "elsewhere"
    rows = beside(monkeypatch, [*ANSWERS, other], "graphcore/efficientnet-b0-inference").rows
    assert [row.measured.value for row in rows if row.figure.metric == "throughput"] == [
        pytest.approx(4000 / 100),
        pytest.approx(4000 / 200),
    ]


def test_the_best_of_results_without_a_value_is_none(monkeypatch: Any) -> None:
    full = replace(answered("gc200", 1, 58112, 0.001, workload="resnet50"), state="out_of_memory")
    for observation in full.row.observations:
        observation.numbers["throughput"] = MetricValue(None, "images/s", "out of memory")
    comparison = beside(monkeypatch, [full], "graphcore/resnet50-inference")
    assert not comparison.rows
    assert [each.figure.printed for each in comparison.unmatched] == ["4.6x", "58,112"]


def test_only_what_the_batch_may_change_differs_between_the_best_of_two_devices(monkeypatch: Any) -> None:
    other = replace(ANSWERS[2], conditions={**ANSWERS[2].conditions, "precision": "fp32"})
    comparison = beside(monkeypatch, [ANSWERS[0], other], "graphcore/efficientnet-b0-inference")
    assert not comparison.rows
    assert reasons(comparison) == {Reason.NO_REFERENCE}


def test_energy_of_a_superchip_is_no_energy_of_its_gpu(monkeypatch: Any) -> None:
    def trained(device: str, names: tuple[str, ...], devices: int, scope: str) -> MeasuredGroup:
        conditions = on(devices) | {"workload": "gpt_800m", "device": device, "power_scope": scope}
        made = group([1000.0] * 3, "energy_per_device", **conditions, devices_of_the_study=names)
        for observation in made.row.observations:
            observation.numbers["energy_per_device"] = MetricValue(1000.0, "J", None)
            observation.numbers["throughput_per_device"] = MetricValue(10.0, "samples/s", None)
        return made

    rates = {"throughput_per_device"}
    for own, others, metrics in (
        ("board", "board", {*rates, "energy_per_device"}),
        ("board", "package", rates),
        ("package", "board", rates),
    ):
        one = trained("NVIDIA GH200 480GB", ("gh200_jureca",), 1, own)
        four = trained("NVIDIA GH200 120GB", ("gh200_jedi",), 4, others)
        rows = beside(monkeypatch, [one, four], "caraml/nlp-gpu-gh200").rows
        assert {row.figure.metric for row in rows} == metrics
        assert not any("power_scope" in {each.name for each in row.differs} for row in rows)


def test_a_compiled_network_is_not_divided_by_one_as_written(monkeypatch: Any) -> None:
    seconds = {"workload": "gpt2_large", "batch_size": 64, "batch_size_per_replica": 16, "micro_batch_size": 16}
    seconds |= {"devices": 4, "replicas": 4}
    for compiled, found in ((None, 1), ("default", 0)):
        ddp = group([126.0] * 3, "epoch_time", **seconds, strategy="ddp", compile=compiled)
        fsdp = group([100.0] * 3, "epoch_time", **seconds, strategy="fsdp", compile=None)
        rows = beside(monkeypatch, [ddp, fsdp], "turing/figure-6-four-gpus-time").rows
        assert [row.measured.value for row in rows] == [pytest.approx(100 / 126)] * found


def test_four_cards_of_two_dies_are_eight_devices(monkeypatch: Any) -> None:
    def node(device: str, names: tuple[str, ...], devices: int, rate: float) -> MeasuredGroup:
        granularity = "die" if "mi250" in names else "package"
        conditions = on(devices) | {"workload": "gpt_800m", "device": device, "granularity": granularity}
        return group([rate] * 3, **conditions, devices_of_the_study=names)

    dies = devices_like("AMD Instinct MI250", "die", load_published("caraml").devices)
    assert set(dies) == {"mi250", "mi250_die"}
    groups = [node("NVIDIA A100-SXM4-40GB", ("a100",), 4, 160), node("AMD Instinct MI250", dies, 8, 100)]
    (row,) = beside(monkeypatch, groups, "caraml/nlp-gpu-a100").rows
    assert row.measured.value == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100", "h100_sxm"),
        ("NVIDIA H100 80GB HBM3", ""),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H100 NVL", ""),
    ],
)
def test_the_h100_of_94_gb_is_apart_from_others(name: str, device: str) -> None:
    assert devices_like(name, "package", load_published("caraml").devices) == ((device,) if device else ())


def test_context_is_never_divided(tmp_path: Path) -> None:
    folder = written(tmp_path / "results", repeats(1700))
    with refused(SifmarkError, "results-incomparable") as error:
        run(folder, "published:context")
    assert "never compared" in error.value.cause
    assert not any(figure.is_comparable for figure in load_published("context").figures)


def test_a_ratio_of_two_metrics_is_of_the_same_results(monkeypatch: Any) -> None:
    conditions = {
        "device": "GC200", "devices_of_the_study": ("gc200",), "strategy": "pipelined", "stages": 4, "devices": 4,
        "batch_size_per_replica": 1, "epochs": 10,
    }  # fmt: skip
    timed = group((20, 20, 20), "epoch_time", **conditions)
    for observation in timed.row.observations:
        observation.numbers["phases.compile"] = MetricValue(42.0, "s", None)
    (row,) = beside(monkeypatch, [timed], "turing/figure-8-compile").rows
    assert row.measured.value == pytest.approx(2.1)


def test_seconds_of_epochs_of_another_length_are_refused(monkeypatch: Any) -> None:
    single = {"device": "NVIDIA A100-SXM4-80GB", "devices_of_the_study": ("a100_80",), "batch_size": 1}
    comparison = beside(monkeypatch, [group((2500, 2501, 2502), "epoch_time", **single)], "turing/5")
    details = [each.detail for each in comparison.unmatched if each.figure.column.startswith("Avg")]
    assert details[0] == "samples_per_epoch 1000 (35453)"
    allowed = beside(monkeypatch, [group((2500, 2501, 2502), "epoch_time", **single)], "turing/5", "samples_per_epoch")
    assert [row.figure.printed for row in allowed.rows] == ["2 555.80"]


# The command


def run(folder: str, reference: str, **options: Any) -> None:
    compare(load_settings(), (folder,), against=reference, **options)


def test_the_table_has_published_measured_and_ratio(tmp_path: Path, capsys: Any) -> None:
    folder = written(tmp_path / "results", repeats(1700))
    run(folder, "published:caraml/cv-ipu")
    text = capsys.readouterr().out
    assert "1.075x slower ± " in text
    assert "throughput [images/s]" in text
    assert "8 figures of cv-ipu: the nearest results differ: batch_size" in text


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_the_other_formats_have_the_same_numbers(tmp_path: Path, capsys: Any, form: str) -> None:
    folder = written(tmp_path / "results", repeats(1700))
    run(folder, "published:caraml/cv-ipu", form=form, metrics="throughput")
    text = capsys.readouterr().out
    if form == "json":
        document = json.loads(text)
        assert document["rows"][0]["figure"]["printed"] == "1827.72"
        assert len(document["without_counterpart"]) == 8
    elif form == "csv":
        (row,) = csv.DictReader(io.StringIO(text))
        assert (row["printed"], row["published_low"], row["n"]) == ("1827.72", "1827.72", "3")
    else:
        assert text.startswith("| table | row | metric |")


def test_nothing_to_compare_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    folder = written(tmp_path / "results", repeats(1700))
    with refused(SifmarkError, "results-incomparable") as error:
        run(folder, "published:qwant")
    assert "published.show qwant" in error.value.remedy


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("published:quant", {}, "no published study 'quant'"),
        ("printed:qwant", {}, "published:NAME"),
        ("published:caraml/cv-ipu", {"allow": ("colour",)}, "no field that can be allowed 'colour'"),
        ("published:caraml/cv-ipu", {"fail_below": 0.9}, "--fail-below"),
        ("published:caraml/cv-ipu", {"by": "site"}, "--by"),
    ],
)
def test_wrong_usage_is_explained(tmp_path: Path, reference: str, options: Any, words: str) -> None:
    folder = written(tmp_path / "results", repeats(1700))
    with pytest.raises(UsageError) as refusal:
        run(folder, reference, **options)
    assert words in f"{refusal.value.cause} {refusal.value.remedy}"


def test_an_invalid_document_is_an_error_after_the_table(tmp_path: Path, capsys: Any) -> None:
    folder = written(tmp_path / "results", repeats(1700))
    (Path(folder) / "broken.json").write_text("{")
    with refused(SifmarkError, "result-invalid"):
        run(folder, "published:caraml/cv-ipu")
    assert "1.075x slower" in capsys.readouterr().out
