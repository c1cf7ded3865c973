"""Outputs of studies filled with results of their runs: each run exactly where it belongs, and nothing else."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import documents
import pytest
from unit.fakes import sha256
from unit.report import samples

from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.recipes.names import cards
from sifmark.report.anonymous import Anonymiser
from sifmark.report.forms import MOST_SERIES
from sifmark.report.outputs.measured import MOST_BARS, Chart, FilledOutput, fill, output_charts
from sifmark.report.outputs.members import missing_runs, runs_of_results
from sifmark.report.results import ReportResult, ReportResults
from sifmark.report.svg import Mark
from sifmark.report.trust import notices_of, trust_of
from sifmark.results.catalogue import metric_of
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.observation import observe
from sifmark.results.documents import MetricValue, metrics_of
from sifmark.results.identity import key_of
from sifmark.studies.expand import expand
from sifmark.studies.feasibility import ResolvedConfig, resolve_config, target_of
from sifmark.studies.groups import axis_keys
from sifmark.studies.image_options import division_of
from sifmark.studies.load import load_study, metric_names
from sifmark.studies.study import Output, Run, Study, System

IMAGE = sha256("an image")
STUDIES = sorted(path.stem for path in paths.STUDIES.glob("*.toml"))
HERE = (System("here", "cuda"), System("there", "cuda"))
FORMATS = {"synthetic": "synthetic", "imagenet": "folder", "mnist": "idx"}
UNKNOWN = "-"


def resolved(run: Run, system: System) -> ResolvedConfig:
    return resolve_config(run.cell, division_of(run.cell, system), target_of(system.image), system.arguments)


def result_of(run: Run, system: System, number: int, metrics: Iterable[str], keyed: bool = True) -> ReportResult:
    """A result of a run, in which each metric has the number as its value."""
    workload, configuration = str(run.cell["workload"]), resolved(run, system).configuration.as_json()
    problem, document = cards()[workload]["problem"], documents.valid()
    unit = problem["unit"]
    name = key_of(IMAGE, run.system, run.nodes, run.repeat, run.arguments) if keyed else "mine"
    document["workload"] |= {"name": workload, "title": workload, "task": configuration["task"], "unit": unit}
    document["workload"]["identity"] = sha256(workload)
    document["configuration"] |= configuration
    document["accelerator"] |= {"name": system.name, "count": run.devices}
    document["provenance"]["image"] = {**document["provenance"]["image"]} | {"stand_in": None}
    document["provenance"]["image"]["file"] = {**document["provenance"]["image"]["file"], "identity": IMAGE}
    document["provenance"]["command"] = [
        *run.arguments,
        "--site",
        run.system,
        "--output",
        f"/r/{run.system}/{name}.json",
    ]
    data = Path(str(run.cell.get("data", "synthetic"))).name
    document["data"]["source"] = FORMATS.get(data, "tokens")
    document["site"], document["id"] = run.system, str(uuid.UUID(int=number, version=4))
    document["ranks"] = [{"host": f"{run.system}-{node}"} for node in range(run.nodes)] if run.nodes > 1 else []
    numbers = {
        metric: MetricValue(float(number), known.unit_of(unit), None)
        for metric in metrics
        if (known := metric_of(metric)) is not None
    }
    return ReportResult(observe(document, "results", f"{number}.json", (*FIELDS, "site"), numbers), document)


def results_of(study: Study, keyed: bool = True) -> tuple[ReportResults, Mapping[str, Run]]:
    """Results of the first repeat of every run, and the run of each by the result's ID."""
    systems = study.systems or HERE
    study_runs = {run.key(IMAGE): run for run in expand(study, systems) if run.repeat == 1}
    by_name, metrics = {system.name: system for system in systems}, {output.y for output in study.outputs}
    members = {
        each.observation.id: (each, run)
        for number, run in enumerate(study_runs.values(), 1000)
        if study.systems or not resolved(run, by_name[run.system]).problem  # a study without systems may ask for more
        for each in (result_of(run, by_name[run.system], number, metrics, keyed),)
    }
    results = ReportResults(tuple(each for each, _ in members.values()), (), (), 0, "site")
    return results, {name: run for name, (_, run) in members.items()}


