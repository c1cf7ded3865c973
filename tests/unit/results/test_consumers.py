"""Results in the formats of other programs, as these programs read them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import documentation
import documents
import pytest
from jsonschema import Draft7Validator
from junitparser import JUnitXml
from mlperf_logging.compliance_checker.mlp_parser.ruleset_600 import parse_generator
from mlperf_logging.mllog import constants
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as prometheus_families
from unit.refusals import refused
from unit.studies.histories import DRIVER, FIRST, HOST, IMAGE, key, nights, write_nights, write_run

import sifmark
from sifmark.commands import results as command
from sifmark.commands.results import export_results
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.catalogue import metrics
from sifmark.results.consumers import CONSUMERS
from sifmark.results.load import LoadedResult, load_all

H200 = Path(__file__).parents[2] / "fixtures" / "h200"
WATCH = paths.CHECKOUT / "docs" / "results" / "watch.md"
DASHBOARD = WATCH.with_name("grafana.json")
# https://bencher.dev/docs/reference/bencher-metric-format
BENCHER = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".{1,64}": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                }
            },
        }
    },
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three repeats of a configuration, one of another that ran out of memory, and one of a site to be quoted."""
    write_nights(tmp_path / "results", nights(1, 3), site="alpha")
    write_run(tmp_path / "results", FIRST, 50, site='a "b"\\c', configuration__batch_size=4)
    example = json.loads((documents.EXAMPLES / "out_of_memory.json").read_text())
    (tmp_path / "results" / "failed.json").write_text(json.dumps(example))
    return tmp_path / "results"


def written(form: str, *folders: Path) -> str:
    return CONSUMERS[form].write(load_all(map(str, folders)))


def samples(text: str) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """Samples by name, as both parsers of Prometheus read them."""
    read = []
    for parse in (openmetrics_families, prometheus_families):
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for family in parse(text):
            assert family.type == "gauge" and family.documentation
            for sample in family.samples:
                assert sample.timestamp is None  # which node_exporter refuses
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        read.append(found)
    assert read[0] == read[1]
    return read[0]


def test_prometheus_reads_every_metric_with_its_interval(results: Path) -> None:
    found = samples(written("openmetrics", results))
    (alpha,) = [each for each in found["sifmark_throughput"] if each[0].get("site") == "alpha"]
    assert min(nights(1, 3)) < alpha[1] < max(nights(1, 3)) and alpha[0]["unit"] == "images/s"
    ends = [found[f"sifmark_throughput_{end}"][0][1] for end in ("low", "high")]
    assert ends[0] < alpha[1] < ends[1]
    assert {labels["site"] for labels, _ in found["sifmark_throughput"]} == {"alpha", 'a "b"\\c'}
    assert {name.removeprefix("sifmark_") for name in found} >= {
        name
        for each in sifmark.load(results)
        if each.completed
        for name in metrics()
        if name in each.metrics and each.metrics[name].value is not None
    }
    outcomes = sorted((labels["outcome"], value) for labels, value in found["sifmark_runs"])
    assert outcomes == [("completed", 1.0), ("completed", 3.0), ("out_of_memory", 1.0)]


def test_a_series_has_its_identity_once_and_keeps_it_when_the_machine_is_changed(tmp_path: Path) -> None:
    hosts: dict[str, Any] = {HOST: ["n1", "n2"]}
    changed: dict[str, Any] = {IMAGE: [key(1), key(2), key(2)], DRIVER: ["1", "1", "2"]}
    write_nights(tmp_path / "one", nights(1, 3), **changed)
    write_nights(tmp_path / "hosts", nights(1, 2), **hosts)
    write_nights(tmp_path / "settings", nights(1, 2), configuration__threads=[1, 2])
    counts = {}
    for folder in ("one", "hosts", "settings"):
        found = samples(written("openmetrics", tmp_path / folder))
        counts[folder] = len(found["sifmark_throughput"])
        every = [labels["configuration"] for labels, _ in found["sifmark_configuration_info"]]
        assert len(set(every)) == len(every) == counts[folder]
    assert counts == {"one": 1, "hosts": 2, "settings": 2}


