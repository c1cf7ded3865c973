"""What a report says first of each kind of run, and that its ratios are those of `compare`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from unit.report import samples
from unit.studies.test_published_comparison import repeats, written

import sifmark
from sifmark.core import paths
from sifmark.report.load import load_report_results
from sifmark.report.markdown import report_text
from sifmark.report.page import render_page
from sifmark.report.published import with_published
from sifmark.report.report import Report, make_report
from sifmark.report.site.charts import overview_of
from sifmark.report.site.pages import site_pages
from sifmark.report.site.rows import measured
from sifmark.report.site.site import SiteOptions, make_site
from sifmark.report.strips import Strip
from sifmark.report.tables import Kind
from sifmark.report.workloads import judged
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.tables import ratio_text
from sifmark.results.comparison.text import as_text
from sifmark.results.summary import summary
from sifmark.studies.published.comparison import compare_with_published

H200 = paths.CHECKOUT / "tests" / "fixtures" / "h200"
PRECISION, BY = "configuration.precision", "site"


def report_of(folder: Path, **options: Any) -> Report:
    return make_report(load_report_results([str(folder)], **options))


def strips_by_name(report: Report) -> dict[str, Strip]:
    """The strips by the name of their workload."""
    return {strip.workload.name: strip for strip in report.strips}


def metrics_of(strip: Strip) -> list[str]:
    """The metrics of the table of a workload."""
    assert strip.table is not None
    return [column.head.partition(" [")[0] for column in strip.table.columns if column.kind is Kind.NUMBER]


def texts_of(report: Report) -> tuple[str, ...]:
    """The page and the Markdown, without marks of their own."""
    return re.sub(r"\s+", " ", render_page(report)), report_text(report).replace("\\", "")


def test_a_micro_benchmark_is_summarised_by_its_peak_and_the_bandwidth_of_memory() -> None:
    report = report_of(H200)
    (card,) = report.cards
    assert {(peak.number, peak.unit, peak.what) for peak in card.peaks} >= {
        ("848", "TFLOP/s", ""),
        ("4.15", "TB/s", "memory"),
    }
    for text in texts_of(report):
        assert "4,147" in text and "848.0" in text and not re.search(r"\b598\.0\b", text) and "10⁹" not in text
    for strip in report.of_devices:
        shown = metrics_of(strip)
        assert shown and not {"throughput", "throughput per watt", "step time, median", "utilisation"} & set(shown)
    compared = as_text(compare_results([str(H200)], Query()))
    assert re.search(r"memory_bandwidth \[GB/s\].*\n.*\b4,147\b", compared)
    assert re.search(r"peak_flops \[TFLOP/s\].*\n.*\b848\.0\b", compared)


@pytest.fixture(scope="module")
def generation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two systems that continue texts."""
    some = (samples.of_generation(site, batch, n) for site in samples.SYSTEMS for batch in (8, 16) for n in (1, 2, 3))
    return samples.write(tmp_path_factory.mktemp("generation"), some)


def test_generation_is_headlined_by_tokens_and_the_times_of_tokens(generation: Path) -> None:
    report = report_of(generation)
    (strip,) = report.ranked
    assert strip.workload.rate == "token_throughput"
    metrics = ("token_throughput", "time_to_first_token_p50", "time_between_tokens_p50")
    assert metrics_of(strip)[:3] == list(map(metric_label, metrics))
    (table,) = report.numbers
    heads = [column.head for column in table.columns]
    assert heads[:5] == ["Generation", "Token throughput", "Batch size", "First token", "Between tokens"]
    cells = table.rows[0].cells
    assert (cells[3].text, cells[4].text) == ("34.31", "5.981")
    for text in texts_of(report):
        assert "34.31" in text and "J/sequences" not in text


def test_compare_has_the_same_columns_by_default_and_those_that_are_asked_for(generation: Path) -> None:
    (table,) = compare_results([str(generation)], Query()).tables
    assert table.metrics == (
        *("token_throughput", "time_to_first_token_p50", "time_between_tokens_p50"),
        "peak_process_memory",
    )
    asked = ("throughput", "step_time_p50", "peak_process_memory")
    (table,) = compare_results([str(generation)], Query(metrics=asked)).tables
    assert table.metrics == asked
    assert sifmark.compare(generation, baseline={"site": "alpha"}).gate(minimum=0.5).decision.value != "failed"


def test_a_summary_begins_with_the_headlines(generation: Path) -> None:
    document = json.loads(next(iter(sorted(generation.iterdir()))).read_text())
    labels = [line[2:32].strip() for line in summary(document)[1:]]
    assert labels[0] == "token throughput" and labels.index("throughput") > labels.index("prefill throughput")
    latency = labels.index("time to first token, median")
    assert labels[latency + 1] == "time between tokens, median"


def test_a_site_has_tokens_per_second_and_the_times_of_tokens(generation: Path) -> None:
    options = SiteOptions(most_charts=0, processes=1)
    site = make_site(generation, options)
    row = next(row for row in measured(site.results.members, BY).rows if row.system == "alpha")
    assert " tokens/s ±" in row.text
    assert re.fullmatch(r"[\d.]+ ms ± [\d.]+ % to the first token, [\d.]+ ms ± [\d.]+ % between tokens", row.latency)
    pages = dict(site_pages(site))
    assert row.text.split(" ±")[0] in re.sub(r"\s+", " ", re.sub("<.*?>", "", pages["workloads/texts.html"].decode()))
    overview = overview_of(site.results.members, BY)
    assert overview.rows[0].best[0] is not None and overview.rows[0].best[0].metric == "token_throughput"