@cache
def filled_study(name: str) -> tuple[Study, ReportResults, Mapping[str, Sequence[Run]]]:
    """A shipped study with results of every run, and by the ID of a result the cells that have its command."""
    study = load_study(name)
    cells = defaultdict(list)
    for run in expand(study, study.systems or HERE):
        if run.repeat == 1:
            cells[run.system, run.nodes, run.arguments].append(run)
    results, runs = results_of(study)
    return study, results, {number: cells[run.system, run.nodes, run.arguments] for number, run in runs.items()}


OUTPUTS = [(name, output.name) for name in STUDIES for output in load_study(name).outputs]


@pytest.mark.parametrize(("name", "output_name"), OUTPUTS, ids=[f"{name}/{output}" for name, output in OUTPUTS])
def test_an_output_shows_each_run_of_its_groups_where_it_belongs_and_no_other(name: str, output_name: str) -> None:
    study, results, cells = filled_study(name)
    output = next(each for each in study.outputs if each.name == output_name)
    filled = fill(results, runs_of_results(results, study), output)
    assert filled is not None
    assert {*filled.keys} >= {key for key in output.series if key not in ("batch_size", output.x)}
    wanted = {number for number, runs in cells.items() if any(run.group in output.groups for run in runs)}
    shown = [each.observation.id for point in filled.points for each in point.results]
    assert Counter(shown) == Counter(wanted)
    (chart,) = output_charts(results, replace(study, outputs=(output,)))
    assert len(chart.table.rows) == len(wanted)
    column = samples.places_of(chart.table)
    for row_of, result in rows_by_result(filled, samples.texts_of(chart.table)):
        runs = [run for run in cells[result.observation.id] if run.group in output.groups]
        for key in dict.fromkeys((output.x, *filled.keys)):
            expected = {text for run in runs for text in texts_of(run, key)}
            assert not expected or row_of[column[key.replace("_", " ")]] in expected, key
    if chart.plots and len(filled.lines) <= MOST_SERIES and len(wanted) <= MOST_BARS:
        assert len(measured_marks(chart)) == len(wanted)


def texts_of(run: Run, key: str) -> set[str]:
    """What a table may say of a key of a run; nothing if the study leaves it to the image."""
    own = {"system": run.system, "devices": run.devices, "nodes": run.nodes}
    if key == "batch_size_per_device" and (run.cell.get("scaling") == "weak" or run.devices == 1):
        return {str(run.cell["batch_size"])}
    value = own.get(key, run.cell.get(key))
    if value is None or value in ("max", "whole") or (key == "batch_size" and run.cell.get("scaling") == "weak"):
        return set()
    if key == "compile" and value is True:  # the image chooses the mode
        return set()
    if key == "strategy" and run.devices == 1:
        return {UNKNOWN}
    return {
        Path(str(value)).name
        if key == "data"
        else str(value).lower()
        if value is True or value is False
        else str(value)
    }


def rows_by_result(
    filled: FilledOutput, rows: Sequence[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], ReportResult]]:
    """The rows of a table, each with the result that it is of."""
    ordered = sorted(filled.points, key=lambda point: place_of(filled.at(point)))
    yield from ((row, point.results[0]) for row, point in zip(rows, ordered, strict=True))


def place_of(text: str) -> tuple[float, str]:
    return (float(text), "") if text.replace(".", "", 1).isdigit() else (float("inf"), text)


def measured_marks(chart: Chart) -> list[Mark]:
    """The marks of measurements: those that say their system, place and number. Crosses and diamonds are others."""
    marks = [mark for plot in chart.plots for mark in plot.marks if mark.title]
    return [mark for mark in marks if mark.look != "failed" and mark.system is not None]


