"""Comparing: what goes into one line, what is refused and by which field, baselines, scaling, the gate, the formats."""

import csv
import io
import itertools
import json
import random
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import documents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from unit.refusals import refused

from sifmark.commands.compare import compare
from sifmark.core import paths
from sifmark.core.errors import GateError, SifmarkError, UsageError
from sifmark.core.schemas import fast_validator
from sifmark.core.settings import load_settings
from sifmark.core.terminal import configure
from sifmark.results.comparison.baselines import MOST_DIFFERING
from sifmark.results.comparison.compare import Comparison, compare_observations
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.observation import observe
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.tables import incompatibility_text
from sifmark.results.comparison.text import as_markdown, as_text
from sifmark.results.documents import metric_value, metrics_of
from sifmark.results.load import run_keys
from sifmark.results.summary import title

SERIAL = itertools.count()
OTHER = "sha256:" + "1" * 64


def result(throughput: float | None = 100.0, **changes: Any) -> dict[str, Any]:
    """A result that compares, with an id of its own."""
    value = {"value": throughput, "unit": "images/s"}
    missing = {"value": None, "unit": "images/s", "reason": "nothing was timed"}
    metric = value if throughput is not None else missing
    identifier = str(uuid.UUID(int=next(SERIAL), version=4))
    return documents.result(id=identifier, metrics__throughput=metric, **changes)


def repeats(centre: float, count: int = 3, **changes: Any) -> list[dict[str, Any]]:
    return [result(centre * (1 + 0.001 * (index - 1)), **changes) for index in range(count)]


def write(folder: Path, results: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for document in results:
        (folder / f"{document['id']}.json").write_text(json.dumps(documents.settled(document)))
    return folder


def compare_results(path: str, against: str = "", **options: Any) -> None:
    compare(load_settings(), (path,), **{"baseline": against, **options})


def ask(results: list[dict[str, Any]], against: Sequence[dict[str, Any]] = (), **question: Any) -> Comparison:
    asked = Query(**{"metrics": ("throughput",), "against": bool(against), **question})
    sides = [("results", document) for document in results] + [("against", document) for document in against]
    return compare_observations([observed(document, side) for side, document in sides], asked)


def observed(document: dict[str, Any], side: str) -> Any:
    assert fast_validator("result-1.2").is_valid(document)
    numbers = {name: metric_value(metric) for name, metric in metrics_of(document).items()}
    return observe(document, side, f"{document['id']}.json", FIELDS, numbers)


def lines(answer: Comparison) -> list[RepeatGroup]:
    return [line for table in answer.tables for line in table.rows]


def fields(answer: Comparison) -> set[str]:
    return {finding.field for finding in answer.refused}


# Grouping

CHANGES: dict[str, list[Any]] = {
    "workload__identity": ["sha256:" + "0" * 64, OTHER],
    "workload__task": ["training", "inference"],
    "data__source": ["synthetic", "folder"],
    "configuration__precision": ["fp32", "bf16"],
    "configuration__batch_size": [1, 2, 3],
    "configuration__concurrency": [None, 1, 2],
    "configuration__seed": [0, 1],
    "accelerator__count": [1, 2],
    "site": [None, "here"],
}
CHOICES = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHANGES.items()}), max_size=12
)
# But for those of an engine's load, which test_serving.py has.
SETTINGS_OF_SCHEMA: dict[str, Any] = {**documents.SCHEMA["properties"]["configuration"]["properties"]}
del SETTINGS_OF_SCHEMA["serving"]
APART = ("workload__identity", "workload__task", "data__source")
SAME_LINE = tuple(name for name in CHANGES if name != "configuration__seed")


@settings(max_examples=examples(60), deadline=None)
@given(CHOICES, st.randoms(use_true_random=False))
def test_a_line_is_what_differs_in_nothing_that_matters(choices: list[dict[str, Any]], chance: random.Random) -> None:
    results = [result(**choice) for choice in choices]
    answer = ask(results)
    assert not answer.refused
    assert len(answer.tables) == len({tuple(choice[name] for name in APART) for choice in choices})
    wanted = Counter(tuple(choice[name] for name in SAME_LINE) for choice in choices)
    assert sorted(len(line.observations) for line in lines(answer)) == sorted(wanted.values())
    assert Counter(observation.id for line in lines(answer) for observation in line.observations) == Counter(
        d["id"] for d in results
    )
    chance.shuffle(results)
    again = ask(results)
    assert [line.fields for line in lines(again)] == [line.fields for line in lines(answer)]
    assert [line.means for line in lines(again)] == [line.means for line in lines(answer)]


def two_values(name: str) -> tuple[Any, Any]:
    """Two values that a setting of the schema may have."""
    rule, value = SETTINGS_OF_SCHEMA[name], documents.whole()["configuration"][name]
    if "enum" in rule:
        return rule["enum"][0], rule["enum"][1]
    if name == "repeat":
        return {"index": 1, "of": 2}, {"index": 2, "of": 2}
    if "null" in rule.get("type", ()) or "oneOf" in rule:
        return None, value
    if isinstance(value, bool):
        return value, not value
    return value, f"{value}b" if isinstance(value, str) else value + 1


@pytest.mark.parametrize("name", SETTINGS_OF_SCHEMA)
def test_a_setting_keeps_apart_tells_the_platform_or_does_not_matter_as_its_role_says(name: str) -> None:
    rule = SETTINGS_OF_SCHEMA[name]
    role = "setting" if name == "evaluation_path" else rule["x-role"]  # by what was evaluated, wherever that lies
    unfit = "x-compare" in rule
    choice, other = ({f"configuration__{name}": value} for value in two_values(name))
    alone = ask([result(**choice), result(**other)])
    assert len(lines(alone)) == (2 if role in ("setting", "platform") and not unfit else 1)
    assert len(alone.excluded) == unfit
    against = ask([result(**choice)], [result(**other)])
    (line,) = [line for line in lines(against) if line.side == "results"]
    assert bool(line.ratios) == (role != "setting")
    field = {"evaluation_path": "evaluated"}.get(name, name)
    assert (f"the nearest differs in {field}" in (line.no_baseline or "")) == (role == "setting" and not unfit)


OTHER_DATA: dict[str, Any] = {"configuration__evaluation_path": "/b"}


def test_a_target_on_other_data_is_another_target() -> None:
    from_folder: dict[str, Any] = {"configuration__evaluation_path": "/a", "data__source": "folder"}
    assert len(lines(ask([result(**from_folder), result(**{**from_folder, **OTHER_DATA})]))) == 1
    larger = result(**from_folder)
    larger["target"]["evaluations"][0]["samples"] += 1
    assert len(lines(ask([result(**from_folder), larger]))) == 2
    without = {**from_folder, "target": None, "configuration__goal": None}
    assert len(lines(ask([result(**without), result(**{**without, **OTHER_DATA})]))) == 1
    own: dict[str, Any] = {"data__source": "synthetic", "configuration__evaluation_path": None}
    synthetic = result(**own)
    synthetic["target"]["evaluations"][0]["samples"] += 1  # as many as are in the batch
    assert len(lines(ask([result(**own), synthetic]))) == 1


