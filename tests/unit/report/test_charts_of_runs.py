"""Charts of what happens in runs, and of micro-benchmarks, as data: numbers are those of compare and of results."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from unit.report.chart_results import chart_of, layers, of_systems, printed, rows, section_of, study
from unit.report.run_results import (
    BATCH,
    PARTS,
    with_documents,
    with_epochs,
    with_memory,
    with_microbenchmarks,
    with_parts,
    with_steps,
    with_targets,
)

from sifmark.report.charts.bandwidth import bandwidth
from sifmark.report.charts.bars import MOST_BARS
from sifmark.report.charts.by_batch import memory
from sifmark.report.charts.chart import Chart
from sifmark.report.charts.energy import power_over_time
from sifmark.report.charts.render import page_svg
from sifmark.report.charts.step_times import step_times
from sifmark.report.charts.times import latency_parts, phases, time_to_target
from sifmark.report.describe import mean_text, quantity_text, scale_of_points
from sifmark.report.results import ReportResults, Section
from sifmark.results.numbers import format_number


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ReportResults:
    return study(tmp_path_factory.mktemp("study"))


def training(results: ReportResults) -> Section:
    return section_of(results, "training")


def inference(results: ReportResults) -> Section:
    return section_of(results, "inference")


def segments(chart: Chart, bar: str) -> dict[str, tuple[float, float]]:
    """Begin and end of the parts of a bar."""
    return {row["part"]: (row["x"], row["x2"]) for row in rows(chart, "bar", fill="transparent") if row["bar"] == bar}


def value(section: Section, metric: str, system: str, batch: int) -> float:
    point = next(point for point in section.points(metric) if point.system == system and point.fields[BATCH] == batch)
    assert point.mean.value is not None
    return point.mean.value


def test_phases_follow_each_other_as_compare_has_them(results: ReportResults) -> None:
    section = training(results)
    drawn = segments(chart_of(phases(section)), "beta, batch 16")
    assert list(drawn) == ["import", "data", "model", "first step", "warm-up"]
    end = 0.0
    for name, part in zip(("import", "data", "model", "compile", "warmup"), drawn.values(), strict=True):
        assert part == pytest.approx((end, end + value(section, f"phases.{name}", "beta", 16)))
        end = part[1]


def test_compilation_is_within_the_first_epoch(results: ReportResults) -> None:
    section = training(with_epochs(results))
    drawn = segments(chart_of(phases(section)), "alpha, batch 8")
    first, second = (value(section, f"epochs.{number}", "alpha", 8) for number in (1, 2))
    compilation = value(section, "phases.compile", "alpha", 8)
    assert drawn["compilation"] == (0, compilation) and drawn["first epoch"] == (compilation, first)
    assert drawn["second epoch"] == pytest.approx((first, first + second))


def test_bars_have_the_numbers_of_compare_in_their_table_and_words(results: ReportResults) -> None:
    section = training(with_epochs(results))
    chart = chart_of(phases(section))
    by_label = {row[0]: row[1:4] for row in chart.table.rows}
    metrics = ("phases.compile", "epochs.1", "epochs.2")
    scale = scale_of_points(point for metric in metrics for point in section.points(metric))
    for column, metric in enumerate(metrics):
        for point in section.points(metric):
            assert by_label[f"{point.system}, batch {point.fields[BATCH]}"][column] == mean_text(point.mean, scale)
    words = [row["description"] for row in rows(chart, "bar", fill="transparent")]
    mean = quantity_text(section.points("epochs.2")[0].mean, "s")
    assert f"alpha, batch 8, second epoch: {mean}, 3 repeats" in words


def test_bars_lead_to_their_first_result(results: ReportResults) -> None:
    section = training(results)
    anchors = {f"#{each.anchor}" for each in section.members}
    assert {row["href"] for row in rows(chart_of(phases(section)), "bar", fill="transparent")} <= anchors


def test_a_run_that_failed_is_a_triangle_at_its_place_with_its_state(results: ReportResults) -> None:
    chart = chart_of(phases(training(results)))
    (failed,) = rows(chart, "point", shape="triangle-down")
    assert (failed["bar"], failed["reason"]) == ("alpha, batch 64", "out of memory")
    assert ("alpha, batch 64", *["-"] * 5, "", "out of memory") in chart.table.rows
    assert "Hollow triangles are runs that are no measurement: 1 out of memory." in chart.caption


def test_bars_are_ordered_by_configuration_and_then_by_system(results: ReportResults) -> None:
    chart = chart_of(phases(training(results)))
    labels = [row[0] for row in chart.table.rows]
    assert labels == [
        *(f"{system}, batch {batch}" for batch in (8, 16, 32) for system in ("alpha", "beta")),
        "alpha, batch 64",
    ]


def test_more_bars_than_can_be_read_are_in_the_table_alone(results: ReportResults) -> None:
    many = of_systems(results, [f"system {number}" for number in range(20)])
    chart = chart_of(phases(training(many)))
    assert len({row["bar"] for row in rows(chart, "bar", fill="transparent")}) <= MOST_BARS < len(chart.table.rows)
    assert f"The table has {len(chart.table.rows) - MOST_BARS} bars more" in chart.caption


def test_parts_of_the_latency_add_up(results: ReportResults) -> None:
    section = inference(with_parts(results))
    drawn = segments(chart_of(latency_parts(section)), "beta, 4 clients")
    assert list(drawn) == list(PARTS)
    means = [
        point.mean.value
        for part in PARTS
        for point in section.points(f"latency_{part}_mean")
        if (point.system, point.fields["configuration.concurrency"]) == ("beta", 4)
    ]
    assert drawn["other"][1] == pytest.approx(sum(mean or 0 for mean in means))


def test_the_time_to_a_target_has_intervals_and_who_never_reached_it(results: ReportResults) -> None:
    section = training(with_targets(results, never="beta"))
    chart = chart_of(time_to_target(section))
    assert chart.title == "Time to accuracy 0.75"
    drawn = {row["bar"]: row["x2"] for row in rows(chart, "bar", fill="transparent")}
    assert drawn == {f"alpha, batch {each}": value(section, "time_to_target", "alpha", each) for each in (8, 16, 32)}
    missing = {row["bar"]: row["reason"] for row in rows(chart, "point", shape="triangle-down")}
    assert missing == {
        **{f"beta, batch {each}": "not measured" for each in (8, 16, 32)},
        "alpha, batch 64": "out of memory",
    }
    assert len(rows(chart, "rule")) == 3  # intervals


def test_memory_by_batch_has_the_limit_of_the_devices(results: ReportResults) -> None:
    section = training(with_memory(results))
    chart = chart_of(memory(section))
    drawn = {(row["series"], row["x"], row["y"]) for row in rows(chart, "line")}
    assert drawn == {
        (point.system, point.fields[BATCH], point.mean.value) for point in section.points("peak_allocated_memory")
    }
    (limit,) = {row["y"] for row in rows(chart, "rule", strokeDash=[5, 3])}
    assert limit == 80 * 1024 and {row["label"] for row in rows(chart, "text")} == {"memory of each system, 80.00 GiB"}
    assert limit <= chart.spec["encoding"]["y"]["scale"]["domain"][1]
    assert all(tick % 1024 == 0 for tick in chart.spec["encoding"]["y"]["axis"]["values"])


def test_a_limit_far_above_all_values_is_only_named(results: ReportResults) -> None:
    chart = chart_of(memory(training(with_memory(results, limit=4096 * 1024.0))))
    assert "Beyond the axis: memory of each system, 4,096 GiB." in chart.caption
    assert not rows(chart, "rule", strokeDash=[5, 3])


def test_the_limit_is_the_share_of_one_process(results: ReportResults) -> None:
    shared = with_documents(
        with_memory(results), lambda each: {"accelerator": {**each.document["accelerator"], "ranks": 2}}
    )
    chart = chart_of(memory(training(shared)))
    assert {row["y"] for row in rows(chart, "rule", strokeDash=[5, 3])} == {40 * 1024}


def test_without_batches_memory_is_bars_of_each_configuration(results: ReportResults) -> None:
    section = inference(with_memory(results))
    chart = chart_of(memory(section))
    assert {row["bar"] for row in rows(chart, "bar", fill="transparent")} == {
        f"{system}, {count} client{'s' * (count > 1)}" for system in ("alpha", "beta") for count in (1, 2, 4)
    }


def test_power_over_time_is_the_trace_of_the_fastest_run_of_each_system(results: ReportResults) -> None:
    section = training(results)
    chart = chart_of(power_over_time(section))
    anchors = {row["href"].removeprefix("#") for row in rows(chart, "rect")}
    runs = [each for each in section.members if each.anchor in anchors]
    assert {each.observation.fields["site"] for each in runs} == {"alpha", "beta"} and len(runs) == 2
    for run in runs:
        rate = run.document["metrics"]["throughput"]["value"]
        same = [each for each in section.members if each.observation.fields["site"] == run.observation.fields["site"]]
        assert rate == max(each.document["metrics"]["throughput"]["value"] or 0 for each in same)
        trace = run.document["power"]["trace"]
        drawn = [
            each["data"]["values"] for each in layers(chart.spec) if each["mark"].get("interpolate") == "step-after"
        ]
        assert [*trace["watts"], trace["watts"][-1]] in [[row["y"] for row in line] for line in drawn]
        row = next(row for row in chart.table.rows if row[0].startswith(run.observation.fields["site"]))
        assert row[2] == format_number(run.document["metrics"]["power_mean"]["value"])
        assert row[5] == format_number(trace["window_seconds"])


def test_the_shade_is_the_timed_window_and_a_line_the_idle_power(results: ReportResults) -> None:
    resting = with_documents(results, lambda each: {"power": rested(each.document["power"])})
    chart = chart_of(power_over_time(training(resting)))
    assert all(row["x"] == 0 and row["x2"] > 0 for row in rows(chart, "rect"))
    assert {row["name"] for row in rows(chart, "text")} == {"idle 40.00 W"}
    assert all(row[1] == "40.00" for row in chart.table.rows)


def rested(power: dict[str, Any]) -> dict[str, Any]:
    rest = {"duration": {"value": 5.0, "unit": "s"}, "power": {"value": 40.0, "unit": "W"}}
    return {**power, "idle": rest} if "source" in power else power


def test_an_interval_without_readings_is_a_gap(results: ReportResults) -> None:
    def holed(power: dict[str, Any]) -> dict[str, Any]:
        if "trace" not in power:
            return power
        watts = [None, *power["trace"]["watts"][1:]]
        return {**power, "trace": {**power["trace"], "watts": watts}}

    chart = chart_of(
        power_over_time(training(with_documents(results, lambda each: {"power": holed(each.document["power"])})))
    )
    assert rows(chart, "line")[0]["y"] is None and "<svg" in page_svg(chart)


def test_steps_are_those_of_the_least_steady_run_with_its_outliers(results: ReportResults) -> None:
    section = training(with_steps(results, slow=12))
    chart = chart_of(step_times(section))
    anchor = rows(chart, "rect")[0]["href"].removeprefix("#")
    run = next(each for each in section.members if each.anchor == anchor)
    assert run.observation.fields[BATCH] == 8
    seconds = run.document["steps"]["seconds"]
    assert [(row["x"], row["y"]) for row in rows(chart, "line")] == list(enumerate(seconds, start=1))[4:]
    assert [row["x"] for row in rows(chart, "point", shape="circle")] == [1, 2, 3, 4]
    crosses = [row for row in rows(chart, "point") if row["description"].startswith("outlier")]
    assert [row["description"] for row in crosses] == ["outlier, step 12: 400.0 ms"]
    assert [row[2] for row in chart.table.rows] == [format_number(second) for second in seconds]
    assert [row[1] for row in chart.table.rows].count("outlier") == 1
    assert {(row["x"], row["x2"]) for row in rows(chart, "rect")} == {(4.5, 20.5)}


def test_bandwidth_is_by_size_and_system(results: ReportResults) -> None:
    chart = chart_of(bandwidth(with_microbenchmarks(results)))
    drawn = rows(chart, "line")
    assert {row["x"] for row in drawn} == {2**10, 2**15, 2**20, 2**25, 2**30} and len(drawn) == 10
    assert len(chart.table.rows) == 10
    assert {row[3] for row in chart.table.rows} == {format_number(row["y"]) for row in drawn}
    assert [row["x"] for row in rows(chart, "rule")] == [4 * 64 * 2**20]
    assert {(row[2], row[5]) for row in chart.table.rows} == {
        *((str(2**power), "caches") for power in (10, 15, 20, 25)),
        (str(2**30), "memory"),
    }
    assert chart.spec["encoding"]["x"]["scale"]["type"] == chart.spec["encoding"]["y"]["scale"]["type"] == "log"


@pytest.mark.parametrize(
    ("draw", "change"),
    [
        (phases, None),
        (latency_parts, with_parts),
        (time_to_target, with_targets),
        (memory, with_memory),
        (power_over_time, None),
        (step_times, lambda results: with_steps(results, 12)),
    ],
)
def test_no_chart_of_a_section_that_has_nothing_for_it(
    results: ReportResults, draw: Callable[[Section], Chart | None], change: Any
) -> None:
    filled = change(results) if change else results
    section = inference(filled) if draw is latency_parts else training(filled)
    assert draw(section)
    bare = [
        replace(
            each,
            observation=replace(each.observation, numbers={}),
            document={**each.document, "steps": {**each.document["steps"], "seconds": None}},
        )
        for each in filled.members
    ]
    empty = replace(filled, members=tuple(bare))
    assert draw(inference(empty) if draw is latency_parts else training(empty)) is None


def test_every_chart_of_runs_becomes_a_picture_without_long_text_in_its_data(results: ReportResults) -> None:
    filled = with_microbenchmarks(with_steps(with_memory(with_parts(with_epochs(with_targets(results)))), 12))
    charts = [draw(training(filled)) for draw in (phases, memory, time_to_target, power_over_time, step_times)]
    charts += [latency_parts(inference(filled)), bandwidth(filled)]
    for chart in map(chart_of, charts):
        svg = page_svg(chart)
        assert "<script" not in svg and "NaN" not in svg and "undefined" not in svg
        assert len(svg) < 150_000


def test_published_figures_are_hollow_diamonds_below_the_bars_with_their_source(results: ReportResults) -> None:
    filled = with_targets(results)
    section = training(filled)
    marks = [
        printed(section, "time_to_target", "s", 900.0, batch_size=16),
        printed(section, "time_to_target", "s", None, batch_size=64),
    ]
    chart = chart_of(time_to_target(training(replace(filled, published=tuple(marks)))))
    name = "GC200 (PEARC'22, table 1, row 2)"
    (diamond,) = rows(chart, "point", shape="diamond")
    assert (diamond["bar"], diamond["x"], diamond["href"]) == (name, 900.0, marks[0].url)
    assert (name, "900.0 s", "", "precision differs") in chart.table.rows
    assert f"{name} (2)" in {row["bar"] for row in rows(chart, "point", shape="triangle-down")}
    assert "Hollow diamonds are published figures: PEARC'22, table 1, row 2 (GC200)." in chart.caption
    assert chart.spec["encoding"]["x"]["scale"]["domain"][1] > 900
