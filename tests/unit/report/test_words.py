"""What a report says first: its headline, messages, trust and scorecard follow from the intervals of `compare`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.report import samples
from unit.report.chart_results import workload_of

from sifmark.report.load import load_report_results, references_at
from sifmark.report.report import Report, make_report
from sifmark.report.results import ReportResults
from sifmark.report.scorecard import better_above_one, heat_of, scale_of_group, ticks_of_ratios
from sifmark.report.words import message_of
from sifmark.results.comparison.intervals import Ratio

Speed = Callable[[str, str, int], float]  # of a site, a workload and a batch size
NOISE = (0.997, 1.0, 1.003)


def results_of(
    folder: Path, speed: Speed, sites: tuple[str, ...] = ("alpha", "beta"), batches: tuple[int, ...] = (8, 16, 32),
    workloads: tuple[str, ...] = ("pictures", "texts"), more: tuple[dict[str, Any], ...] = (),
    repeats: int = len(NOISE), **changes: Any,
) -> ReportResults:  # fmt: skip
    def documents() -> Iterator[dict[str, Any]]:
        for site in sites:
            for workload in workloads:
                unit = samples.WORKLOADS[workload][1]
                for batch in batches:
                    for repeat, noise in enumerate(NOISE[:repeats], start=1):
                        value = {"value": speed(site, workload, batch) * noise, "unit": f"{unit}/s"}
                        yield samples.sample(site, workload, batch, repeat, metrics__throughput=value, **changes)
        yield from more

    return load_report_results([str(samples.write(folder, documents()))], "site", "alpha")


def report_of(folder: Path, speed: Speed, **options: Any) -> Report:
    return make_report(results_of(folder, speed, **options), title="A title")


def test_one_leader_is_ahead_everywhere(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda site, _, batch: batch * (2 if site == "beta" else 1))
    assert report.words.headline == "beta is ahead everywhere"
    assert "beta has 2.00 times the throughput of alpha" in report.words.sentences[0]


def test_a_ratio_stands_below_a_headline_only_with_its_interval(tmp_path: Path) -> None:
    def double(site: str, _: str, batch: int) -> float:
        return batch * (2 if site == "beta" else 1)

    alone = report_of(tmp_path / "one", double, workloads=("pictures",))
    assert "beta has 2.0" in alone.words.sentences[0] and " %" in alone.words.sentences[0]
    single = report_of(tmp_path / "single", double, repeats=1)
    assert not any("times the throughput" in sentence for sentence in single.words.sentences)


def test_leaders_are_named_with_what_they_lead(tmp_path: Path) -> None:
    faster = {("beta", "pictures"), ("alpha", "texts")}
    report = report_of(tmp_path, lambda site, workload, batch: batch * (1.5 if (site, workload) in faster else 1))
    assert set(report.words.headline.split(", ")) == {
        "alpha is ahead on Network of texts",
        "beta on Network of pictures",
    } or set(report.words.headline.split(", ")) == {
        "beta is ahead on Network of pictures",
        "alpha on Network of texts",
    }


def test_nobody_leads_where_intervals_reach_one(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda site, _, batch: batch * (1.001 if site == "beta" else 1))
    assert report.words.headline == "No system is shown to be ahead"
    assert report.scorecard is not None
    assert all(workload.leader is None for workload in (strip.workload for strip in report.strips))
    assert report.strips[0].message in ("No difference is shown", "No system is shown to be ahead")


def test_a_leader_is_better_than_every_other_one_not_than_the_baseline_alone(tmp_path: Path) -> None:
    speeds = {"alpha": 1.0, "beta": 2.0, "gamma": 2.001}
    results = results_of(tmp_path, lambda site, _, batch: batch * speeds[site], sites=tuple(speeds))
    assert workload_of(results, "training").leader is None
    speeds["gamma"] = 3.0
    results = results_of(tmp_path / "again", lambda site, _, batch: batch * speeds[site], sites=tuple(speeds))
    leader = workload_of(results, "training").leader
    assert leader is not None and leader.system == "gamma"


def test_a_mark_that_withholds_verdicts_withholds_the_headline(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda site, _, batch: batch * (2 if site == "beta" else 1), steadiness__steady=False)
    assert report.words.headline == "No system is shown to be ahead"
    assert "all 36 results" in report.notices[0].count or report.trust.text.startswith("36 of 36")


def test_one_system_has_the_title_and_its_numbers(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda _, __, batch: float(batch), sites=("alpha",))
    assert report.words.headline == "A title" and report.scorecard is None
    assert "32.00 sequences/s" in report.words.sentences[0]


@pytest.mark.parametrize(
    ("factors", "headline"),
    [
        ((2.0, 2.0), "alpha is ahead, compared with night"),
        ((0.5, 0.5), "alpha is behind, compared with night"),
        ((2.0, 0.5), "alpha is ahead on Network of pictures, behind on Network of texts, compared with night"),
        ((1.0, 1.0), "No difference between alpha and night is shown"),
    ],
)
def test_one_system_is_compared_with_other_results(tmp_path: Path, factors: tuple[float, float], headline: str) -> None:
    by_workload = dict(zip(samples.WORKLOADS, factors, strict=True))
    ours = results_of(tmp_path / "ours", lambda _, name, batch: batch * by_workload[name], sites=("alpha",))
    results_of(tmp_path / "night", lambda _, __, batch: float(batch), sites=("alpha",))
    references = references_at(str(tmp_path / "night"), "site")
    report = make_report(replace(ours, references=references, reference_name="night"))
    assert report.words.headline == headline


def test_failures_are_counted_below_the_headline(tmp_path: Path) -> None:
    lost = (samples.failure("beta", "pictures", 64), samples.failure("beta", "texts", 64, "crashed"))
    report = report_of(tmp_path, lambda _, __, batch: float(batch), more=lost)
    assert "2 of 38 runs are no measurement: 1 out of memory and 1 crashed" in report.words.sentences[1]


def test_curves_that_cross_are_the_message(tmp_path: Path) -> None:
    def speed(site: str, _: str, batch: int) -> float:
        return batch if site == "alpha" else {8: 6.0, 16: 20.0, 32: 50.0}[batch]

    workload = workload_of(results_of(tmp_path, speed), "training")
    assert message_of(workload) == "beta is ahead of alpha from batch size 16 on"


def test_the_system_that_runs_out_of_memory_first_is_the_message(tmp_path: Path) -> None:
    def without_32(site: str, batch: int) -> Iterator[dict[str, Any]]:
        for repeat in NOISE:
            yield samples.sample(site, "pictures", batch, NOISE.index(repeat) + 1)

    more = (*without_32("alpha", 64), samples.failure("beta", "pictures", 64))
    results = results_of(tmp_path, lambda site, _, batch: 2.0 * batch if site == "beta" else batch, more=more)
    assert message_of(workload_of(results, "training")) == "beta runs out of memory first, at batch size 64"


def test_a_curve_that_saturates_says_beyond_which_load(tmp_path: Path) -> None:
    def speed(site: str, _: str, batch: int) -> float:
        return {8: 50.0, 16: 100.0, 32: 100.5}[batch] * (1.5 if site == "beta" else 1)

    message = message_of(workload_of(results_of(tmp_path, speed), "training"))
    assert message == "beta is ahead at every batch size; beyond batch size 16 no system gains 5 %"


def test_the_leader_is_the_message_where_nothing_else_is(tmp_path: Path) -> None:
    workload = workload_of(
        results_of(tmp_path, lambda site, _, batch: batch * (2 if site == "beta" else 1)), "training"
    )
    assert message_of(workload) == "beta is ahead at every batch size"


def test_trust_says_whether_ratios_rest_on_reservations(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda site, _, batch: batch * (2 if site == "beta" else 1))
    assert report.trust.verdict == "Do not publish yet:" or not report.notices
    marked = tuple(
        samples.sample("beta", "pictures", 32, repeat, provenance__simulated=True, host__hostname={"value": "other"})
        for repeat in (4, 5, 6)
    )
    report = report_of(tmp_path / "marked", lambda _, __, batch: float(batch), more=marked)
    assert " ratios below rest" in report.trust.text or " ratio below rests" in report.trust.text


def test_the_scorecard_has_the_ratios_of_compare_and_right_is_better(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda site, _, batch: batch * (2 if site == "beta" else 1))
    assert report.scorecard is not None
    for point in report.scorecard.points:
        (row,) = (
            row
            for table in report.results.compare(point.metric).tables
            for row in table.rows
            if {each.id for each in row.observations} == {each.observation.id for each in point.results}
        )
        assert point.ratio == row.ratios[point.metric]
    cells = [cell for group in report.scorecard.groups for cell in group.cells]
    energy = next(cell for cell in cells if cell.metric == "energy_per_unit")
    (score,) = energy.scores
    assert score.point.ratio is not None and score.point.ratio.value is not None
    assert score.point.ratio.value < 1 < (score.ratio.value or 0) and score.verdict == "better"


@pytest.mark.parametrize("metric", ["throughput", "energy_per_unit"])
def test_a_ratio_that_is_turned_round_keeps_its_interval(metric: str) -> None:
    turned = better_above_one(Ratio(0.5, 0.4, 0.8), metric)
    expected = (0.5, 0.4, 0.8) if metric == "throughput" else (2.0, 1.25, 2.5)
    assert (turned.value, turned.low, turned.high) == expected


@pytest.mark.parametrize("factor", [1.001, 1.4, 30.0])
def test_cells_have_room_for_their_words_and_ticks_that_do_not_touch(tmp_path: Path, factor: float) -> None:
    report = report_of(tmp_path, lambda site, _, batch: batch * (factor if site == "beta" else 1))
    assert report.scorecard is not None
    (group,) = report.scorecard.groups
    scale = scale_of_group(group, {"alpha": "alpha", "beta": "beta"})
    assert scale.low < 1 < scale.high
    for cell in group.cells:
        for score in cell.scores:
            assert 0.03 < scale.share(score.ratio.value or 1.0) < 0.97
    assert 1.0 in ticks_of_ratios(scale)


def test_a_heat_map_has_deeper_shades_of_larger_ratios(tmp_path: Path) -> None:
    factors = {"alpha": 1.0, "a": 1.02, "b": 1.2, "c": 3.0, "d": 0.95, "e": 0.5, "f": 1.0001}
    report = report_of(tmp_path, lambda site, _, batch: batch * factors[site], sites=tuple(factors))
    assert report.scorecard is not None
    heat = heat_of(report.scorecard)
    cells = {row.system: row.cells[1] for row in heat.rows}
    shades = {name: cell.look for name, cell in cells.items()}
    assert (shades["b"], shades["c"], shades["d"], shades["e"]) == ("b2", "b3", "w1", "w3")
    assert shades["f"] == "" and cells["f"].text.endswith(("≈", "?"))
    assert [column.note for column in heat.columns[1:]] == ["training, batch size 32"] * 2


def test_workloads_are_ordered_by_what_was_done(tmp_path: Path) -> None:
    report = make_report(load_report_results([str(samples.study(tmp_path))]))
    assert [strip.anchor for strip in report.strips] == ["pictures-training", "texts-training", "pictures-requests"]


def test_batch_sizes_of_one_system_are_compared_by_batch_size(tmp_path: Path) -> None:
    folder = samples.write(
        tmp_path, (samples.sample("alpha", "pictures", batch, n) for batch in (16, 32) for n in (1, 2, 3))
    )
    hint = "To compare by batch size: --by batch_size."
    assert hint in make_report(load_report_results([str(folder)])).words.sentences
    report = make_report(load_report_results([str(folder)], by="configuration.batch_size"))
    assert hint not in report.words.sentences and report.words.headline == "batch size 32 is ahead"
    assert any("times the throughput of batch size 16" in each for each in report.words.sentences)
    (table,) = report.numbers
    assert not any(column.head == "Next larger batch" for column in table.columns), (
        "a size is no system that may try more"
    )