def test_units_that_may_differ_are_in_lines_of_their_own() -> None:
    other = result(100.0)
    other["metrics"]["throughput"]["unit"] = "tokens/s"
    answer = ask([result(100.0), other], allowed=frozenset({"metrics.throughput.unit"}))
    assert [line.fields["metrics.throughput.unit"] for line in lines(answer)] == ["images/s", "tokens/s"]


def test_a_gate_for_what_is_better_when_it_is_less(tmp_path: Path) -> None:
    def taking(name: str, seconds: float) -> Path:
        rates = [1 / (seconds * (1 + 0.001 * index)) for index in range(3)]
        return write(tmp_path / name, [result(rate, configuration__batch_size=1) for rate in rates])

    old, slow = taking("old", 1), taking("slow", 3)
    chosen = {"metrics": "step_time_p50", "fail_above": 1.05}
    compare_results(str(old), str(taking("same", 1)), **chosen)
    with pytest.raises(GateError, match="step_time_p50 of 1 of 1 row is above 1.05"):
        compare_results(str(slow), str(old), **chosen)


def test_variables_that_change_the_speed_keep_results_apart() -> None:
    def run_with(rate: float, preloaded: Sequence[str] = (), **variables: str) -> dict[str, Any]:
        return result(rate, environment={"variables": variables, "preloaded": list(preloaded)})

    slow = [run_with(5, ONEDNN_MAX_CPU_ISA="SSE41", CUDA_VISIBLE_DEVICES=str(number)) for number in range(2)]
    clocked = run_with(300, preloaded=["/tmp/slowclock.so"])
    answer = ask([run_with(30), *slow, clocked], baseline=("environment.ONEDNN_MAX_CPU_ISA", "SSE41"))
    by_environment = {len(line.observations): line.fields for line in lines(answer)}
    assert sorted(len(line.observations) for line in lines(answer)) == [1, 1, 2]
    assert by_environment[2]["environment.ONEDNN_MAX_CPU_ISA"] == "SSE41"
    ratios = {round(line.ratios["throughput"].value or 0) for line in lines(answer) if line.ratios}
    assert ratios == {6, 60}, "the platform of a baseline may differ, its settings not"


# What is left out, and refusal

UNLIKE: dict[str, list[Any]] = {
    "workload.unit": ["images", "tokens"],
    "accelerator.granularity": ["die", "board"],
    "provenance.stand_in": [False, True],
    "provenance.simulated": [False, True],
}
UNFIT: dict[str, list[Any]] = {
    "status.state": ["completed", "time_limit"],
    "numerics.state": ["passed", "failed"],
    "configuration.smoke": [False, True],
}
DRAWN = st.lists(st.fixed_dictionaries({n: st.sampled_from(v) for n, v in (UNLIKE | UNFIT).items()}), max_size=4)


@settings(max_examples=examples(150), deadline=None)
@given(DRAWN, st.sets(st.sampled_from(sorted(UNLIKE | UNFIT))))
def test_a_group_is_refused_exactly_for_the_fields_that_keep_it_apart(
    drawn: list[dict[str, Any]], allowed: set[str]
) -> None:
    results = [unlike(choice) for choice in drawn]
    barred = [{name for name in UNFIT if choice[name] == UNFIT[name][1]} - allowed for choice in drawn]
    rest = [choice for choice, why in zip(drawn, barred, strict=True) if not why]
    apart = {name for name in UNLIKE if len({choice[name] for choice in rest}) > 1}
    unfit = {name for name in UNFIT for choice in rest if choice[name] == UNFIT[name][1]}
    answer = ask(results, allowed=frozenset(allowed))
    assert [(out.result.id, set(out.fields)) for out in answer.excluded] == [
        (document["id"], why) for document, why in zip(results, barred, strict=True) if why
    ]
    assert fields(answer) == apart - allowed
    assert bool(answer.tables) == (apart <= allowed and bool(rest))
    for table in answer.tables:
        assert {finding.field for finding in table.allowed} == apart | unfit
        assert sum(len(line.observations) for line in table.rows) == len(rest)
    for line in lines(answer):  # what was allowed stands side by side, and is never averaged
        assert (
            len({tuple(observation.fields[name] for name in UNLIKE | UNFIT) for observation in line.observations}) == 1
        )


def unlike(choice: dict[str, Any]) -> dict[str, Any]:
    document = result(**{name.replace(".", "__"): value for name, value in choice.items()})
    if choice["numerics.state"] != "passed":
        document["numerics"]["reason"] = "the first loss deviates"
    return document


@pytest.mark.parametrize("phase", ["import", "compile", "steady", None])
def test_a_failed_run_hides_nothing_in_whatever_phase_it_ended(phase: str | None) -> None:
    answer = ask([*repeats(100), result(None, status__state="out_of_memory", status__phase=phase)])
    assert [len(line.observations) for line in lines(answer)] == [3]
    assert [out.fields for out in answer.excluded] == [("status.state",)]
    assert not answer.refused


def test_a_finding_counts_the_values_and_names_a_file() -> None:
    odd = result(provenance__stand_in=True)
    (finding,) = ask([result(), result(), odd]).refused
    assert finding.field == "provenance.stand_in"
    assert finding.counts == {"false": 2, "true": 1}
    assert finding.example == f"{odd['id']}.json"


def test_both_sides_are_looked_at_together() -> None:
    assert fields(ask([result()], [result(provenance__stand_in=True)])) == {"provenance.stand_in"}


def test_one_group_that_is_refused_leaves_the_others() -> None:
    others = [result(workload__identity=OTHER, provenance__stand_in=value) for value in (False, True)]
    answer = ask([result(), *others])
    assert len(answer.tables) == 1
    assert fields(answer) == {"provenance.stand_in"}


def test_units_of_a_metric_must_be_equal() -> None:
    other = result()
    other["metrics"]["throughput"]["unit"] = "tokens/s"
    assert fields(ask([result(), other])) == {"metrics.throughput.unit"}
    answer = ask([result(), other], allowed=frozenset({"metrics.throughput.unit"}))
    assert answer.tables[0].units == {"throughput": "images/s or tokens/s"}


def powered(scope: str) -> dict[str, Any]:
    return result(metrics__energy_per_unit={"value": 2.0, "unit": "J/images"}, power__scope=scope)


def test_scopes_of_meters_matter_to_energy_and_to_nothing_else() -> None:
    results = [powered("package"), powered("board")]
    assert fields(ask(results, metrics=("throughput", "energy_per_unit"))) == {"power.scope"}
    assert fields(ask(results)) == set()
    assert fields(ask([powered("board"), powered("board")], metrics=("energy_per_unit",))) == set()


