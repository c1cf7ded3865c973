"""The published figures nearest to a result: which there are, in which order, and which are divided."""

import copy
import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from unit.refusals import refused
from unit.studies.test_published_comparison import Result, repeats, result, written

from sifmark.commands.command_line import main
from sifmark.commands.published import list_nearest
from sifmark.commands.results import show_results
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.report.load import load_report_results
from sifmark.report.markdown import report_text
from sifmark.report.report import make_report
from sifmark.results.documents import metrics_of
from sifmark.studies.published.comparison import compare_with_published
from sifmark.studies.published.load import load_all_published
from sifmark.studies.published.matching import BATCHES, MARKED
from sifmark.studies.published.nearest import Nearest, NearFigure, nearest_figures, nearest_lines

STUDIES = load_all_published()
H200 = Path(__file__).parents[2] / "fixtures" / "h200"
EXAMPLES = paths.SCHEMAS / "examples" / "result-1.2"
DEVICES = {"GC200": "package", "NVIDIA H200": "package", "NVIDIA A100-SXM4-80GB": "package", "EPYC 7742": "node"}
WORKLOADS = ("resnet50", "bert_large", "gpt_117m", "resnext101_32x4d", "image_compression", "lstm")
BASES = {workload: result(1000.0, 16, workload) for workload in WORKLOADS}


def fixture(name: str) -> Result:
    document: Result = json.loads((H200 / f"{name}.json").read_text())
    return document


def nearest(*documents: Result) -> Nearest:
    return nearest_figures(documents, STUDIES)


def line(*documents: Result) -> str:
    (text,) = nearest_lines([documents])
    return text


def ratio_of(near: NearFigure) -> float | None:
    return near.row.ratio.value if near.row and near.row.ratio else None


# What a result of an H200 is told


def test_the_nearest_figure_has_its_ratio_and_what_differs() -> None:
    document = fixture("resnet50_bf16")
    first = nearest(document).figures[0]
    assert (first.figure.place, first.figure.metric, first.is_counterpart) == (
        "caraml/cv-ipu, row 5",
        "throughput",
        True,
    )
    assert ratio_of(first) == pytest.approx(document["metrics"]["throughput"]["value"] / 1887.0, rel=1e-3)
    text = line(document)
    assert text.startswith("2.487x of 1,887 images/s (throughput) on Graphcore GC200 IPU")
    assert text.endswith("differs: device NVIDIA H200 (gc200), data synthetic (real); not printed: precision")


def test_one_device_is_not_divided_by_four() -> None:
    figures = nearest(fixture("gpt_117m_bf16")).figures
    assert figures
    assert {ratio_of(near) for near in figures} == {None}
    text = line(fixture("gpt_117m_bf16"))
    assert "not divided: devices 1 (4), stages 1 (4), strategy none (pipelined); differs: device NVIDIA H200" in text
    assert text.count("devices 1 (4)") == 1
    metrics = [near.figure.metric for near in figures]
    assert metrics == sorted(metrics, key=lambda name: name != "token_throughput")  # a headline, before energy


@pytest.mark.parametrize(("name", "run"), [("lstm_fp16", "lstm training"), ("matmul_bf16", "matmul microbenchmark")])
def test_that_there_is_none_is_said(name: str, run: str) -> None:
    assert not nearest(fixture(name)).figures
    assert line(fixture(name)) == f"none: no figure of {run} is published"


def test_a_run_out_of_memory_says_why_there_is_none() -> None:
    text = line(json.loads((EXAMPLES / "out_of_memory.json").read_text()))
    assert text.startswith("none: status.state out_of_memory")


# The order


def of_v100_or_a100(device: str, batch: int, precision: str) -> Result:
    document = fixture("resnet50_bf16")
    document["accelerator"]["name"] = device
    document["configuration"] |= {"batch_size": batch, "micro_batch_size": batch, "precision": precision}
    return document


def test_what_compare_puts_beside_a_result_comes_first_with_the_same_ratio(tmp_path: Path) -> None:
    documents = repeats(1700)
    path = written(tmp_path, documents)
    compared = [
        row for study in STUDIES if not study.context for row in compare_with_published(study.name, [path]).rows
    ]
    rows = {(row.figure.place, row.figure.column): row for row in compared if row.figure.metric != "phases.compile"}
    first = nearest(*documents).figures[: len(rows)]
    assert len(rows) > 1
    assert {(near.figure.place, near.figure.column) for near in first} == set(rows)
    for near in first:
        row = rows[near.figure.place, near.figure.column]
        assert near.row is not None
        assert (near.row.ratio, near.row.measured) == (row.ratio, row.measured)


