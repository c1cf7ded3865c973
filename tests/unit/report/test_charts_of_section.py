"""Charts of a section as data: lines, values and words equal the points, and the table has them all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.report import samples
from unit.report.chart_results import (
    chart_of,
    charts_of,
    layers,
    of_systems,
    printed,
    rows,
    section_of,
    study,
    with_fields,
    with_metric,
)
from unit.report.run_results import BATCH, batch, with_microbenchmarks, with_steps

from sifmark.report.charts.bandwidth import bandwidth
from sifmark.report.charts.by_batch import throughput_by_batch
from sifmark.report.charts.chart import RESERVATION, Chart
from sifmark.report.charts.energy import energy_per_epoch
from sifmark.report.charts.glyphs import Datum
from sifmark.report.charts.render import page_svg
from sifmark.report.charts.scaling import scaling
from sifmark.report.charts.series import MOST_LINES
from sifmark.report.charts.times import latency_parts, time_to_target
from sifmark.report.charts.trades import energy_by_throughput, latency_by_throughput, pareto_front
from sifmark.report.describe import mean_text, quantity_text
from sifmark.report.load import load_report_results
from sifmark.report.results import ReportResult, ReportResults, Section


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ReportResults:
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def training(results: ReportResults) -> Section:
    return section_of(results, "training")


def means(chart: Chart) -> list[dict[str, Any]]:
    return [row for row in rows(chart, "point") if "series" in row and "shape" in _channels(chart, row)]


def _channels(chart: Chart, row: dict[str, Any]) -> set[str]:
    return {name for each in layers(chart.spec) if row in each["data"]["values"] for name in each["encoding"]}


def test_throughput_by_batch_has_a_line_for_each_system_with_the_values_of_compare(training: Section) -> None:
    chart = chart_of(throughput_by_batch(training))
    points = training.points("throughput")
    drawn = {(row["series"], row["x"], row["y"], row["low"], row["high"]) for row in rows(chart, "line")}
    assert drawn == {
        (point.system, point.fields[BATCH], point.mean.value, point.mean.low, point.mean.high) for point in points
    }
    assert {row[0] for row in drawn} == {"alpha", "beta"} and len(drawn) == 6


def test_repeats_are_dots_and_intervals_are_rules(training: Section) -> None:
    chart = chart_of(throughput_by_batch(training))
    dots = sorted(row["y"] for row in rows(chart, "point", size=7))
    assert dots == sorted(value for point in training.points("throughput") for value in point.row.values("throughput"))
    assert len(rows(chart, "rule")) == 6


def test_every_mean_has_its_words_and_leads_to_its_first_result(training: Section) -> None:
    chart = chart_of(throughput_by_batch(training))
    described = {row["description"]: row["href"] for row in means(chart)}
    for point in training.points("throughput"):
        mean = quantity_text(point.mean, "images/s")
        words = f"{point.system}, batch size {point.fields[BATCH]}: {mean}, 3 repeats"
        assert described[words] == f"#{point.results[0].anchor}"


def test_a_failure_is_a_hollow_triangle_at_the_bottom_of_its_place(training: Section) -> None:
    chart = chart_of(throughput_by_batch(training))
    (failed,) = rows(chart, "point", shape="triangle-down")
    assert (failed["x"], failed["description"]) == (64, "alpha, batch size 64: out of memory")
    assert 64 in chart.spec["encoding"]["x"]["axis"]["values"]
    assert "Hollow triangles are runs that are no measurement: 1 out of memory." in chart.caption


def test_failures_at_one_place_are_above_each_other(training: Section) -> None:
    failure = next(each for each in training.results.members if each.observation.fields["status.state"] != "completed")
    twin = replace(failure, observation=replace(failure.observation, id="another"))
    results = replace(training.results, members=(*training.results.members, twin))
    chart = chart_of(throughput_by_batch(section_of(results, "training")))
    assert [row["stack"] for row in rows(chart, "point", shape="triangle-down")] == [0, 1]


def test_published_figures_are_hollow_diamonds_with_their_source(training: Section) -> None:
    marks = [printed(training, "throughput", "images/s", 99.0, batch_size=size) for size in (8, 128)]
    marks.append(printed(training, "throughput", "images/s", None, batch_size=256))
    results = replace(training.results, published=tuple(marks))
    chart = chart_of(throughput_by_batch(section_of(results, "training")))
    diamonds = rows(chart, "point", shape="diamond")
    assert [(row["x"], row["y"], row["href"]) for row in diamonds] == [
        (8, 99.0, "https://example.org/pearc22"),
        (128, 99.0, "https://example.org/pearc22"),
    ]
    assert (
        "PEARC'22, table 1, row 2" in diamonds[0]["description"] and "precision differs" in diamonds[0]["description"]
    )
    assert "published figures: PEARC'22, table 1, row 2 (GC200)" in chart.caption
    assert rows(chart, "point", shape="triangle-down")[-1]["x"] == 256
    assert ("GC200 (PEARC'22, table 1, row 2)", "256", "out of memory", "", "precision differs") in chart.table.rows


def test_the_table_has_what_the_chart_has(training: Section) -> None:
    chart = chart_of(throughput_by_batch(training))
    assert chart.table.columns == ("system", "batch size", "throughput [images/s]", "repeats", "remarks")
    numbers = [row[:3] for row in chart.table.rows]
    points = training.points("throughput")
    assert numbers[:6] == [(point.system, str(point.fields[BATCH]), mean_text(point.mean)) for point in points]
    assert numbers[6:] == [("alpha", "64", "out of memory")]


def test_one_batch_size_gives_no_chart_of_it(training: Section) -> None:
    members = tuple(each for each in training.members if batch(each) == 8)
    assert throughput_by_batch(section_of(replace(training.results, members=members), "training")) is None


def test_variants_of_a_system_are_lines_of_their_own(training: Section) -> None:
    def precision(result: ReportResult) -> dict[str, Any]:
        return {"configuration.precision": "fp32" if result.document["id"] < "8" else "bf16"}

    results = with_fields(training.results, precision)
    chart = chart_of(throughput_by_batch(section_of(results, "training")))
    series = {row["series"]: (row["colour"], tuple(row["dash"])) for row in rows(chart, "line")}
    assert set(series) == {"alpha, bf16", "alpha, fp32", "beta, bf16", "beta, fp32"}
    assert series["alpha, bf16"][0] == series["alpha, fp32"][0] != series["beta, bf16"][0]
    assert len({dash for _, dash in series.values()}) == 4


def test_one_system_with_variants_is_not_repeated_in_every_label(training: Section) -> None:
    def precision(result: ReportResult) -> dict[str, Any]:
        return {"configuration.precision": "fp32" if result.document["id"] < "8" else "bf16", "site": "alpha"}

    chart = chart_of(throughput_by_batch(section_of(with_fields(training.results, precision), "training")))
    labels = {row["series"] for row in rows(chart, "line")}
    assert labels and all("alpha" not in label for label in labels)


# Of 24, too, a chart has fewer lines than there are systems.
@pytest.mark.parametrize("count", [1, 2, 12, 24, pytest.param(200, marks=pytest.mark.full)])
def test_any_number_of_systems_gives_charts(training: Section, count: int) -> None:
    results = of_systems(training.results, [f"system {number}" for number in range(count)])
    chart = chart_of(throughput_by_batch(section_of(results, "training")))
    assert len({row["series"] for row in rows(chart, "line")}) == min(count, MOST_LINES)
    assert len({row[0] for row in chart.table.rows}) == count
    assert (f"The table has {count - MOST_LINES} lines more" in chart.caption) == (count > MOST_LINES)
    assert all(page_svg(each).startswith("<svg") for each in charts_of(results))


def test_names_of_ten_thousand_letters_stay_apart_and_short(training: Section) -> None:
    results = of_systems(training.results, ["x" * 10_000, "x" * 9_999 + "y", "x" * 9_000, " ", "\x07\x1b[31m"])
    chart = chart_of(throughput_by_batch(section_of(results, "training")))
    labels = {row["series"] for row in rows(chart, "line")}
    assert len(labels) == 5 and max(map(len, labels)) < 60
    assert page_svg(chart).startswith("<svg")


def test_results_that_are_not_for_publication_say_so_in_words_and_picture(training: Section) -> None:
    def busy(result: ReportResult) -> ReportResult:
        document = result.document | {"provenance": result.document["provenance"] | {"stand_in": True}}
        return replace(result, document=document)

    more = with_steps(with_microbenchmarks(training.results), 12)
    results = replace(more, members=tuple(map(busy, more.members)))
    charts = charts_of(results)
    assert all(any(name in chart.name for chart in charts) for name in ("bandwidth", "step-times"))
    for chart in charts:
        assert RESERVATION in chart.caption, chart.name
        assert chart.reservation.startswith("Not for publication: test base"), chart.name
        assert "Not for publication: test base" in page_svg(chart)
    chart = chart_of(throughput_by_batch(section_of(results, "training")))
    assert all(row["description"].endswith("; test base") for row in means(chart))
    assert all(row[4] == "test base" for row in chart.table.rows[:6])


def test_names_of_charts_are_unique(results: ReportResults) -> None:
    twins = [
        replace(each, observation=replace(each.observation, id=f"twin-{each.observation.id}", group=group))
        for each in results.members
        for group in [each.observation.group._replace(identity=f"sha256:abcdef012345{each.observation.group.task}")]
    ]
    names = [chart.name for chart in charts_of(replace(results, members=(*results.members, *twins)))]
    assert len(set(names)) == len(names) > 6
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)


def test_scaling_has_the_speed_and_efficiency_of_compare(tmp_path: Path) -> None:
    (section,) = load_report_results([str(samples.TWO_RANKS)]).sections
    chart = chart_of(scaling(section))
    upper, lower = chart.spec["vconcat"]
    expected = [
        (each.kind, point.fields["accelerator.count"], 100 * (each.efficiency.value or 0))
        for point in section.points("throughput")
        for each in point.row.scalings
    ]
    drawn = [row for row in lower["layer"][-1]["data"]["values"] if row["x"] > 1]
    assert sorted(round(row["y"], 6) for row in drawn) == sorted(round(value, 6) for _, _, value in expected)
    assert {row["series"] for row in drawn} == {
        "strong scaling, batch 8",
        "weak scaling, batch 4 per device",
        "weak scaling, batch 8 per device",
    }
    ideal = upper["layer"][0]["data"]["values"]
    assert all(
        second["y"] == pytest.approx(2 * first["y"]) for first, second in zip(ideal[::2], ideal[1::2], strict=True)
    )
    assert {row[1] for row in chart.table.rows} == {"strong", "weak"}
    assert [row[4] for row in chart.table.rows if row[2] == "1"] == ["reference"] * 3


def test_latency_by_throughput_has_a_panel_for_each_percentile(results: ReportResults) -> None:
    section = section_of(results, "inference")
    chart = chart_of(latency_by_throughput(section))
    panels = chart.spec["vconcat"]
    assert [panel["encoding"]["y"]["title"] for panel in panels] == [f"p{p} latency [ms]" for p in (50, 90, 99)]
    latency = {point.mean.value for point in section.points("latency_p99")}
    assert {row["y"] for row in panels[2]["layer"][0]["data"]["values"]} == latency
    ways = [(row["series"], row["order"], row["note"]) for row in panels[0]["layer"][0]["data"]["values"]]
    assert ways[:3] == [("alpha", 0, "1"), ("alpha", 1, ""), ("alpha", 2, "4")]
    assert chart.table.columns[2:6] == ("throughput [images/s]", "p50 [ms]", "p90 [ms]", "p99 [ms]")
    assert len(chart.table.rows) == 6


def test_energy_by_throughput_pairs_both_metrics_and_circles_the_pareto_front(training: Section) -> None:
    chart = chart_of(energy_by_throughput(training))
    pairs = {
        (speed.mean.value, energy.mean.value)
        for speed, energy in zip(training.points("throughput"), training.points("energy_per_unit"), strict=True)
    }
    assert {(row["x"], row["y"]) for row in means(chart)} == pairs
    (best,) = rows(chart, "point", size=170)
    assert (best["x"], best["y"]) == (max(pairs)[0], min(energy or 0 for _, energy in pairs))
    assert chart.spec["encoding"]["y"]["title"] == "energy [J/image]"


def test_the_pareto_front_has_what_nothing_beats_in_both() -> None:
    def at(x: float, y: float) -> Datum:
        return Datum(x, y, None, None, (), "")

    marks = [at(1, 1), at(2, 3), at(2, 2), at(3, 4), at(2.5, 5), at(0.5, 1)]
    assert [(mark.x, mark.y) for mark in pareto_front(marks)] == [(3, 4), (2, 2), (1, 1)]


def test_energy_that_compare_refuses_gives_no_chart_and_leaves_throughput(training: Section) -> None:
    def scope(result: ReportResult) -> dict[str, Any]:
        return {"power.scope": "node" if result.observation.fields["site"] == "alpha" else "board"}

    section = section_of(with_fields(training.results, scope), "training")
    assert energy_by_throughput(section) is None
    assert throughput_by_batch(section) is not None


def test_energy_per_epoch_is_in_watt_hours_from_zero(training: Section) -> None:
    results = with_metric(training.results, "energy_per_epoch", "J", lambda result: 3600.0 * 40 / batch(result))
    results = with_metric(results, "units_per_watt_hour", "images/Wh", lambda result: 100.0 * batch(result))
    chart = chart_of(energy_per_epoch(section_of(results, "training")))
    upper, lower = chart.spec["vconcat"]
    assert {(row["x"], row["y"]) for row in rows(chart, "bar")} == {("8", 5.0), ("16", 2.5), ("32", 1.25)}
    assert upper["encoding"]["y"]["scale"]["domain"][0] == lower["encoding"]["y"]["scale"]["domain"][0] == 0
    assert upper["encoding"]["x"]["scale"]["domain"] == ["8", "16", "32"]
    assert chart.table.rows[0][:4] == ("alpha", "8", "5.000 ± 0 %", "800.0 ± 0 %")


@pytest.mark.parametrize("draw", [scaling, latency_by_throughput, latency_parts, energy_per_epoch, time_to_target])
def test_no_chart_of_what_runs_were_not_asked_for(training: Section, draw: Callable[[Section], Chart | None]) -> None:
    """On one device, without requests, epochs and a target: its metrics have a reason, but nothing failed."""
    assert draw(training) is None and bandwidth(training.results) is None


def test_no_results_give_no_charts(results: ReportResults) -> None:
    assert charts_of(replace(results, members=())) == []
