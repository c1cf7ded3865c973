"""Scaling studies: curves over devices and nodes, where they bend, and what results show of the reason."""

import json
import uuid
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.refusals import refused

from sifmark.commands.study_analysis import show_scaling
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.comparison.compare import compare_observations
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.observation import observe
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.tables import TEXT
from sifmark.results.documents import metric_value
from sifmark.studies.analysis.scaling import ScalingCurve, scaling_curves
from sifmark.studies.analysis.scaling_report import report_lines
from sifmark.studies.analysis.step_time import COMMUNICATION, COMPUTE, DATA, SLOW_RANKS, UNEVEN, measure

SERIAL = count()
# Twelve real runs on two cores: one and two ranks, three times each. The host was busy.
REAL = paths.CHECKOUT / "tests" / "fixtures" / "scaling" / "two_ranks.jsonl"


def run(devices: int, batch: int, step: float, nodes: int = 1, **changes: Any) -> dict[str, Any]:
    """A result of `devices` ranks that trained with DDP, by the time of a step."""
    identifier = str(uuid.UUID(int=next(SERIAL), version=4))
    counts = {f"accelerator__{name}": devices for name in ("count", "ranks", "replicas")}
    document = documents.result(
        id=identifier,
        **counts,
        configuration__batch_size=batch,
        configuration__strategy="ddp" if devices > 1 else None,
        workload__parameters=1_000_000,
        accelerator__execution="eager" + ("; ddp by DistributedDataParallel" if devices > 1 else ""),
    )
    numbers = {"step_time_mean": step, "step_time_p50": step, "data_wait_fraction": 0.0, "rank_spread": 0.0}
    document["metrics"] |= {name: {"value": value, "unit": "s"} for name, value in numbers.items()}
    document["metrics"]["throughput"] = {"value": batch / step, "unit": "images/s"}
    document["power"] = {"reason": "no meter"}
    if devices > 1:
        document["accelerator"]["mesh"] = {"pipeline": 1, "replicate": devices, "shard": 1, "tensor": 1}
        document["ranks"] = [_rank(rank, rank * nodes // devices, step * 10) for rank in range(devices)]
        bandwidth = {"value": 4.0, "unit": "GB/s"}
        summed = {"bytes": 16 << 20, "seconds": 0.01, "bus_bandwidth": bandwidth}
        document["transport"] = {"network": "within the host" if nodes == 1 else "rdma", "all_reduce": summed}
    for name, value in changes.items():
        documents.put(document, tuple(name.split("__")), value)
    return document


def _rank(rank: int, node: int, window: float) -> dict[str, Any]:
    return {"rank": rank, "host": f"n{node}", "window": {"value": window, "unit": "s"}, "steps": 10}


def curves_of(results: Sequence[dict[str, Any]]) -> list[ScalingCurve]:
    def observed(document: dict[str, Any]) -> Any:
        numbers = {"throughput": metric_value(document["metrics"]["throughput"])} | measure(document)
        return observe(document, "results", f"{document['id']}.json", FIELDS, numbers)

    return scaling_curves(compare_observations(map(observed, results), Query(metrics=("throughput",))))


def text_of(curves: Sequence[ScalingCurve]) -> str:
    return "\n".join(report_lines(curves, TEXT, 0.9))


def test_a_weak_curve_bends_where_efficiency_falls_below_the_limit() -> None:
    steps = {1: 0.1, 2: 0.102, 4: 0.104, 8: 0.150, 16: 0.2}
    (curve,) = curves_of([run(devices, 8 * devices, step) for devices, step in steps.items()])
    assert (curve.kind, curve.over, curve.strategy, curve.reference.devices) == ("weak", "devices", "ddp", 1)
    assert [point.efficiency.value for point in curve.points] == pytest.approx([0.1 / step for step in steps.values()])
    assert [point.ideal for point in curve.points] == pytest.approx([80 * devices for devices in steps])
    bend = curve.bend()
    assert bend is not None and (bend.point.devices, bend.certain) == (8, False), "one repeat shows nothing for certain"
    assert curve.bend(0.4) is None


def test_repeats_give_intervals_and_make_a_bend_certain() -> None:
    results = [
        run(devices, 8 * devices, step * (1 + n / 1000)) for devices, step in ((1, 0.1), (2, 0.2)) for n in range(3)
    ]
    (curve,) = curves_of(results)
    efficiency = curve.points[1].efficiency
    assert efficiency.low is not None and efficiency.high is not None and efficiency.low < 0.5 < efficiency.high
    bend = curve.bend()
    assert bend is not None and bend.certain


def test_weak_scaling_loses_time_to_communication_and_data_which_add_up() -> None:
    slow = run(4, 32, 0.2, metrics__data_wait_fraction={"value": 0.3, "unit": "1"})
    (curve,) = curves_of([run(1, 8, 0.1), slow])
    time = curve.points[1].time
    assert time.lost == pytest.approx(0.1)
    parts = {name: part.seconds for name, part in time.parts.items()}
    assert parts == {
        DATA: pytest.approx(0.06),
        COMPUTE: 0.0,
        COMMUNICATION: pytest.approx(0.04),
        SLOW_RANKS: None,
        UNEVEN: 0.0,
    }
    assert time.cause == "60% of the lost time: waiting for data"
    assert "wait for each other" in time.parts[SLOW_RANKS].reason
    assert time.all_reduce.seconds == pytest.approx(1e6 * 4 * 2 * 3 / 4 / 4e9)


def test_strong_scaling_tells_compute_from_communication_by_a_run_with_the_part_of_the_batch() -> None:
    whole, split = run(1, 32, 0.4), run(4, 32, 0.2)
    curves = curves_of([whole, split])
    time = curves[0].points[1].time
    assert time.parts[COMPUTE].seconds is None and time.parts[COMMUNICATION].seconds is None
    assert time.parts[COMPUTE].reason == "it takes a result on 1 device with batch 8"
    assert time.cause == "100% of the lost time: compute or communication, which these results do not tell apart"
    strong = next(curve for curve in curves_of([whole, split, run(1, 8, 0.16)]) if curve.kind == "strong")
    time = strong.points[1].time
    assert time.parts[COMPUTE].seconds == pytest.approx(0.06)
    assert time.parts[COMMUNICATION].seconds == pytest.approx(0.04)
    assert "compute less efficiently" in time.cause


def test_uneven_steps_are_a_part_of_their_own() -> None:
    stalled = run(2, 16, 0.2, metrics__step_time_p50={"value": 0.12, "unit": "s"})
    (curve,) = curves_of([run(1, 8, 0.1), stalled])
    parts = curve.points[1].time.parts
    assert (parts[UNEVEN].seconds, parts[COMMUNICATION].seconds) == pytest.approx((0.08, 0.02))


def test_slow_ranks_show_where_ranks_do_not_wait_for_each_other() -> None:
    copies = run(2, 16, 0.15, configuration__strategy=None)
    copies["accelerator"]["execution"] = "eager"
    copies["ranks"][0]["window"]["value"] = 1.0  # of ten steps; the other's is 1.5
    (curve,) = curves_of([run(1, 8, 0.1), copies])
    assert curve.points[1].time.parts[SLOW_RANKS].seconds == pytest.approx(0.025)


def test_what_a_result_does_not_hold_is_not_known_with_its_reason() -> None:
    missing = {"value": None, "unit": "1", "reason": "requests have no waits"}
    (curve,) = curves_of([run(1, 8, 0.1), run(2, 16, 0.2, metrics__data_wait_fraction=missing)])
    text = text_of([curve])
    assert "not known: data: requests have no waits" in text
    assert "not known: communication: it is unknown, since data is" in text
    assert "not known: power of devices: no meter" in text


def test_nodes_have_a_curve_of_their_own_from_one_whole_node() -> None:
    results = [run(1, 8, 0.1), run(4, 32, 0.11), run(8, 64, 0.12, nodes=2), run(16, 128, 0.14, nodes=4)]
    by_over = {curve.over: curve for curve in curves_of(results)}
    assert [(point.devices, point.nodes) for point in by_over["devices"].points] == [(1, 1), (4, 1), (8, 2), (16, 4)]
    assert [(point.devices, point.nodes) for point in by_over["nodes"].points] == [(4, 1), (8, 2), (16, 4)]
    assert by_over["nodes"].points[2].efficiency.value == pytest.approx(0.11 / 0.14)
    assert "reference: 4 devices, batch 32" in text_of([by_over["nodes"]])


def test_a_device_on_each_node_makes_no_second_curve() -> None:
    results = [run(1, 8, 0.1), run(2, 16, 0.11, nodes=2), run(4, 32, 0.12, nodes=4)]
    assert [curve.over for curve in curves_of(results)] == ["devices"]


def test_what_computes_a_strategy_keeps_no_rows_apart_but_other_execution_does() -> None:
    assert len(curves_of([run(1, 8, 0.1), run(2, 16, 0.1)])) == 1
    compiled = run(2, 16, 0.1, accelerator__execution="compiled; ddp by DistributedDataParallel")
    assert curves_of([run(1, 8, 0.1), compiled]) == []


def test_real_results_have_a_strong_and_a_weak_curve(capsys: pytest.CaptureFixture[str]) -> None:
    show_scaling([str(REAL)], "", "results", 0.9, "json")
    document = json.loads(capsys.readouterr().out)
    kinds = [(curve["kind"], [point["devices"] for point in curve["points"]]) for curve in document["curves"]]
    assert kinds == [("strong", [1, 2]), ("weak", [1, 2]), ("weak", [1, 2])]
    point = document["curves"][0]["points"][1]
    assert point["repeats"] == 3 and 0 < point["efficiency_low"] < point["efficiency"] < point["efficiency_high"]
    assert point["parts"]["compute"]["seconds"] is not None and point["evidence"]["bus_bandwidth"]["value"] > 0


@pytest.mark.parametrize(("form", "expected"), [("table", "strong scaling over devices, ddp"), ("markdown", "|---|"),
                                                ("csv", "title,kind,over,strategy,devices")])  # fmt: skip
def test_each_format_has_the_curves(form: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_scaling([str(REAL)], "", "results", 0.9, form)
    assert expected in capsys.readouterr().out


def test_a_study_is_read_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quick" / "here").mkdir(parents=True)
    (tmp_path / "quick" / "here" / "a.jsonl").write_text(REAL.read_text())
    show_scaling([], "quick", str(tmp_path), 0.9, "csv")
    assert "strong" in capsys.readouterr().out


def test_results_without_a_curve_are_refused_with_what_to_measure(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(documents.valid()))
    with refused(SifmarkError, "results-incomparable") as caught:
        show_scaling([str(tmp_path)], "", "results", 0.9, "table")
    assert "--replicas 1, 2, 4" in caught.value.remedy


@pytest.mark.parametrize(("given", "study", "limit", "code"), [([], "", 0.9, "argument-missing"),
                         (["a"], "b", 0.9, "invalid-option"), (["a"], "", 0.0, "invalid-option"),
                         (["a"], "", 1.5, "invalid-option")])  # fmt: skip
def test_bad_requests_are_refused(given: list[str], study: str, limit: float, code: str) -> None:
    with refused(UsageError, code):
        show_scaling(given, study, "results", limit, "table")
