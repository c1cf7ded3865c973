"""The charts of a report: which there are, what they show of measured numbers, and what they leave out."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from unit.report import samples
from unit.report.chart_results import (
    figure_of,
    figures_of_all,
    of_systems,
    printed,
    section_of,
    study,
    titles,
    with_fields,
    with_metric,
    words,
    workload_of,
)
from unit.report.run_results import (
    batch,
    with_documents,
    with_memory,
    with_microbenchmarks,
    with_parts,
    with_steps,
    with_targets,
)

from sifmark.report.describe import memory_of_device
from sifmark.report.figures import MOST_FIGURES, budget_of, within_budget
from sifmark.report.forms import MOST_SERIES
from sifmark.report.load import load_report_results
from sifmark.report.palette import CROSS, DIAMOND
from sifmark.report.results import ReportResult, ReportResults
from sifmark.report.svg import Bar, Dot, Line, Rule
from sifmark.report.workloads import workloads_of
from sifmark.results.marks import UNSTEADY


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ReportResults:
    return study(tmp_path_factory.mktemp("study"))


def names(results: ReportResults) -> list[str]:
    return [figure.name for figure in figures_of_all(results)]


def test_each_kind_of_run_has_its_charts(results: ReportResults) -> None:
    assert names(with_parts(results))[:3] == [
        "pictures-training-throughput",
        "pictures-training-memory",
        "pictures-training-energy",
    ]
    assert [name for name in names(with_parts(results)) if "requests" in name] == [
        "pictures-requests-latency",
        "pictures-requests-within-budget",
        "pictures-requests-latency-parts",
    ]


def test_names_are_unique_and_charts_of_a_workload_few(results: ReportResults) -> None:
    every = names(with_microbenchmarks(with_targets(with_steps(with_memory(results), 7))))
    assert len(every) == len(set(every))
    assert sum(name.startswith("texts-training") for name in every) <= MOST_FIGURES + 2


def test_marks_are_the_means_of_compare_with_their_intervals(results: ReportResults) -> None:
    figure, workload = figure_of(results, "pictures-training-throughput"), workload_of(results, "training")
    dots = [mark for mark in figure.plot.marks if isinstance(mark, Dot) and mark.look == "dot"]
    points = workload.points("throughput")
    assert len(dots) == len(points)
    shown = sorted((round(dot.x, 6), round(dot.y, 3)) for dot in dots)
    across, down = figure.plot.across, figure.plot.down
    expected = sorted((round(across(point.fields[workload.load]), 6), round(down(point.value), 3)) for point in points)
    assert shown == expected
    assert "alpha, batch size 8: 51.00 images/s ± 2.5 %, 3 repeats" in titles(figure)
    assert sum(isinstance(mark, Rule) and mark.look == "whisker" for mark in figure.plot.marks) == len(points)


def test_a_failure_is_a_cross_where_it_happened(results: ReportResults) -> None:
    figure = figure_of(results, "pictures-training-throughput")
    (cross,) = [mark for mark in figure.plot.marks if isinstance(mark, Dot) and mark.path == CROSS]
    assert cross.title == "alpha, batch size 64: out of memory" and cross.x == figure.plot.across(64)


def test_failures_on_many_devices_are_not_those_of_one(results: ReportResults) -> None:
    def devices(each: object) -> dict[str, int]:
        return {"accelerator.count": 4 if batch(each) == 64 else 1}  # type: ignore[arg-type]

    figure = figure_of(with_fields(results, devices), "pictures-training-throughput")
    assert not any(isinstance(mark, Dot) and mark.path == CROSS for mark in figure.plot.marks)


def test_a_number_with_a_reservation_is_hollow(results: ReportResults) -> None:
    marked = with_documents(results, lambda each: {"provenance": {**each.document["provenance"], "simulated": True}})
    figure = figure_of(marked, "pictures-training-throughput")
    assert {mark.look for mark in figure.plot.marks if isinstance(mark, Dot)} == {"hollow", "failed"}
    assert any("simulated" in title for title in titles(figure))


def test_published_figures_are_diamonds_beside_their_workload(results: ReportResults) -> None:
    section = section_of(results, "training")
    beside = replace(results, published=(printed(section, "throughput", "images/s", 98.0, batch_size=8),))
    figure = figure_of(beside, "pictures-training-throughput")
    (diamond,) = [mark for mark in figure.plot.marks if isinstance(mark, Dot) and mark.path == DIAMOND]
    assert diamond.title.startswith("published, PEARC'22, table 1, row 2: GC200, batch size 8: 98")
    assert diamond.x == figure.plot.across(8) and "published" in figure.note


def test_a_system_keeps_colour_and_shape_on_all_charts(results: ReportResults) -> None:
    for figure in figures_of_all(with_memory(results)):
        systems = {mark.title.partition(",")[0]: mark.system for mark in figure.plot.marks if mark.title}
        assert {name: systems[name] for name in ("alpha", "beta") if name in systems}.items() <= {
            ("alpha", 0),
            ("beta", 1),
        }


def test_most_lines_are_drawn_and_no_more(results: ReportResults) -> None:
    many = of_systems(results, [f"system {number}" for number in range(20)])
    figure, best = figure_of(many, "pictures-training-throughput"), workload_of(many, "training").best
    drawn = {mark.system for mark in figure.plot.marks if isinstance(mark, Line)}
    assert len(drawn) == MOST_SERIES
    fastest = sorted(range(20), key=lambda place: best[many.systems[place]].value)
    assert drawn == {0, *fastest[1 - MOST_SERIES :]}, "the first one, and the fastest"
    assert f"{20 - MOST_SERIES} more lines are in the table" in figure.note


def test_one_batch_size_makes_no_chart_of_batch_sizes(tmp_path: Path) -> None:
    documents = [samples.sample(site, "pictures", 8, n) for site in samples.SYSTEMS for n in (1, 2, 3)]
    assert figures_of_all(load_report_results([str(samples.write(tmp_path, documents))])) == []


def test_the_limit_of_memory_is_that_of_one_device(results: ReportResults) -> None:
    of_two = with_documents(
        with_memory(results), lambda each: {"accelerator": {**each.document["accelerator"], "count": 2}}
    )
    assert memory_of_device(of_two.members[0].document) == 40 * 1024
    shared = {"accelerator": {"kind": "cpu", "memory_mib": 1024, "count": 2}}
    assert memory_of_device(shared) is None, "a CPU has the memory of its host"
    figure = figure_of(with_memory(results), "pictures-training-memory")
    assert "alpha and beta: 80 GiB" in words(figure)
    assert "dashed: what a device has" in figure.note
    assert "dashed" not in figure_of(results, "pictures-training-memory").note, "of host memory there is no limit"
    ticks = [word for word in words(figure) if word.isdigit()]
    assert set(ticks) >= {"0", "20", "40", "60", "80"}  # round numbers of GiB


def test_the_budget_is_the_least_round_time_that_every_system_meets(results: ReportResults) -> None:
    workload = workload_of(results, "requests")
    budget = budget_of(workload)
    slowest = max(min(p.value for p in workload.points("latency_p99") if p.system == s) for s in results.systems)
    assert budget is not None and budget >= slowest and f"{budget:e}"[0] in "125"
    assert all(
        (tail := workload.beside(point, "latency_p99")) and tail.value <= budget
        for point in within_budget(workload).values()
    )
    assert set(within_budget(workload)) == set(results.systems)


def test_parts_of_latency_add_up_to_their_bar(results: ReportResults) -> None:
    figure = figure_of(with_parts(results), "latency-parts")
    bars = [mark for mark in figure.plot.marks if isinstance(mark, Bar)]
    assert len(bars) == 5 * 3 * 2  # parts, loads and systems
    for row in {bar.y for bar in bars}:
        parts = sorted((bar.x1, bar.x2) for bar in bars if bar.y == row)
        assert all(right[0] == pytest.approx(left[1]) for left, right in pairwise(parts))
    assert "15.50 ms" in words(figure)


def test_scaling_has_the_efficiency_of_compare() -> None:
    results = load_report_results([str(samples.TWO_RANKS)])
    workload = next(each for each in workloads_of(results) if each.curves)
    figure = figure_of(results, f"{workload.anchor}-scaling")
    (curve,) = workload.curves.values()
    (point, ratio) = curve.points[-1]
    assert point.fields["accelerator.count"] == 2 and ratio in [each.efficiency for each in point.row.scalings]
    assert any(f"2 devices: {100 * (ratio.value or 0):.3g}" in title for title in titles(figure))
    assert any(isinstance(mark, Rule) and mark.look == "ideal" for mark in figure.plot.backdrop)


def test_steps_are_shown_only_of_a_run_that_is_not_steady(results: ReportResults) -> None:
    listed = with_steps(results, 7)
    assert not any("step-times" in name for name in names(listed))

    def marked(each: object) -> object:
        observation = each.observation  # type: ignore[attr-defined]
        return replace(each, observation=replace(observation, marks=frozenset({UNSTEADY.code})))  # type: ignore[type-var]

    unsteady = replace(listed, members=tuple(map(marked, listed.members)))  # type: ignore[arg-type]
    figure = figure_of(unsteady, "pictures-training-step-times")
    (line,) = [mark for mark in figure.plot.marks if isinstance(mark, Line)]
    assert len(line.points) == 16 and "drift +20.0%" in figure.note  # without the steps of warm-up

    def failed(each: ReportResult) -> ReportResult:
        fields = {**each.observation.fields, "status.state": "crashed"}
        return replace(each, observation=replace(each.observation, fields=fields))

    lost = replace(unsteady, members=tuple(map(failed, unsteady.members)))
    assert not any("step-times" in name for name in names(lost)), "a run that failed is no measurement"


def test_time_to_target_is_of_those_that_reached_it(results: ReportResults) -> None:
    figure = figure_of(with_targets(results, never="beta"), "pictures-training-target")
    assert [mark.system for mark in figure.plot.marks if isinstance(mark, Bar)] == [0]


def test_bandwidth_is_a_line_over_sizes(results: ReportResults) -> None:
    figure = figure_of(with_microbenchmarks(results), "memory-copy-bandwidth")
    lines = [mark for mark in figure.plot.marks if isinstance(mark, Line)]
    assert [len(line.points) for line in lines] == [5, 5]


def test_generation_shows_tokens_of_the_device_over_those_of_a_user(tmp_path: Path) -> None:
    documents = [
        samples.of_generation(site, size, n) for site in samples.SYSTEMS for size in (8, 16) for n in (1, 2, 3)
    ]
    results = load_report_results([str(samples.write(tmp_path, documents))])
    assert [name.removeprefix("texts-generation-") for name in names(results)][:2] == ["interactivity", "first-token"]
    figure = figure_of(results, "interactivity")
    assert "tokens/s per user" in words(figure) and "tokens/s" in words(figure)


def test_metrics_of_little_spread_start_at_zero_and_of_much_are_logarithmic(results: ReportResults) -> None:
    assert not figure_of(results, "pictures-training-throughput").plot.y.is_log
    spread = with_metric(results, "throughput", "images/s", lambda each: float(batch(each)) ** 4)
    assert figure_of(spread, "pictures-training-throughput").plot.y.is_log


def test_a_label_says_what_a_chart_shows(results: ReportResults) -> None:
    for figure in figures_of_all(results):
        assert "alpha" in figure.plot.label and any(character.isdigit() for character in figure.plot.label)