RUNS = """
title = "Outputs"
[[system]]
name = "alpha"
image = "cuda"
devices = 4
nodes = 2
[[system]]
name = "beta"
image = "cuda"
devices = 4
nodes = 2
[defaults]
steps = 4
[[run]]
name = "small"
workload = "resnet50"
batch_size = [8, 16]
[[run]]
name = "large"
workload = "resnet50"
batch_size = [32, 64]
precision = ["bf16", "fp32"]
[[run]]
name = "texts"
workload = "bert_base"
systems = ["alpha"]
batch_size = 8
idle_seconds = [1, 5]
[[run]]
name = "one-node"
workload = "resnet50"
batch_size = 128
devices = 4
nodes = 1
[[run]]
name = "two-nodes"
workload = "resnet50"
batch_size = 128
devices = 4
nodes = 2
[variant.small.set]
steps = 2
"""


def study_of(folder: Path, *outputs: Output, text: str = RUNS) -> Study:
    (folder / "mine.toml").write_text(text)
    return replace(load_study(str(folder / "mine.toml")), outputs=outputs)


def table(*groups: str, x: str = "batch_size", series: tuple[str, ...] = ("system",), kind: str = "table") -> Output:
    return Output("o", "An output", kind, groups, x, "throughput", series)


def shown(results: ReportResults, study: Study) -> set[tuple[str, ...]]:
    """The rows of the only output, without what does not say which runs they are."""
    (chart,) = output_charts(results, study)
    return set(samples.texts_of(chart.table))


def places(rows: Iterable[tuple[str, ...]], count: int) -> list[tuple[str, ...]]:
    return sorted(row[:count] for row in rows)


@pytest.mark.parametrize("keyed", [True, False], ids=["in the folder of the study", "copied, without a key"])
def test_groups_that_differ_in_a_number_alone_are_apart(tmp_path: Path, keyed: bool) -> None:
    study = study_of(tmp_path, table("small"))
    results, _ = results_of(study, keyed)
    assert places(shown(results, study), 2) == [
        (batch, system) for batch in ("16", "8") for system in ("alpha", "beta")
    ]
    nodes = {
        name: output_charts(results, replace(study, outputs=(table(name),)))[0] for name in ("one-node", "two-nodes")
    }
    assert all(len(chart.table.rows) == 2 for chart in nodes.values())
    one, two = (set(samples.texts_of(nodes[name].table)) for name in ("one-node", "two-nodes"))
    assert not one & two


def test_a_group_shows_no_other_system_with_the_same_command(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("texts"))
    results, runs = results_of(study)
    moved = [with_site(each, "beta") for each in results.members if runs[each.observation.id].group == "texts"]
    assert len(moved) == 2
    assert output_charts(replace(results, members=tuple(moved)), study) == []


def with_site(result: ReportResult, site: str) -> ReportResult:
    words = [site if word == "alpha" else word for word in result.document["provenance"]["command"]]
    document = result.document | {"site": site, "provenance": result.document["provenance"] | {"command": words}}
    return ReportResult(replace(result.observation, fields=result.observation.fields | {"site": site}), document)


def test_a_command_is_of_a_run_however_it_is_written(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("small"))
    run = next(run for run in expand(study, study.systems) if run.group == "small")
    made = result_of(run, study.systems[0], 1, ["throughput"], keyed=False)
    for words, is_of_it in (
        ("--steps=4 --batch-size 8 resnet50 --repeat 3", True),
        ("resnet50 --batch-size 8", False),
        ("resnet50 --batch-size 8 --steps 4 --seed 1", False),
        ("resnet50 --batch-size 8 --steps 4 --help", False),
        ("resnet50 --batch-size 8 --steps 4 --of-an-older-image", False),
    ):
        document = made.document | {
            "provenance": made.document["provenance"] | {"command": [*words.split(), "--site", "alpha"]}
        }
        members = (ReportResult(made.observation, document),)
        found = runs_of_results(ReportResults(members, (), (), 0, "site"), study)[made.observation.id]
        assert bool(found) == is_of_it, words