def proved(state: str, throughput: float = 100.0) -> dict[str, Any]:
    return result(throughput, numerics={"state": state, "reason": "a reason", "precisions": [], "run_checks": []})


@pytest.mark.parametrize("state", ["not_run", "not_provable"])
def test_numbers_that_are_not_proved_are_compared_and_named(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "new", [*repeats(100), proved(state), proved(state)])
    compare_results(str(folder), against=str(write(tmp_path / "old", repeats(50))))
    text = capsys.readouterr().out
    assert f"correctness not checked: 2 results, numerics.state {state}" in text
    answer = ask([*repeats(100), proved(state), proved(state)], repeats(50))
    new = [line for line in lines(answer) if line.side == "results"]
    assert sorted(len(line.observations) for line in new) == [2, 3]
    assert [line.ratios["throughput"].value for line in new] == pytest.approx([2, 2])


def test_nothing_is_said_of_numbers_that_are_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_results(str(write(tmp_path, [result()])))
    assert "not proved" not in capsys.readouterr().out


# Baselines


def test_a_baseline_has_the_same_configuration() -> None:
    results = [*repeats(200), *repeats(50, configuration__batch_size=7)]
    against = [*repeats(100), *repeats(100, configuration__batch_size=7)]
    new = [line for line in lines(ask(results, against)) if line.side == "results"]
    assert [line.ratios["throughput"].value for line in new] == pytest.approx([2.0, 0.5], abs=5e-4)
    assert [line.ratios["throughput"].verdict for line in new] == ["more", "less"]


def of_kind(device: str, **changes: Any) -> dict[str, Any]:
    """A result in half precision of an older version, which does not say how much that is."""
    return result(configuration__device=device, configuration__precision="fp16", accelerator__kind=device, **changes)


@pytest.mark.parametrize("said", [True, False])
def test_half_precision_is_mixed_or_pure(said: bool) -> None:
    """Results that do not say it go by their device. Both are in one table, and neither is the other's baseline."""
    kinds = {"cuda": "mixed", "ipu": "pure"}
    documents = [of_kind(device, configuration__precision_kind=kind) for device, kind in kinds.items()]
    for document in [] if said else documents:
        del document["configuration"]["precision_kind"]
    answer = ask(documents, baseline=("accelerator.kind", "cuda"))
    (row,) = [row for row in lines(answer) if row.fields["accelerator.kind"] == "ipu"]
    assert row.no_baseline is not None and "precision_kind (--allow FIELD)" in row.no_baseline
    assert "half precision is pure in some of these results" in as_text(answer)
    answer = ask(documents, baseline=("accelerator.kind", "cuda"), allowed=frozenset(["configuration.precision_kind"]))
    (row,) = [row for row in lines(answer) if row.fields["accelerator.kind"] == "ipu"]
    assert row.baseline is not None and row.no_baseline is None
    assert ", fp16 (pure), " in as_text(ask(documents[1:]))
    assert title(documents[0]).split()[2:4] == ["fp16", "batch"] and "fp16 (pure)" in title(documents[1])


def test_where_precisions_may_differ_what_is_computed_in_them_may_too() -> None:
    pure = of_kind("ipu")
    single = result(configuration__device="ipu", accelerator__kind="ipu")
    (row,) = [row for row in lines(ask([pure, single], baseline=("configuration.precision", "fp32"))) if row.baseline]
    assert row.fields["configuration.precision"] == "fp16"


def test_steps_of_several_updates_are_named() -> None:
    """Their times are those of whole calls."""
    results = [result(configuration__device_iterations=count) for count in (1, 4)]
    assert "a step is a call of 1 or 4 updates" in as_text(ask(results))


def test_a_line_without_a_baseline_says_why() -> None:
    far: dict[str, Any] = {"configuration__precision": "bf16", "configuration__steps": 9}
    against = [result(**far), result(**far, configuration__batch_size=9)]
    (line,) = [line for line in lines(ask([result()], against)) if line.side == "results"]
    assert line.no_baseline == (
        "no baseline has the same configuration; the nearest differs in precision, steps (--allow FIELD)"
    )
    assert line.ratios == {}
    (line,) = lines(ask([result()], baseline=("site", "elsewhere")))
    assert line.no_baseline == "no baseline has the same workload, task, phase and data source"


SETTINGS: dict[str, list[Any]] = {
    "configuration__precision": ["fp32", "bf16"],
    "configuration__batch_size": [1, 2],
    "configuration__steps": [9, 10],
    "configuration__epochs": [None, 1],
}
DRAWN_SETTINGS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SETTINGS.items()})


@settings(max_examples=examples(60), deadline=None)
@given(DRAWN_SETTINGS, st.lists(DRAWN_SETTINGS, min_size=1, max_size=4))
def test_the_nearest_baseline_is_the_one_that_differs_in_the_fewest_settings(
    asked: dict[str, Any], choices: list[dict[str, Any]]
) -> None:
    answer = ask([result(**asked)], [result(**choice) for choice in choices])
    (line,) = [line for line in lines(answer) if line.side == "results"]
    differing = [sorted(name for name in asked if asked[name] != choice[name]) for choice in choices]
    fewest = min(map(len, differing))
    wanted = [", ".join(names).replace("configuration__", "") for names in differing if len(names) == fewest]
    if fewest > MOST_DIFFERING:
        assert f"more than {MOST_DIFFERING} settings" in (line.no_baseline or "")
    elif fewest:
        assert any(f"the nearest differs in {names} (" in (line.no_baseline or "") for names in wanted)
    else:
        assert line.ratios


def test_allowing_a_field_of_the_configuration_lets_baselines_differ_in_it() -> None:
    against = [result(configuration__batch_size=9)]
    answer = ask([result()], against, allowed=frozenset({"configuration.batch_size"}))
    (line,) = [line for line in lines(answer) if line.side == "results"]
    assert line.ratios["throughput"].value == 1


def test_of_several_baselines_the_one_on_the_same_platform_is_taken() -> None:
    against = [result(100, accelerator__name="old"), result(50, accelerator__name="new")]
    (line,) = [line for line in lines(ask([result(100, accelerator__name="new")], against)) if line.side == "results"]
    assert line.ratios["throughput"].value == pytest.approx(2)
    (line,) = [line for line in lines(ask([result(1, accelerator__name="else")], against)) if line.side == "results"]
    assert line.no_baseline == "several baselines, which differ in accelerator.name"


def test_a_baseline_by_field() -> None:
    results = [
        result(100 * count * speed, accelerator__name=name, accelerator__count=count)
        for name, speed in (("old", 1), ("new", 3))
        for count in (1, 2)
    ]
    answer = ask(results, baseline=("accelerator.name", "old"))
    assert [len(line.ratios) for line in lines(answer) if line.fields["accelerator.name"] == "old"] == [0, 0]
    new = [line for line in lines(answer) if line.fields["accelerator.name"] == "new"]
    assert [line.ratios["throughput"].value for line in new] == pytest.approx([3, 3])