def test_of_as_many_differences_the_lighter_one_is_nearer() -> None:
    for name, device in (("NVIDIA A100-SXM4-80GB", "a100"), ("Tesla V100-SXM2-16GB", "v100_16")):
        document = of_v100_or_a100(name, 128, "fp16")
        figures = [near.figure for near in nearest(document).figures if near.figure.study == "deeplearningexamples"]
        assert figures[0].conditions["device"] == (device,)
        assert figures[0].conditions["precision"] == ("fp16",)
        assert figures[0].conditions["devices"] == (1,)


def test_one_heavy_difference_more_is_less_than_two_light_ones() -> None:
    figures = nearest(of_v100_or_a100("NVIDIA A100-SXM4-80GB", 112, "fp32")).figures
    places = [near.figure.place for near in figures if near.figure.study == "deeplearningexamples"]
    of_v100, of_a100 = (places.index(f"deeplearningexamples/resnet50-training, row {row}") for row in (7, 3))
    assert of_v100 < of_a100  # both of eight devices; that of the A100 differs in precision and batch


def test_what_compare_refuses_is_further_whatever_differs() -> None:
    figures = nearest(of_v100_or_a100("NVIDIA A100-SXM4-80GB", 256, "bf16")).figures
    assert figures[0].is_counterpart and figures[0].figure.study == "caraml"
    further = next(near for near in figures if near.figure.study == "deeplearningexamples")
    assert len(further.differs) <= len(figures[0].differs) + len(figures[0].missing)


def test_of_several_batches_the_nearest_one_by_its_ratio_is_first() -> None:
    own = copy.deepcopy(result(1700.0, 100))
    figures = [near.figure for near in nearest(own).figures if near.figure.table == "cv-ipu"]
    batches = [int(figure.conditions["batch_size"][0]) for figure in figures if figure.metric == "throughput"]
    assert batches[:3] == [128, 64, 256]
    distances = [abs(math.log(batch / 100)) for batch in batches]
    assert distances == sorted(distances)


# What is never divided

RUNS = st.tuples(
    st.sampled_from(WORKLOADS),
    st.sampled_from(("training", "inference")),
    st.sampled_from(sorted(DEVICES)),
    st.sampled_from((1, 16, 32, 256)),
    st.sampled_from(("fp16", "bf16", "fp32")),
    st.sampled_from((1, 4)),
    st.sampled_from(("images/s", "sequences/s", "tokens/s", "MiB", "s")),
    st.booleans(),
)


@settings(max_examples=examples(200), deadline=None)
@given(RUNS)
def test_no_ratio_is_of_another_workload_task_or_unit(run: tuple[Any, ...]) -> None:
    workload, task, device, batch, precision, count, unit, simulated = run
    document = copy.deepcopy(BASES[workload])
    document["workload"]["task"] = task
    document["accelerator"] |= {"name": device, "count": count, "granularity": DEVICES[device]}
    document["configuration"] |= {"batch_size": batch, "precision": precision, "micro_batch_size": batch}
    document["provenance"]["simulated"] = simulated
    document["metrics"]["throughput"]["unit"] = unit
    found = nearest(document)
    assert bool(found.none) is not bool(found.figures)
    assert [near.is_counterpart for near in found.figures] == sorted(
        (near.is_counterpart for near in found.figures), reverse=True
    )
    measured = metrics_of(document)
    for near in found.figures:
        figure = near.figure
        assert workload in figure.conditions["workload"] and task in figure.conditions["task"]
        assert figure.unit == measured[str(figure.metric)]["unit"]
        assert near.study.context is None
        assert bool(near.row) is not bool(near.obstacle)
        if near.row is None:
            continue
        assert figure.is_comparable and not simulated
        assert {each.name for each in near.differs} <= MARKED.union(BATCHES if "/" in figure.unit else ())
        if (ratio := ratio_of(near)) is not None and figure.low == figure.high and figure.low:
            assert ratio == pytest.approx(measured[str(figure.metric)]["value"] / figure.low)


def test_every_figure_of_the_workload_with_such_a_number_is_there() -> None:
    document = result(1000.0, 16)
    expected = [
        figure
        for study in STUDIES
        for figure in study.figures
        if figure.conditions.get("workload") == ("resnet50",)
        and figure.conditions.get("task") == ("training",)
        and (figure.metric, figure.unit, figure.reference, figure.state) == ("throughput", "images/s", None, None)
    ]
    found = [near.figure for near in nearest(document).figures if near.figure.metric == "throughput"]
    assert len(found) == len(expected) > 20
    assert all(figure in found for figure in expected)


def test_memory_of_another_batch_is_not_divided() -> None:
    document = result(100.0, 16, "gpt2")
    document["metrics"]["peak_allocated_memory"] = {"value": 5000.0, "unit": "MiB"}
    (near,) = (each for each in nearest(document).figures if each.figure.metric == "peak_allocated_memory")
    assert near.row is None and near.obstacle == "batch_size 16 (1)"


