"""Published figures in reports: beside results as `compare` has them, and drawn from printed values alone."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from published_page import STUDIES, published_pictures, repeated_tables
from unit.report import samples
from unit.report.chart_results import figure_of, words
from unit.studies.test_published_comparison import repeats, written

from sifmark.commands.command_line import main
from sifmark.commands.reports import report
from sifmark.core import paths
from sifmark.core.settings import load_settings
from sifmark.report.figures import over_published
from sifmark.report.load import load_report_results
from sifmark.report.outputs.measured import output_charts
from sifmark.report.outputs.printed import draw_ratios, panels_of, pictures_of, ratio_words
from sifmark.report.palette import DIAMOND
from sifmark.report.published import row_words, short_citation, with_published
from sifmark.report.results import ReportResults
from sifmark.report.svg import LONGEST_TEXT, Bar, Dot
from sifmark.studies.load import load_study
from sifmark.studies.published.comparison import compare_with_published
from sifmark.studies.published.load import load_published, select_tables
from sifmark.studies.study import Output, Study

BATCHES = (2, 4, 8, 14, 20)
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title></svg><script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ReportResults:
    """ResNet-50 by batch size as in table 3, and in a precision in which it must not be compared."""
    documents = [each for batch in BATCHES for each in repeats(900.0 * batch**0.3, batch, **_micro(batch))]
    documents += repeats(1900.0, 8, configuration__precision="fp32", **_micro(8))
    path = written(tmp_path_factory.mktemp("results"), documents)
    return with_published(load_report_results([path]), compare_with_published("pearc22", [path]))


def _micro(batch: int) -> dict[str, Any]:
    return {"configuration__micro_batch_size": batch}


def test_marks_are_the_figures_that_compare_puts_beside_results(results: ReportResults) -> None:
    figures = {figure.conditions["micro_batch_size"][0]: figure for figure in select_tables("pearc22/3")[1][0].figures}
    assert {mark.conditions["configuration.batch_size"] for mark in results.published} == set(BATCHES)
    for mark in results.published:
        assert mark.metric == "throughput" and mark.unit == "images/s"
        assert mark.source == "Nasari et al. 2022, table 3, section 3.3.1"
        assert mark.url == load_published("pearc22").url
        assert mark.conditions["configuration.batch_size"] in figures
        assert "differs: framework a (tensorflow)" in mark.remarks


def test_what_compare_refuses_is_no_mark(results: ReportResults) -> None:
    refused = {each.observation.id for each in results.members if each.document["configuration"]["precision"] == "fp32"}
    assert refused and not any(mark.counterparts & refused for mark in results.published)
    assert not any(result.observation.id in refused for each in results.over_published for result in each.results)


def test_hollow_diamonds_have_the_printed_values(results: ReportResults) -> None:
    figure = figure_of(results, "training-fp16-throughput")
    diamonds = [mark for mark in figure.plot.marks if isinstance(mark, Dot) and mark.path == DIAMOND]
    places = sorted((mark.x, mark.y) for mark in diamonds)
    assert len(places) == len(BATCHES)
    assert places[0] == (figure.plot.across(2), figure.plot.down(786.0))


def test_ours_over_published_has_the_ratios_that_compare_prints(results: ReportResults) -> None:
    figure = over_published(results)
    assert figure is not None
    dots = [mark for mark in figure.plot.marks if isinstance(mark, Dot)]
    assert [dot.x for dot in dots] == [figure.plot.across(each.ratio.value or 0) for each in results.over_published]
    assert all(each.verdict in dot.title for each, dot in zip(results.over_published, dots, strict=True))
    assert {f"Batch size {batch}" for batch in BATCHES} <= set(words(figure))
    assert over_published(replace(results, over_published=())) is None


OUTPUTS = [(study, output) for study in map(load_study, STUDIES) for output in study.outputs]


@pytest.mark.parametrize(("study", "output"), OUTPUTS, ids=[f"{study.name}/{output.name}" for study, output in OUTPUTS])
def test_every_output_repeats_printed_numbers_or_says_why_not(study: Study, output: Output) -> None:
    if not output.published:
        assert study.limitations, "an output that repeats nothing says so in `cannot_repeat`"
        return
    published, tables = select_tables(output.published)
    for table in tables:
        assert bool(table.rows) != bool(table.no_numbers)
        assert all(figure.title.startswith(table.title) for figure in pictures_of(published, table))


@pytest.mark.parametrize("name", STUDIES)
def test_pictures_have_the_printed_numbers(name: str) -> None:
    study = load_published(name)
    for table in repeated_tables(load_study(name), study):
        for plot, panel in zip(draw_ratios(study, table), panels_of(study, table), strict=True):
            marks = [mark for mark in plot.marks if isinstance(mark, (Bar, Dot))]
            for ratio in panel.ratios:
                own = [mark for mark in marks if mark.title == ratio_words(panel, ratio)]
                ends = {mark.x2 if isinstance(mark, Bar) else mark.y for mark in own}
                end = plot.down(ratio.high) if panel.along else plot.across(ratio.high)
                assert any(each == pytest.approx(end) for each in ends), (table.name, ratio.figure.printed)


def test_a_percentage_is_drawn_as_the_ratio_that_it_stands_for() -> None:
    ((study, (table,)),) = [select_tables("turing/figure-3-batch")]
    (panel,) = panels_of(study, table)
    assert panel.along is not None and panel.begin == 64
    assert {place: ratio.high for place, ratio in panel.along} == {128: 0.85, 256: 0.78, 32: 1.31, 16: 2.37}


def test_the_pictures_in_the_documentation_are_what_the_command_draws() -> None:
    drawn = published_pictures()
    kept = set((paths.CHECKOUT / "docs" / "pictures" / "published").glob("*.svg"))
    assert set(drawn) == kept
    stale = [path.name for path, text in drawn.items() if path.read_text() != text]
    assert not stale, "ci/generate draws them"


def test_the_command_draws_tables_as_files_and_names_charts_without_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["published.show", "turing/figure-3", "--output", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    names = {Path(each["file"]).name for each in json.loads(printed.out)}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert {"turing-figure-3-speedup.svg", "turing-figure-3-batch.pdf"} <= names
    assert "turing/figure-3: the document prints this chart without its numbers" in printed.err


def test_hostile_text_of_a_published_file_does_not_break_out(tmp_path: Path) -> None:
    document = json.loads((paths.PUBLISHED / "qwant.json").read_text())
    for table in document["tables"]:
        table["title"] = table["columns"][0]["title"] = table["columns"][1]["title"] = HOSTILE + "x" * 10_000
    document["authors"] = HOSTILE
    (tmp_path / "qwant.json").write_text(json.dumps(document))
    name = str(tmp_path / "qwant.json")
    figures = [figure for table in select_tables(name)[1] for figure in pictures_of(load_published(name), table)]
    assert figures
    for figure in figures:
        root = ElementTree.fromstring(figure.plot.fixed(600))
        assert not {"script", "image", "foreignObject"} & {element.tag.removeprefix(SVG) for element in root.iter()}
        assert max(len(element.text or "") for element in root.iter(f"{SVG}text")) <= LONGEST_TEXT
        assert re.fullmatch(r"[a-z0-9-]+", figure.name)


# A study of which the results here are: table 3, with the batches of its micro-batches.
BATCHED = f"""
title = "Batches"
[[run]]
name = "batches"
workload = "resnet50"
task = "training"
precision = ["fp16", "fp32"]
batch_size = {[*BATCHES]}
micro_batch_size = "whole"
steps = 1200
warmup_steps = 100
[[output]]
name = "table-3"
title = "Batches"
kind = "table"
x = "batch_size"
y = "throughput"
published = "pearc22/3"
"""


def batched(folder: Path) -> Study:
    (folder / "batched.toml").write_text(BATCHED)
    return load_study(str(folder / "batched.toml"))


def commanded(document: dict[str, Any]) -> dict[str, Any]:
    """A result as if its study had asked for it."""
    batch, precision = (document["configuration"][name] for name in ("batch_size", "precision"))
    words = f"resnet50 --task training --precision {precision} --batch-size {batch} --micro-batch-size {batch}"
    command = [*words.split(), "--steps", "1200", "--warmup-steps", "100", "--site", document["site"]]
    return document | {"provenance": document["provenance"] | {"command": command}}


def test_outputs_of_a_study_are_filled_with_what_compare_prints(results: ReportResults, tmp_path: Path) -> None:
    study = batched(tmp_path)
    results = replace(
        results, members=tuple(replace(each, document=commanded(each.document)) for each in results.members)
    )
    kinds = ("line", "bar", "heat-map", "table")
    outputs = tuple(replace(study.outputs[0], name=kind, title=kind, kind=kind, published="") for kind in kinds)
    charts = {chart.table.title: chart for chart in output_charts(results, replace(study, outputs=outputs))}
    assert set(charts) == set(kinds)
    points = [point for section in results.sections for point in section.points("throughput")]
    means = {point.value for point in points}
    (line,), (bar,) = charts["line"].plots, charts["bar"].plots
    dots = [mark.y for mark in line.marks if isinstance(mark, Dot) and mark.system is not None]
    assert sorted(dots) == pytest.approx(sorted(map(line.down, means)))
    ends = [mark.x2 for mark in bar.marks if isinstance(mark, Bar)]
    assert sorted(ends) == pytest.approx(sorted(map(bar.across, means)))
    table = charts["table"].table
    places = [samples.places_of(table)[name] for name in ("batch size", "variant", "published")]
    beside = [tuple(row[place] for place in places) for row in samples.texts_of(table) if row[0] == "8"]
    assert sorted(beside) == [("8", "fp16", "1,608 images/s"), ("8", "fp32", "")]


def test_an_output_that_nobody_measured_is_left_out(results: ReportResults, tmp_path: Path) -> None:
    study = batched(tmp_path)
    assert output_charts(results, study) == [], "these results have other commands"
    asked = replace(
        results, members=tuple(replace(each, document=commanded(each.document)) for each in results.members)
    )
    assert len(output_charts(asked, study)) == 1
    assert output_charts(asked, replace(study, outputs=(replace(study.outputs[0], y="time_to_target"),))) == []


@pytest.mark.parametrize(
    ("authors", "cited"),
    [
        ("Chelsea Maria John et al.", "John et al. 2020"),
        ("Tomas Lazauskas and David Llewellyn-Jones", "Lazauskas and Llewellyn-Jones 2020"),
        ("A One, B Two, C Three", "One et al. 2020"),
        ("Graphcore", "Graphcore 2020"),
    ],
)
def test_a_study_is_cited_as_texts_cite_it(authors: str, cited: str) -> None:
    assert short_citation(replace(load_published("graphcore"), authors=authors)) == cited


def test_a_row_is_called_by_what_tells_it_from_others() -> None:
    _, (table,) = select_tables("pearc22/4")
    assert row_words(table, 1) == "A100 GPU, Replicas (Devices) 2, Micro batch size 512"
    assert row_words(table, 1, {1, 2}) == "Micro batch size 512"


def test_a_report_puts_published_figures_beside_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [commanded(each) for batch in (2, 4) for each in repeats(900.0, batch, **_micro(batch))]
    path = written(tmp_path / "results", documents)
    folder, study = str(tmp_path / "report"), str(batched(tmp_path).file)
    report(load_settings(), (path,), study=study, against="published:pearc22", folder=folder)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Nasari et al. 2022, table 3, section 3.3.1" in page and "1,181 images/s" in page
    assert Path(folder, "plots", "ours-over-published.svg").is_file()
    assert "1,181 images/s" in Path(folder, "tables", "study-table-3.csv").read_text()
    capsys.readouterr()
    report(load_settings(), (path,), study="pearc22", against="published:qwant", folder=folder)
    assert "no result is the counterpart of a figure of qwant" in capsys.readouterr().err