def test_the_dashboard_asks_for_what_the_export_has(results: Path) -> None:
    energy: dict[str, Any] = {"metrics__energy_per_unit": {"value": 2.0, "unit": "J/image"}}
    write_nights(results, nights(2, 3), site="beta", **energy)
    found = samples(written("openmetrics", results))
    board = json.loads(DASHBOARD.read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    asked = [(target["expr"], target["legendFormat"]) for target in targets]
    asked += [(each["definition"], "") for each in board["templating"]["list"] if "definition" in each]
    assert len(asked) > 8
    for expression, legend in asked:
        names = set(re.findall(r"\bsifmark_\w+", expression))
        assert names and names <= set(found), expression
        labels = {name for family in names for each, _ in found[family] for name in each}
        grouped = {name for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in group.split(", ")}
        chosen = re.findall(r"(\w+)(?:=~|!=|=)\"", expression) + re.findall(r"label_values\(\w+, (\w+)\)", expression)
        shown = set(re.findall(r"{{(\w+)}}", legend))
        assert {*chosen, *grouped, *shown} <= labels, expression
        assert not grouped or shown <= grouped, f"{legend}: what is not kept has no value"


def test_the_alerts_of_the_page_ask_for_what_the_export_has(results: Path) -> None:
    found = samples(written("openmetrics", results))
    (rules,) = [block.lines for block in documentation.blocks(WATCH) if "groups:" in block.lines]
    named = re.findall(r"\bsifmark_\w+", "\n".join(line for line in rules if "expr:" in line))
    assert len(named) > 1 and set(named) <= set(found)


def test_bencher_takes_value_and_interval(results: Path) -> None:
    document = json.loads(written("bencher", results))
    Draft7Validator(BENCHER).validate(document)
    (alpha,) = [each for name, each in document.items() if name.startswith("alpha / ")]
    assert alpha["throughput"]["lower_value"] < alpha["throughput"]["value"] < alpha["throughput"]["upper_value"]
    assert len(document) == 2 and max(map(len, document)) <= 1024


def test_the_action_gets_each_direction_by_itself(results: Path) -> None:
    bigger, smaller = (json.loads(written(f"custom{word}IsBetter", results)) for word in ("Bigger", "Smaller"))
    for entries in (bigger, smaller):
        assert len({each["name"] for each in entries}) == len(entries)
        for each in entries:
            assert type(each["value"]) in (int, float) and all(
                type(each[name]) is str for name in ("name", "unit", "extra")
            )
    names = [{each["name"].rpartition(" ")[2] for each in entries} for entries in (bigger, smaller)]
    assert "throughput" in names[0] and "step_time_p50" in names[1] and not names[0] & names[1]
    # As the action takes a range apart.
    (ranged,) = [each for each in bigger if each["name"].startswith("alpha") and each["name"].endswith("] throughput")]
    match = re.search(r"(\+-|±)\s*(\d.*)", ranged["range"])
    assert match and 0 < float(match[2]) < ranged["value"]


def test_a_run_that_is_no_measurement_fails_in_junit(results: Path, tmp_path: Path) -> None:
    export_results([str(results)], str(tmp_path / "report.xml"))
    report = JUnitXml.fromfile(str(tmp_path / "report.xml"))
    suites = list(report)
    assert sorted((suite.tests, suite.failures) for suite in suites) == [(1, 0), (1, 1), (3, 0)]
    (failed,) = [case.result[0].message for suite in suites for case in suite if case.result]
    assert failed.startswith("out_of_memory: ")


def test_mlperf_reads_each_line_and_the_time_that_was_measured() -> None:
    target = {"metric": "accuracy", "value": 0.5, "reached": True}
    evaluation = {"seconds": 1.0, "samples": 8, "loss": 1.0, "exact_match": None, "f1": None}
    evaluations = [{**evaluation, "steps": n, "training_seconds": 2.0 * n, "accuracy": 0.3 * n} for n in (1, 2)]
    document = json.loads(documents.TRAINING.read_text())
    document["target"] = {**target, "evaluations": evaluations}
    document["metrics"]["time_to_target"] = {"value": 4.0, "unit": "s"}
    text = CONSUMERS["mllog"].write([LoadedResult("here", document)])
    lines, failed = parse_generator(text.splitlines())
    assert not failed and [line.timestamp for line in lines] == sorted(line.timestamp for line in lines)
    known = {value for value in vars(constants).values() if isinstance(value, str)} | {"tracked_stats"}
    by_key = {line.key: line for line in lines}
    assert set(by_key) <= known and text.count("\n") == len(lines)
    assert by_key["run_stop"].timestamp - by_key["run_start"].timestamp == 4000
    assert by_key["run_stop"].value["metadata"]["status"] == constants.SUCCESS
    accuracies = [line.value["value"] for line in lines if line.key == constants.EVAL_ACCURACY]
    assert accuracies == [0.3, 0.6]
    assert by_key["global_batch_size"].value["value"] == document["configuration"]["batch_size"]


def test_mlperf_is_told_of_runs_that_failed() -> None:
    lines, _ = parse_generator(written("mllog", documents.EXAMPLES / "out_of_memory.json").splitlines())
    assert [line.value["metadata"]["status"] for line in lines if line.key == "run_stop"] == ["aborted"]


@pytest.mark.parametrize("form", CONSUMERS)
def test_real_results_export_in_every_format(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    export_results([str(H200)], str(target), form)
    sifmark.load(H200).export(tmp_path / "library", form=form)
    export_results([str(H200)], "", form)
    shown = capsys.readouterr().out.partition("\n")[2]  # after the line about the file
    assert target.read_text() == (tmp_path / "library").read_text() == shown


def test_the_command_offers_every_format() -> None:
    assert tuple(CONSUMERS) == command._CONSUMERS


def test_what_cannot_be_exported_is_refused_and_an_earlier_file_stays(results: Path, tmp_path: Path) -> None:
    with refused(UsageError, "invalid-option"):
        export_results([str(results)], str(tmp_path / "sifmark.prom"), table="points")
    with refused(UsageError, "invalid-option"):
        export_results([str(results)], str(results / "bencher.json"), "bencher")
    (tmp_path / "sifmark.prom").write_text("earlier")
    (tmp_path / "broken.json").write_text("{")
    with refused(SifmarkError, "result-invalid"):
        export_results([str(tmp_path / "broken.json")], str(tmp_path / "sifmark.prom"))
    assert (tmp_path / "sifmark.prom").read_text() == "earlier"