def test_more_repeats_than_the_study_asks_for_and_other_images_are_of_its_runs(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("small"))
    run = next(run for run in expand(study, study.systems) if run.group == "small")
    members = tuple(result_of(replace(run, repeat=each), study.systems[0], each, ["throughput"]) for each in (1, 2, 7))
    (chart,) = output_charts(ReportResults(members, (), (), 0, "site"), study)
    assert [row[samples.places_of(chart.table)["repeats"]] for row in samples.texts_of(chart.table)] == ["3"]


def test_results_of_a_variant_are_of_the_groups_that_it_keeps(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("small"))
    variant = load_study(str(study.file), "small")
    run = next(run for run in expand(variant, variant.systems) if run.group == "small")
    results = ReportResults((result_of(run, variant.systems[0], 1, ["throughput"]),), (), (), 0, "site")
    assert places(shown(results, study), 2) == [("8", "alpha")]
    assert output_charts(results, replace(study, variant="another")) == []


def test_runs_without_a_result_are_counted_with_what_to_do(tmp_path: Path) -> None:
    study = study_of(tmp_path, text=f"repeats = 3\n{RUNS}")
    results, _ = results_of(study)
    few = replace(results, members=results.members[1:])
    planned, missing = missing_runs(few, study)
    once = len(results.members)
    assert planned == 3 * once and sum(missing.values()) == 2 * once + 1, "one of three repeats, less one"
    trust = trust_of(few, notices_of(few), None, study)
    assert trust.missing.startswith(f"Of {planned} planned runs, {sum(missing.values())} have no result (alpha ")
    assert trust.remedy.startswith(f"`sifmark study.status {study.name}` says why")
    of_variant = trust_of(few, (), None, replace(study, name=f"{study.name}-small", variant="small"))
    assert of_variant.remedy.startswith(f"`sifmark study.status {study.name} --variant small` says why")
    assert "alpha" not in trust_of(replace(few, anonymous=True), (), None, study).missing
    whole = replace(study, groups=tuple(replace(group, repeats=1) for group in study.groups))
    complete = trust_of(results, (), None, whole)
    assert (complete.missing, complete.remedy) == ("", "")


def test_rows_of_several_units_have_a_column_and_charts_a_panel_for_each(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("small", "texts"))
    results, _ = results_of(study)
    (chart,) = output_charts(results, study)
    unit = samples.places_of(chart.table)["unit"]
    assert Counter(row[unit] for row in samples.texts_of(chart.table)) == {"images/s": 4, "sequences/s": 2}
    for kind in ("line", "bar", "heat-map"):
        (chart,) = output_charts(results, replace(study, outputs=(table("small", "texts", kind=kind),)))
        assert [figure.name for figure in chart.figures] == ["study-o", "study-o-2"]
        assert len(measured_marks(chart)) == 6


def test_cells_that_no_series_names_are_apart(tmp_path: Path) -> None:
    """Compared with all results, those with another idle time would be repeats of each other."""
    study = study_of(tmp_path, table("texts", x="idle_seconds"))
    results, _ = results_of(study)
    assert places(shown(results, study), 1) == [("1",), ("5",)]
    study = replace(study, outputs=(table("large", series=("system",)),))
    (chart,) = output_charts(results, study)
    assert [column.head for column in chart.table.columns].count("variant") == 1
    assert len(set(places(samples.texts_of(chart.table), 3))) == 8


def test_failures_and_runs_without_the_metric_are_listed(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("small", kind="line"))
    results, runs = results_of(study)
    first, second, *others = [each for each in results.members if runs[each.observation.id].group == "small"]
    nothing = {"throughput": MetricValue(None, "images/s", "nothing was timed")}
    first = replace(first, observation=replace(first.observation, numbers=nothing))
    failed = second.document | {"status": {**second.document["status"], "state": "out_of_memory"}}
    fields = second.observation.fields | {"status.state": "out_of_memory"}
    second = replace(second, observation=replace(second.observation, fields=fields), document=failed)
    (chart,) = output_charts(replace(results, members=(first, second, *others)), study)
    text = [" ".join(row) for row in samples.texts_of(chart.table)]
    assert len(text) == 4
    assert sum("nothing was timed" in row for row in text) == sum("out of memory" in row for row in text) == 1
    (chart,) = output_charts(replace(results, members=(second,)), study)
    assert chart.is_table and len(chart.table.rows) == 1