def test_repeats_without_a_value_do_not_count() -> None:
    answer = ask([*repeats(100), result(None)], repeats(100, count=4))
    (line,) = [line for line in lines(answer) if line.side == "results"]
    assert (line.means["throughput"].count, len(line.observations)) == (3, 4)
    assert line.missing_reason("throughput") == "nothing was timed"


# Scaling


def scaled(throughput: float, devices: int, batch: int, **changes: Any) -> dict[str, Any]:
    changes |= {f"accelerator__{name}": devices for name in ("count", "ranks", "replicas")}
    return result(throughput, **{"configuration__batch_size": batch, "configuration__strategy": None, **changes})


def by_ddp(throughput: float, devices: int, batch: int, **changes: Any) -> dict[str, Any]:
    return scaled(throughput, devices, batch, **{"configuration__strategy": "ddp", **changes})


def scalings(answer: Comparison) -> dict[tuple[str, str | None, int, int], tuple[float | None, float | None, int]]:
    """Speed-up, efficiency and the devices of the reference, by kind, strategy, devices and batch."""
    return {
        (
            scaling.kind,
            row.fields["configuration.strategy"],
            row.fields["accelerator.count"],
            row.fields["configuration.batch_size"],
        ): (scaling.speedup.value, scaling.efficiency.value, scaling.reference.fields["accelerator.count"])
        for row in lines(answer)
        for scaling in row.scalings
    }


def test_speedup_and_efficiency_where_only_the_number_of_devices_differs() -> None:
    results = [*[scaled(100, 1, 8)] * 1, scaled(150, 2, 8), scaled(190, 2, 16), scaled(360, 4, 32)]
    assert scalings(ask(results)) == {
        ("strong", None, 2, 8): pytest.approx((1.5, 0.75, 1)),
        ("weak", None, 2, 16): pytest.approx((1.9, 0.95, 1)),
        ("weak", None, 4, 32): pytest.approx((3.6, 0.90, 1)),
    }


def test_a_row_may_scale_in_both_ways() -> None:
    results = [scaled(100, 1, 8), scaled(110, 1, 16), scaled(190, 2, 16)]
    assert scalings(ask(results)) == {
        ("strong", None, 2, 16): pytest.approx((190 / 110, 95 / 110, 1)),
        ("weak", None, 2, 16): pytest.approx((1.9, 0.95, 1)),
    }


def test_each_strategy_scales_from_one_device_which_has_none() -> None:
    sharded = scaled(120, 2, 8, configuration__strategy="sharded")
    results = [scaled(100, 1, 8), by_ddp(180, 2, 8), by_ddp(320, 4, 8), sharded]
    assert scalings(ask([*results, *repeats(99, configuration__batch_size=9)])) == {
        ("strong", "ddp", 2, 8): pytest.approx((1.8, 0.9, 1)),
        ("strong", "ddp", 4, 8): pytest.approx((3.2, 0.8, 1)),
        ("strong", "sharded", 2, 8): pytest.approx((1.2, 0.6, 1)),
    }
    without = [each for each in results if each["accelerator"]["count"] > 1]  # the model does not fit one device
    assert scalings(ask(without)) == {("strong", "ddp", 4, 8): pytest.approx((320 / 180, 160 / 180, 2))}


def test_strategies_are_never_averaged() -> None:
    rows = lines(ask([by_ddp(180, 2, 8), by_ddp(182, 2, 8), by_ddp(120, 2, 8, configuration__strategy="sharded")]))
    assert {row.fields["configuration.strategy"]: len(row.observations) for row in rows} == {"ddp": 2, "sharded": 1}


def test_pipelined_stages_share_a_replica_so_they_scale_strongly() -> None:
    staged = scaled(150, 2, 8, configuration__strategy="pipelined", configuration__stages=2, accelerator__replicas=1)
    staged["accelerator"]["replicas"] = 1
    assert scalings(ask([scaled(100, 1, 8), staged])) == {("strong", "pipelined", 2, 8): pytest.approx((1.5, 0.75, 1))}


def test_ranks_share_the_threads_of_a_node_but_those_of_a_cpu_are_the_device() -> None:
    def of(kind: str, devices: int, threads: int) -> dict[str, Any]:
        share = "share" if kind == "cpu" and devices > 1 else "node"
        changes = {"accelerator__granularity": share, "accelerator__kind": kind, "configuration__threads": threads}
        return by_ddp(100.0 * devices, devices, 8, **changes, configuration__strategy="ddp" if devices > 1 else None)

    assert scalings(ask([of("cuda", 1, 8), of("cuda", 2, 4)])).keys() == {("strong", "ddp", 2, 8)}
    assert scalings(ask([of("cpu", 1, 2), of("cpu", 2, 1)])) == {}
    assert scalings(ask([of("cpu", 1, 1), of("cpu", 2, 1)])).keys() == {("strong", "ddp", 2, 8)}


def test_of_several_references_the_one_that_divides_the_batch_equally_counts() -> None:
    def accumulated(document: dict[str, Any], times: int) -> dict[str, Any]:
        document["configuration"]["gradient_accumulation"] = times
        return document

    first = [accumulated(scaled(100, 1, 8), 1), accumulated(scaled(50, 1, 8), 4)]
    assert scalings(ask([*first, accumulated(by_ddp(180, 2, 8), 4)])) == {
        ("strong", "ddp", 2, 8): pytest.approx((3.6, 1.8, 1))
    }
    (row,) = [row for row in lines(ask([*first, accumulated(by_ddp(180, 2, 8), 2)])) if row.scalings]
    assert row.scalings[0].speedup.value is None
    reason = "several results have the fewest devices, and differ in configuration.gradient_accumulation"
    assert row.scalings[0].efficiency.reason == reason


def test_steps_of_an_epoch_follow_the_number_of_devices() -> None:
    def of_epochs(devices: int, steps: int, epochs: int | None) -> dict[str, Any]:
        document = scaled(100.0 * devices, devices, 8 * devices)
        document["configuration"].update(steps=steps, epochs=epochs)
        return document

    weak = scalings(ask([of_epochs(1, 20, 2), of_epochs(2, 10, 2)]))
    assert weak == {("weak", None, 2, 16): pytest.approx((2.0, 1.0, 1))}
    assert not scalings(ask([of_epochs(1, 20, None), of_epochs(2, 10, None)]))


def test_no_efficiency_where_more_than_the_number_of_devices_differs() -> None:
    other = scaled(200, 2, 8)
    other["configuration"]["precision"] = "bf16"
    assert not scalings(ask([scaled(100, 1, 8), other]))


# Ranks


def ranked(throughput: float, network: str | None, hosts: Sequence[str] = ("a", "b")) -> dict[str, Any]:
    """A result of ranks, one on each host."""
    document = by_ddp(throughput, len(hosts), 8)
    document["ranks"] = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]
    document["transport"] = {"backend": "nccl", "network": network} if network else None
    return document