def two_precisions(folder: Path) -> Path:
    some = (
        samples.sample(site, "pictures", 8, repeat, configuration__precision=precision, configuration__threads=threads)
        for repeat in (1, 2, 3)
        for site, precision, threads in (("alpha", "fp32", 1), ("beta", "bf16", 2))
    )
    return samples.write(folder, some)


def test_the_best_in_different_precision_have_words_and_no_ratio(tmp_path: Path) -> None:
    report = report_of(two_precisions(tmp_path))
    assert report.scorecard is None and all(each.workload.leader is None for each in report.strips)
    (apart,) = [pair for strip in report.strips for pair in strip.apart]
    assert apart == ("beta", "precision fp32 / bf16")
    tables = [strip.table for strip in report.strips if strip.table]
    assert tables and not any(cell.ratio for table in tables for row in table.rows for cell in row.cells)
    for text in texts_of(report):
        assert "not compared" in text and "precision fp32 / bf16" in text
        assert not re.search(r"\dx (faster|slower)|no difference shown", text)


def test_systems_are_compared_where_they_have_the_same_configuration(tmp_path: Path) -> None:
    some = (
        samples.sample(site, "pictures", batch, repeat)
        for repeat in (1, 2, 3)
        for site, batch in (("alpha", 8), ("alpha", 16), ("beta", 8))
    )
    report = report_of(samples.write(tmp_path, some))
    assert report.scorecard is not None
    cell = report.scorecard.groups[0].rows[0].cells[0]
    assert cell is not None and cell.configuration == "batch size 8" and cell.scores[0].point.ratio is not None
    best = {row.system: row.cells[2].text for row in report.numbers[0].rows}
    assert best == {"alpha": "16", "beta": "8"}, "the numbers have the best of each, without a ratio"


def test_allowed_precisions_have_the_ratio_of_compare_and_a_line_that_names_them(tmp_path: Path) -> None:
    folder = two_precisions(tmp_path)
    report = report_of(folder, allowed=(PRECISION,))
    query = Query(("throughput",), allowed=frozenset((PRECISION,)), more_fields=(BY,), baseline=(BY, "alpha"))
    (row,) = compare_results([str(folder)], query).compared
    assert report.scorecard is not None
    (score,) = [point for point in report.scorecard.points if point.metric == "throughput"]
    assert score.ratio == row.ratios["throughput"] and not any(strip.apart for strip in report.strips)
    for text in texts_of(report):
        assert ratio_text(row.ratios["throughput"], "images/s").partition(" ")[0] in text
        assert "precision fp32 / bf16" in text and "threads 1 / 2" in text


def test_the_overview_of_a_site_has_the_best_on_the_fewest_devices_(tmp_path: Path) -> None:
    some = (
        samples.sample(site, "pictures", batch, repeat)
        for repeat in (1, 2, 3)
        for site, batch in (("alpha", 8), ("alpha", 16), ("beta", 8))
    )
    site = make_site(samples.write(tmp_path, some), SiteOptions(processes=1))
    (row,) = site.overview.rows
    best = [point.fields["configuration.batch_size"] for point in row.best if point]
    assert site.overview.systems == ("alpha", "beta") and best == [16, 8] and row.devices == 1


def test_what_is_allowed_although_not_comparable_is_said(tmp_path: Path) -> None:
    some = (
        samples.sample(site, "pictures", 8, repeat, provenance__stand_in=site == "beta")
        for repeat in (1, 2, 3)
        for site in samples.SYSTEMS
    )
    folder = samples.write(tmp_path, some)
    assert report_of(folder).strips[0].refused and not report_of(folder).strips[0].overridden
    report = report_of(folder, allowed=("provenance.stand_in",))
    assert not report.strips[0].refused
    (overridden,) = report.strips[0].overridden
    for text in texts_of(report):
        assert "Allowed although not comparable" in text and overridden.partition("(")[0] in text


def test_figures_without_a_counterpart_are_named_with_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, repeats(1900.0, 8, configuration__precision="fp32"))
    results = with_published(load_report_results([path]), compare_with_published("pearc22", [path]))
    assert not results.published and any("precision" in line for line in results.unmatched)
    for text in texts_of(make_report(results)):
        assert "without a counterpart" in text and "(--allow FIELD)" in text


@pytest.mark.parametrize(
    ("ratio", "metric", "says"),
    [
        (Ratio(1.2, 1.1, 1.3), "throughput", "better"),
        (Ratio(0.8, 0.7, 0.9), "throughput", "worse"),
        (Ratio(1.2, 1.1, 1.3), "energy_per_unit", "worse"),
        (Ratio(0.8, 0.7, 0.9), "time_to_first_token_p50", "better"),
        (Ratio(1.2, 1.1, 1.3), "power_mean", "same"),
        (Ratio(1.0, 0.9, 1.1), "throughput", "same"),
        (Ratio(1.2, 1.1, 1.3, withheld="busy host"), "throughput", "cannot-tell"),
        (Ratio(1.2), "throughput", "cannot-tell"),
    ],
)
def test_a_colour_follows_the_verdict_and_the_direction_of_the_metric(ratio: Ratio, metric: str, says: str) -> None:
    assert judged(ratio, metric) == says