def test_a_smoke_run_is_not_divided() -> None:
    document = fixture("resnet50_bf16")
    document["configuration"]["smoke"] = True
    assert {ratio_of(near) for near in nearest(document).figures} == {None}
    assert "not divided: smoke true: a smoke run only shows that it works" in line(document)


def test_a_network_that_is_not_the_published_one_is_not_divided() -> None:
    (first, *_) = nearest(result(10.0, 10, "image_compression")).figures
    assert first.figure.study == "pearc22" and first.figure.not_comparable
    assert first.row is None
    assert f"not divided: {first.figure.not_comparable}" in line(result(10.0, 10, "image_compression"))


# Commands


def test_all_candidates_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(H200 / "resnet50_bf16.json")
    list_nearest([file])
    text = capsys.readouterr().out
    assert "(caraml/cv-ipu, row 5)" in text and "2.487x" in text
    assert "never divided: context/mlperf-inference-resnet50: MLPerf" in text
    list_nearest([file], "json")
    document = json.loads(capsys.readouterr().out)
    (own,) = document["results"]
    assert len(own["figures"]) == len(nearest(fixture("resnet50_bf16")).figures)
    assert own["figures"][0]["ratio"] == pytest.approx(2.487, rel=1e-3)
    assert {"table", "title", "source"} == set(document["context"][0])
    list_nearest([file], "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["ratio"] != "" for row in rows] == [each["ratio"] is not None for each in own["figures"]]


def test_results_without_a_figure_are_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    list_nearest([str(H200 / "lstm_fp16.json")])
    assert "none: no figure of lstm training is published" in capsys.readouterr().out


def test_invalid_results_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    with refused(SifmarkError, "result-invalid"):
        list_nearest([str(tmp_path)])


def shown(paths: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    show_results(paths)
    return {row[2:32].strip(): row[32:] for row in capsys.readouterr().out.splitlines()}


def test_a_result_shows_its_bounds_and_the_nearest_figure_in_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown([str(EXAMPLES / "training.json")], capsys)
    assert rows["fraction of its bound"].startswith("not known: no cited peak")
    assert rows["fraction of measured peak"].startswith("not known: no measured peak was given")
    assert "not divided: precision fp32 (fp16 or bf16), " in rows["nearest published figure"]


def test_a_terminal_has_only_figures_that_divide() -> None:
    divided, other = fixture("resnet50_bf16"), json.loads((EXAMPLES / "training.json").read_text())
    stopped = json.loads((EXAMPLES / "out_of_memory.json").read_text())
    first, second, third = nearest_lines([[divided], [other], [stopped]], brief=True)
    assert first == line(divided) and second.startswith("none to divide by") and third == ""


def test_a_fraction_of_the_bound_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = result(1700.0)
    document["metrics"]["fraction_of_bound"] = {"value": 0.25, "unit": "1"}
    from sifmark.results.summary import summary

    lines = [each for each in summary(document) if "bound" in each]
    assert [each.split() for each in lines] == [["fraction", "of", "its", "bound", "25.0", "%"]]


def test_an_own_study_that_is_not_valid_hides_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "studies" / "published").mkdir(parents=True)
    (tmp_path / "studies" / "published" / "mine.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    rows = shown([str(H200 / "resnet50_bf16.json")], capsys)
    assert rows["nearest published figure"].startswith("not known: a published study is not valid")
    with refused(UsageError, "document-invalid"):
        list_nearest([str(H200 / "resnet50_bf16.json")])
    assert main(["published.nearest", str(H200 / "resnet50_bf16.json")]) == 2


# Reports


def test_a_report_says_the_same_of_the_best_of_each_system(tmp_path: Path) -> None:
    best = repeats(1700)
    path = written(tmp_path, [*best, *repeats(900, 32)])
    report = make_report(load_report_results([path]))
    (strip,) = report.strips
    (normal,) = strip.normal
    lines = dict(normal.lines)
    assert list(lines) == ["fraction of its bound", "fraction of measured peak", "nearest published figure"]
    assert lines["nearest published figure"] == line(*best)
    assert f"nearest published figure: {lines['nearest published figure'][:20]}" in report_text(report)


def test_an_anonymous_report_has_no_figure_of_a_site_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = json.loads((paths.PUBLISHED / "pearc22.json").read_text())
    for device in own["devices"].values():
        device["title"] = "the machine of Oak Lab"
    (tmp_path / "studies" / "published").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "results", repeats(1700))
    (tmp_path / "studies" / "published" / "pearc22.json").write_text(json.dumps(own))
    assert "Oak Lab" in report_text(make_report(load_report_results([path])))
    results = load_report_results([path])
    results.anonymous = True
    assert "Oak Lab" not in report_text(make_report(results))