def of_ranks(results: list[dict[str, Any]], **question: Any) -> Comparison:
    asked = Query(**{"metrics": ("throughput",), **question})
    numbers = [{"throughput": metric_value(each["metrics"]["throughput"])} for each in results]
    sides = zip(results, numbers, strict=True)
    return compare_observations(
        [observe(each, "results", f"{each['id']}.json", FIELDS, of) for each, of in sides], asked
    )


def test_sockets_and_rdma_are_refused_by_both_files() -> None:
    slow, fast = ranked(20, "sockets"), ranked(190, "rdma")
    answer = of_ranks([slow, fast, ranked(189, "rdma")])
    (finding,) = answer.refused
    assert (finding.field, finding.counts) == ("transport.network", {"sockets": 1, "rdma": 2})
    text = incompatibility_text(finding)
    assert f"for example {slow['id']}.json (sockets), {fast['id']}.json (rdma)" in text
    assert "measure again with the network's devices and libraries in the container" in text
    allowed = lines(of_ranks([slow, fast], allowed=frozenset({"transport.network"})))
    assert [len(row.observations) for row in allowed] == [1, 1], "never averaged"


@pytest.mark.parametrize("network", ["sockets", "rdma"])
def test_scaling_begins_on_one_node_with_shared_memory_or_on_one_device(network: str) -> None:
    one_node = ranked(180, "within the host", ["a", "a"])
    answer = of_ranks([scaled(100, 1, 8), one_node, ranked(320, network, ["a", "a", "b", "b"]), ranked(1, None)])
    assert not answer.refused
    assert {count: of for (_, _, count, _), of in scalings(answer).items()}[4] == pytest.approx((3.2, 0.8, 1))


def test_ranks_of_one_node_and_of_two_are_different_rows() -> None:
    rows = lines(of_ranks([ranked(180, "sockets", ["a", "a"]), ranked(100, "sockets"), ranked(101, "sockets")]))
    assert {row.fields["nodes"]: len(row.observations) for row in rows} == {1: 1, 2: 2}


def test_the_table_of_scaling_names_its_reference() -> None:
    first = scaled(100, 1, 8)
    lines_of_text = as_text(of_ranks([first, ranked(180, "rdma"), ranked(360, "rdma", "abcd")])).splitlines()
    at = next(number for number, line in enumerate(lines_of_text) if line.startswith("scaling"))
    header, two, four = (re.split(r" {2,}", line) for line in lines_of_text[at : at + 3])
    shown = ["accelerator.count", "speed-up", "efficiency", "reference"]
    assert [name for name in header if name in shown] == shown
    assert two[-3:] == ["1.800x", "90%", "1 device, batch_size 8"]
    assert four[-3:] == ["3.600x", "90%", "1 device, batch_size 8"]
    assert f"reference of scaling, 1 device, batch_size 8: {first['id']}.json" in lines_of_text


# The verb


def test_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old", repeats(100))
    same, slow = write(tmp_path / "same", repeats(100)), write(tmp_path / "slow", repeats(80))
    few = write(tmp_path / "few", repeats(100, count=2))
    noisy = write(tmp_path / "noisy", [result(value) for value in (60, 100, 140)])
    compare_results(str(same), str(old), fail_below=0.95)
    with pytest.raises(GateError, match="throughput of 1 of 1 row is below 0.95") as caught:
        compare_results(str(slow), str(old), fail_below=0.95)
    assert caught.value.exit_code == 7
    compare_results(str(slow), str(old), fail_below=0.75)
    for unsure in (few, noisy):  # what cannot be told never passes
        with pytest.raises(SifmarkError, match="cannot tell") as unclear:
            compare_results(str(unsure), str(old), fail_below=0.95)
        assert unclear.value.exit_code == 8
    output = capsys.readouterr().out
    assert "cannot tell: 2 and 3 repeats where 3 are needed" in output


def test_results_that_were_not_steady_are_compared_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drifted = result(steadiness__steady=False)
    unknown = result(steadiness__steady=None, steadiness__reason="4 timed steps where 40 are needed")
    compare_results(str(write(tmp_path / "some", [drifted, unknown, result()])))
    note = "not steady within the timed window in 1 result, for example"
    assert f"{note} {tmp_path / 'some' / drifted['id']}.json" in capsys.readouterr().out
    compare_results(str(write(tmp_path / "none", [unknown, result()])))
    assert "not steady" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("batchsize", "batch_size"),
        ("configuration.presicion", "precision"),
        ("xyzzy", "host.hostname"),
    ],
)
def test_a_mistyped_field_gets_the_nearest_one(tmp_path: Path, name: str, nearest: str) -> None:
    with pytest.raises(UsageError) as error:
        compare_results(str(write(tmp_path / "some", [result()])), by=name)
    assert error.value.code == "unknown-name"
    assert error.value.remedy.endswith(nearest)


def test_a_row_of_several_hosts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [result(host__hostname={"value": name}) for name in ("node01", "node02", "node01")]
    compare_results(str(write(tmp_path / "some", results)))
    assert "repeats of 2 hosts are in one row: --by host.hostname " in capsys.readouterr().out
    compare_results(str(tmp_path / "some"), by="host.hostname.value")
    assert "are in one row" not in capsys.readouterr().out


def test_a_baseline_without_counterpart_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old", [result(), result(configuration__batch_size=7)])
    compare_results(str(write(tmp_path / "new", [result()])), baseline=str(old))
    assert "no ratio: 1 baseline has no counterpart with the same configuration" in capsys.readouterr().out


def test_results_of_a_busy_host_are_compared_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet: dict[str, Any] = {
        "host__threads": {"value": 8192, "unit": "threads"},
        "host__threads_usable": {"value": 8192, "unit": "threads"},
        "conditions_after__cpu_stolen": {"value": 0, "unit": "s"},
    }
    busy = result(**quiet, conditions_after__run_delay={"value": 40.0, "unit": "%"})
    calm = result(**quiet, conditions_after__run_delay={"value": 0.3, "unit": "%"})
    compare_results(str(write(tmp_path / "some", [busy, calm])))
    output = " ".join(capsys.readouterr().out.split())
    share = "(threads waited 40.0 % of their time)"
    file = tmp_path / "some" / f"{busy['id']}.json"
    assert f"warning: the host was busy in 1 result {share}, for example {file}" in output
    compare_results(str(write(tmp_path / "none", [calm])))
    assert "busy" not in capsys.readouterr().out


@pytest.mark.parametrize(("share", "named"), [(0.1, False), (0.11, True)])
def test_results_of_a_run_that_was_stopped_are_named_as_such(share: float, named: bool) -> None:
    stalled = result(steadiness__outliers={"count": 3, "share_of_steps": 0.01, "share_of_time": share})
    text = as_text(ask([stalled, result()]))
    note = f"something stopped the run for over 10% of the timed window in 1 result, for example {stalled['id']}.json"
    assert (f"warning: {note}. Do not publish these numbers" in text) is named
    assert "busy" not in text