@pytest.mark.parametrize(
    "kind", ["line", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("table", "bar", "heat-map"))]
)
@pytest.mark.parametrize("key", ["system", *axis_keys()])
def test_every_key_that_the_format_takes_is_an_axis_and_a_series(tmp_path: Path, key: str, kind: str) -> None:
    """A key that the runs leave to the image has its value as results have it, or a dash: no run is lost."""
    outputs = (table("small", "large", "texts", x=key, kind=kind), table("small", "large", series=(key,), kind=kind))
    study = study_of(tmp_path, *outputs)
    results, _ = small_results(tmp_path)
    along, lines = output_charts(results, study)
    assert len(along.table.rows) == 14 and len(lines.table.rows) == 12
    for chart, count in ((along, 14), (lines, 12)):
        if kind != "table":
            assert (len(measured_marks(chart)) == count) == ("which are not drawn" not in chart.table.caption)


KEPT: dict[str, tuple[ReportResults, Mapping[str, Run]]] = {}


def small_results(folder: Path) -> tuple[ReportResults, Mapping[str, Run]]:
    if not KEPT:
        KEPT["results"] = results_of(study_of(folder, table("small")))
    return KEPT["results"]


SEVENTH = slice(None, None, 7)  # what the gate draws


@pytest.mark.parametrize(
    "metric",
    [
        *metric_names()[SEVENTH],
        *(pytest.param(name, marks=pytest.mark.full) for name in metric_names() if name not in metric_names()[SEVENTH]),
        *("epochs.2", "epochs.3.throughput"),
    ],
)
def test_every_metric_that_the_format_takes_is_drawn(tmp_path: Path, metric: str) -> None:
    study = study_of(tmp_path, replace(table("small", kind="line"), y=metric))
    results, _ = results_of(study)
    (chart,) = output_charts(results, study)
    assert len(chart.table.rows) == 4 and len(measured_marks(chart)) == 4
    assert metric.partition(".")[0] == "epochs" or metric in metrics_of(documents.whole())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("x", value) for value in ("size", "step", "epoch", "phase", "percentile", "scaling")),
        *(("series", value) for value in ("size", "step", "name")),
        *(("y", value) for value in ("efficiency", "speedup", "epochs.0")),
    ],
)
def test_what_is_not_drawn_is_refused_when_the_study_is_read(tmp_path: Path, field: str, value: str) -> None:
    written = {"x": "batch_size", "y": "throughput", "series": "system"} | {field: value}
    keys = f'x = "{written["x"]}"\ny = "{written["y"]}"\nseries = ["{written["series"]}"]\n'
    text = f'{RUNS}[[output]]\nname = "o"\ntitle = "An output"\nkind = "line"\n{keys}'
    with pytest.raises(UsageError, match=repr(value)) as refusal:
        study_of(tmp_path, text=text)
    assert refusal.value.code == "study-invalid" or refusal.value.code == "unknown-name"


def test_labels_of_an_anonymous_report_do_not_hide_runs(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("small"))
    results, _ = results_of(study)
    anonymiser = Anonymiser(sites=True)
    members = []
    for each in results.members:
        document = anonymiser.document(each.document)
        fields = each.observation.fields | {"site": document["site"]}
        members.append(ReportResult(replace(each.observation, fields=fields), document, own_origin=each.origin))
    rows = shown(replace(results, members=tuple(members), anonymous=True), study)
    assert places(rows, 2) == [(batch, site) for batch in ("16", "8") for site in ("site-1", "site-2")]


@pytest.mark.parametrize("name", STUDIES)
def test_no_two_outputs_of_a_shipped_study_show_the_same(name: str) -> None:
    study, _, cells = filled_study(name)
    pictures = Counter(
        (
            *(output.x, output.y, frozenset(output.series)),
            frozenset(number for number, runs in cells.items() if any(run.group in output.groups for run in runs)),
        )
        for output in study.outputs
    )
    assert set(pictures.values()) <= {1}