def test_results_of_a_throttled_device_are_compared_and_named() -> None:
    hot, capped = (documents.under_load(kind, kind, 0.5) for kind in ("heat", "power"))
    text = as_text(ask([hot, capped]))
    note = "heat or hardware held the clocks of a device down in 1 result, for example"
    assert f"warning: {note} {hot['id']}.json. Do not publish these numbers" in text


@pytest.mark.parametrize("unfit", [{"status__state": "crashed"}, {"configuration__smoke": True}])
def test_an_unfit_result_passes_no_gate(
    tmp_path: Path, unfit: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    old, good, bad = write(tmp_path / "old", repeats(100)), repeats(100), result(100, **unfit)
    new = write(tmp_path / "new", [*good, bad])
    compare_results(str(new), str(old))
    (field,) = (name.replace("__", ".").removeprefix("configuration.") for name in unfit)
    stderr = " ".join(capsys.readouterr().err.split())
    assert f"excluded: {new / bad['id']}.json: {field} {str(*unfit.values()).lower()}: " in stderr
    with pytest.raises(SifmarkError, match="cannot tell of 1 excluded result") as caught:
        compare_results(str(new), str(old), fail_below=0.9)
    assert caught.value.exit_code == 8
    (new / f"{bad['id']}.json").rename(old / "bad.json")  # among the baselines it is not judged
    compare_results(str(new), str(old), fail_below=0.9)
    by_site = write(tmp_path / "both", [*repeats(100, site="a"), *repeats(100, site="b"), result(site="b", **unfit)])
    compare_results(str(by_site), baseline="site=b", fail_below=0.9)
    with pytest.raises(SifmarkError, match="cannot tell of 1 excluded result"):
        compare_results(str(by_site), baseline="site=a", fail_below=0.9)


def test_where_only_unfit_results_are_left_nothing_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfit = write(tmp_path / "unfit", [result(configuration__smoke=True) for _ in range(25)])
    good = write(tmp_path / "good", repeats(100))
    for question in ({"path": str(unfit)}, {"path": str(unfit), "against": str(good)},
                     {"path": str(good), "against": str(unfit)}):  # fmt: skip
        capsys.readouterr()
        with pytest.raises(SifmarkError, match="nothing is left to compare") as caught:
            compare_results(**question)
        assert caught.value.exit_code == 1
        stderr = " ".join(capsys.readouterr().err.split())
        assert stderr.count("a smoke run only shows that it works") == 20
        assert "excluded: 5 more" in stderr
        assert "25 results are excluded (smoke: 25)" in stderr
    compare_results(str(unfit), allow=["configuration.smoke"])
    output = capsys.readouterr()
    assert "ALLOWED although not comparable: smoke (true: 25)" in output.out
    assert output.err == ""


def test_a_gate_does_not_rest_on_results_that_were_not_steady(tmp_path: Path) -> None:
    old = str(write(tmp_path / "old", repeats(100)))
    drifted = str(write(tmp_path / "new", repeats(80, steadiness__steady=False)))
    with refused(SifmarkError, "gate-undecided", "not steady"):
        compare_results(drifted, old, fail_below=0.9)
    with refused(GateError, "gate-failed"):
        compare_results(drifted, old, fail_below=0.9, allow=["unsteady"])
    with refused(SifmarkError, "gate-undecided", "not steady"):  # on the other side as well
        compare_results(old, drifted, fail_below=0.9)


def test_a_gate_over_nothing_does_not_pass(tmp_path: Path) -> None:
    old = write(tmp_path / "old", repeats(100, workload__identity=OTHER))
    with pytest.raises(SifmarkError, match="cannot tell"):
        compare_results(str(write(tmp_path / "new", repeats(100))), str(old), fail_below=0.5)


def test_refusals_end_in_an_error_and_allowing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, [result(), result(provenance__stand_in=True)])
    with pytest.raises(SifmarkError, match=r"refused to compare what differs in provenance\.stand_in") as caught:
        compare_results(str(folder))
    assert caught.value.exit_code == 1
    assert "a test base says nothing" in capsys.readouterr().err
    compare_results(str(folder), allow=["provenance.stand_in"])
    assert "ALLOWED although not comparable: provenance.stand_in (false: 1, true: 1)" in capsys.readouterr().out


def test_what_is_not_valid_is_told_and_the_others_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (write(tmp_path, repeats(100)) / "bad.json").write_text('{"schema_version": "9.0"}')
    with pytest.raises(SifmarkError, match="1 document is not valid"):
        compare_results(str(tmp_path))
    output = capsys.readouterr()
    assert "100.0 ± 0.2 %" in output.out
    assert "bad.json: schema_version: '9.0' is of a newer sifmark" in " ".join(output.err.split())


def test_a_copy_is_no_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = result()
    write(tmp_path, [document])
    (tmp_path / "copies.jsonl").write_text("\n".join([json.dumps(documents.settled(document))] * 5))
    compare_results(str(tmp_path), form="json")
    output = capsys.readouterr()
    assert json.loads(output.out)["tables"][0]["rows"][0]["metrics"]["throughput"]["repeats"] == 1
    assert "5 results are copies of others" in output.err


def test_a_run_under_other_ids_is_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, repeat = documents.settled(result()), documents.settled(result(101))
    copies = [{**run, "id": str(uuid.uuid4())} for _ in range(3)]
    for number, document in enumerate((run, *copies, repeat)):
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    compare_results(str(tmp_path), form="json")
    output = capsys.readouterr()
    assert json.loads(output.out)["tables"][0]["rows"][0]["metrics"]["throughput"]["repeats"] == 2
    assert "3 results are copies of others" in output.err


def test_what_no_two_runs_have_in_common() -> None:
    run = documents.settled(result())
    run["steps"]["quantiles"]["p0"] /= 2
    moved = {**run, "id": "x", "started": "1999-01-01T00:00:00Z"}
    assert set(run_keys(run)) & set(run_keys(moved)), "its steps take as long, to the nanosecond"
    moved["steps"] = {**run["steps"], "quantiles": {**run["steps"]["quantiles"], "p1": 0.5}}
    assert not set(run_keys(run)) & set(run_keys(moved))
    even = documents.settled(result())
    other = {**even, "id": "x", "started": "1999-01-01T00:00:00Z"}
    assert not set(run_keys(even)) & set(run_keys(other)), "steps that are all equally long say nothing"


def test_no_text_of_a_result_is_html_a_link_or_a_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ("<img src=x onerror=alert(1)>", "![x](https://evil.example)", "=HYPERLINK(1)", "@SUM(1)", "+1", "-1+2")
    folder = str(write(tmp_path, [result(100 + number, site=text) for number, text in enumerate(texts)]))
    compare_results(folder, metrics="throughput", form="markdown")
    markdown = capsys.readouterr().out
    assert "onerror" in markdown and "evil" in markdown
    assert "<img" not in markdown and "](" not in markdown
    compare_results(folder, metrics="throughput", form="csv")
    cells = [cell for row in csv.reader(io.StringIO(capsys.readouterr().out)) for cell in row]
    assert {f"'{text}" for text in texts[2:]} <= set(cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


HOSTILE = "<img src=x onerror=alert(1)> [a](https://evil.example) [b]: https://evil.example \\[c](d) `&lt;`"


@pytest.mark.parametrize("details", [False, True])
def test_no_text_around_a_table_is_html_a_link_or_code(details: bool) -> None:
    """The title of an unknown workload, why a number is missing, the name of a file, and what is allowed to differ."""
    missing = {"value": None, "unit": "J", "reason": HOSTILE}
    results = [
        result(site=HOSTILE, workload__title=f"```{HOSTILE}", metrics__energy=missing, provenance__stand_in=stand_in)
        for stand_in in (True, False)
    ]
    named = [
        replace(observed(each, "results"), file=HOSTILE, marks=frozenset({"unsteady", "stopped"})) for each in results
    ]
    query = Query(("energy",), allowed=frozenset({"provenance.stand_in"}))
    markdown = as_markdown(compare_observations(named, query), details=details)
    around = [line for line in markdown.splitlines() if not line.startswith("|")]
    assert sum("evil" in line for line in around) == 5 + details, "title, note, two files, an example; a site"
    assert around[0].startswith("\\`\\`\\`&lt;img") and "&amp;lt;" in around[0]
    for line in around:
        assert "<" not in line
        assert not re.search(r"(?<!\\)(\\\\)*[\[`]", line), "each is escaped"


def answers(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    unknown = {"value": None, "unit": "MiB", "reason": "nobody asked"}
    new = [*repeats(110, site="a|b"), result(110, site="a|b", metrics__peak_process_memory=unknown)]
    compare_results(str(write(tmp_path / "new", new)), str(write(tmp_path / "old", repeats(100))), form=form)
    return capsys.readouterr().out


def test_tables_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = answers(tmp_path, "table", capsys)
    assert "(3 of 4) n=3" in text and re.search(r"100\.0 ± 0\.2 % +n=3", text)
    assert re.search(r"x faster (± |\[)", text)
    assert "peak_process_memory: nobody measured it" in text
    markdown = answers(tmp_path, "markdown", capsys)
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert len(rows) == 2 + 3 and "a\\|b" in markdown


def test_tables_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(answers(tmp_path, "json", capsys))
    (table,) = document["tables"]
    (new,) = [line for line in table["rows"] if line["side"] == "results"]
    metric = new["metrics"]["throughput"]
    assert (metric["repeats"], metric["unit"], metric["verdict"]) == (4, "images/s", "more")
    assert metric["ratio"] == pytest.approx(1.1)
    assert metric["ratio_low"] < 1.1 < metric["ratio_high"]
    rows = list(csv.DictReader(io.StringIO(answers(tmp_path, "csv", capsys))))
    (row,) = [row for row in rows if row["side"] == "results" and row["metric"] == "throughput"]
    assert float(row["ratio"]) == pytest.approx(metric["ratio"])
    (base,) = [row for row in rows if row["side"] == "against" and row["metric"] == "throughput"]
    assert base["ratio"] == ""


def test_programs_are_told_of_scaling_and_of_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drifted = scaled(150, 2, 8)
    drifted["steadiness"]["steady"] = False
    folder = str(write(tmp_path, [scaled(100, 1, 8), drifted]))
    compare_results(folder, metrics="throughput", form="json")
    first, second = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert (first["unsteady"], first["scaling"], first["efficiency"]) == (0, None, None)
    assert second["unsteady"] == 1
    scaling = [second[name] for name in ("scaling", "fewest_devices", "efficiency")]
    assert scaling == ["strong", 1, pytest.approx(0.75)]
    (record,) = second["scalings"]
    assert (record["kind"], record["reference"], record["reference_devices"]) == ("strong", first["results"], 1)
    assert record["speedup"] == pytest.approx(1.5) and "scalings" not in first
    compare_results(folder, metrics="throughput", form="csv")
    first_row, second_row = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first_row["unsteady"], first_row["scaling"], first_row["efficiency"]) == ("0", "", "")
    assert (second_row["unsteady"], second_row["scaling"]) == ("1", "strong")
    assert float(second_row["efficiency"]) == pytest.approx(0.75)
    assert [first_row["strong_speedup"], second_row["strong_reference"]] == ["", *first["results"]]
    assert float(second_row["strong_speedup"]) == pytest.approx(1.5)
    assert second_row["efficiency_reason"] == second["efficiency_reason"] == "1 and 1 repeats where 3 are needed"


def test_columns_stand_in_the_order_of_the_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = result()
    compare_results(str(write(tmp_path, [document])), metrics="throughput", form="csv")
    columns = capsys.readouterr().out.splitlines()[0].split(",")
    names = [name for name in columns if name.startswith("configuration.") and name != "configuration.evaluated"]
    assert names == [f"configuration.{name}" for name in document["configuration"] if f"configuration.{name}" in names]


def test_a_gate_over_documents_that_are_all_invalid_says_so(tmp_path: Path) -> None:
    for side in ("new", "old"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "x.json").write_text("{}")
    with pytest.raises(SifmarkError, match="2 documents are not valid"):
        compare_results(str(tmp_path / "new"), str(tmp_path / "old"), metrics="all", fail_below=0.9)


def test_no_format_passes_on_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No valid result has any; the messages about those that are not valid have none either."""
    folder = str(write(tmp_path, [result(site="a\x1b[31mred"), result(site="b")]))
    for form in ("table", "markdown", "csv", "json"):
        with pytest.raises(SifmarkError, match="1 document is not valid"):
            compare_results(folder, metrics="throughput", form=form)
        assert "\x1b" not in "".join(capsys.readouterr())


def test_programs_are_told_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = result(status__state="crashed", configuration__smoke=True)
    compare_results(str(write(tmp_path, [result(), bad])), form="json", allow=["configuration.smoke"])
    (out,) = json.loads(capsys.readouterr().out)["excluded"]
    assert (out["id"], out["file"], out["side"]) == (bad["id"], str(tmp_path / f"{bad['id']}.json"), "results")
    assert out["fields"]["status.state"]["value"] == "crashed"
    assert list(out["fields"]) == ["status.state"]


def test_what_everybody_expects_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_results(str(write(tmp_path / "all", [result()])))
    assert capsys.readouterr().out.startswith("a: training, fp32, synthetic data\n\n")
    configure(verbose=True)
    compare_results(str(tmp_path / "all"))
    common = capsys.readouterr().out.splitlines()[1]
    assert "precision fp32" in common
    for word in ("status.state", "numerics.state", "schema_version", "smoke", "stand_in", "replicas"):
        assert word not in common
    folder = write(tmp_path / "odd", [result(provenance__stand_in=True)])
    compare_results(str(folder))
    assert "stand_in true" in capsys.readouterr().out.splitlines()[1]
    configure()


def test_every_number_of_a_result_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, [result(data__source="folder")])
    compare_results(str(folder), metrics="phases.compile,epochs.1,final_loss")
    assert "phases.compile [ms]  epochs.1 [s]" in capsys.readouterr().out
    compare_results(str(folder), metrics="all", form="json")
    metrics = json.loads(capsys.readouterr().out)["tables"][0]["rows"][0]["metrics"]
    assert {"throughput", "phases.steady", "epochs.1"} <= set(metrics)
    with pytest.raises(UsageError, match="no metric 'throughputs'"):
        compare_results(str(folder), metrics="throughputs")


def test_compile_times_of_cold_and_warm_caches_are_kept_apart() -> None:
    counts = {"graphs": 1, "graph_breaks": 0, "recompilations": 0, "cuda_graphs": None, "cuda_graphs_skipped": None}
    results = [
        result(
            configuration__compile="default",
            accelerator__compilation={**counts, "cache": cache},
            phases__compile={"seconds": seconds},
            metrics__time_to_first_step={"value": seconds + 1, "unit": "s"},
        )
        for cache, seconds in (("cold", 40.0), ("warm", 4.0), ("warm", 6.0))
    ]
    names = ("throughput", "phases.compile", "phases.compile.warm", "time_to_first_step", "time_to_first_step.warm")
    (line,) = lines(ask(results, metrics=names))
    assert [line.values(name) for name in names[1:]] == [[40.0], [4.0, 6.0], [41.0], [5.0, 7.0]]
    assert len(line.values("throughput")) == 3, "they are repeats all the same"
    assert "see phases.compile.warm" in (line.missing_reason("phases.compile") or "")


def test_eager_results_of_earlier_builds_are_repeats_of_those_of_today() -> None:
    (line,) = lines(ask([result(configuration__compile=value) for value in (None, False)]))
    assert len(line.observations) == 2


def test_latency_by_concurrency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latencies = {1: 0.011, 4: 0.044}
    results = [
        result(
            count / seconds,
            workload__task="inference",
            configuration__batch_size=1,
            configuration__concurrency=count,
            metrics__latency_p99={"value": seconds, "unit": "s"},
        )
        for count, seconds in latencies.items()
    ]
    compare_results(str(write(tmp_path, results)), metrics="latency_p99,throughput", form="csv")
    rows = [row for row in csv.DictReader(io.StringIO(capsys.readouterr().out)) if row["metric"] == "latency_p99"]
    assert {int(row["concurrency"]): float(row["value"]) for row in rows} == latencies
    assert {row["unit"] for row in rows} == {"s"}


def test_numbers_beyond_measure_are_missing() -> None:
    """No valid result has such numbers, but a ratio of valid ones may be one."""
    (line,) = lines(ask([result(value) for value in (1e308, 1e308, 1e308, 1e-300)]))
    assert "beyond any measurement" in (line.missing_reason("throughput") or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": ["stand_in"]}, "no field 'stand_in'"),
        ({"baseline": "accelerator.name"}, "is neither FIELD=VALUE nor a path with results"),
        ({"baseline": "site="}, "is neither FIELD=VALUE nor a path with results"),
        ({"fail_below": 0.9}, "a gate needs a baseline"),
        ({"fail_above": 1.1}, "a gate needs a baseline"),
        ({"fail_below": 0.9, "fail_above": 1.1}, "one limit"),
        ({"fail_below": float("nan"), "baseline": "accelerator.kind=a"}, "a number above 0, not nan"),
        ({"fail_below": 1, "baseline": "accelerator.kind=a", "metrics": "latency_p99"}, "less of it is better"),
        ({"fail_below": 1, "baseline": "accelerator.kind=a", "metrics": "energy_per_unit"}, "less of it is better"),
        ({"fail_above": 1, "baseline": "accelerator.kind=a"}, "more of it is better"),
        ({"baseline": "accelerator.kind=xpu"}, "no result has accelerator.kind=xpu.*existing values: "),
        ({"baseline": "accelerator.kid=cpu"}, "no result has the field 'accelerator.kid'"),
        ({"by": "host.hostnam.value"}, "no result has the field 'host.hostnam.value'"),
        ({"metrics": ","}, "list of metrics is empty"),
    ],
)
def test_wrong_usage(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    costs = {"metrics__latency_p99": ("s", 1.0), "metrics__energy_per_unit": ("J/images", 2.0)}
    metrics: dict[str, Any] = {name: {"value": value, "unit": unit} for name, (unit, value) in costs.items()}
    write(tmp_path, [result(**metrics)])
    with pytest.raises(UsageError) as caught:
        compare_results(str(tmp_path), **options)
    assert re.search(message, str(caught.value), re.DOTALL)


def test_the_verb_as_it_is_typed(tmp_path: Path) -> None:
    mixed = [*repeats(100), result(provenance__stand_in=True, provenance__simulated=True)]
    folder, old = write(tmp_path / "new", mixed), write(tmp_path / "old", repeats(200))

    def typed(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "invoke", "--search-root", str(paths.ROOT), "compare", str(folder), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert typed() == (1, "")
    allow = ("--allow", "provenance.stand_in", "--allow", "provenance.simulated")
    code, output = typed(*allow, "--format", "csv", "--metrics", "throughput", "--by", "host.hostname.value")
    assert (code, len(output.splitlines())) == (0, 3)
    assert typed(*allow, "--baseline", str(old), "--fail-below", "0.9")[0] == 7
    assert typed("--format", "xml")[0] == 2


def test_what_else_differs_from_a_baseline_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        result(site=site, configuration__precision=precision, configuration__threads=threads)
        for site, precision, threads in (("alpha", "fp32", 1), ("beta", "bf16", 2))
        for _ in range(3)
    ]
    folder = str(write(tmp_path / "some", results))
    compare_results(folder, baseline="site=alpha", allow=("precision",))
    assert "the columns differ in precision fp32 / bf16, threads 1 / 2\n" in capsys.readouterr().out


def test_the_overview_has_no_ratio_across_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        result(site=site, workload__identity=f"sha256:{identity * 64}", configuration__precision=precision)
        for identity, theirs in (("a", "fp32"), ("b", "bf16"))
        for site, precision in (("alpha", "fp32"), ("beta", theirs))
        for _ in range(3)
    ]
    compare_results(str(write(tmp_path / "some", results)), baseline="site=alpha")
    same, other = capsys.readouterr().out.splitlines()[1:3]
    assert "no difference shown" in same
    assert other.endswith("-")
