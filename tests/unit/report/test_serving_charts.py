"""What a report shows of serving. Nothing was served: the loads are made up, so rules of agreement are off."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from unit.report import samples
from unit.report.chart_results import figure_of, figures_of_all, words, workload_of

from sifmark.report.figures import goodputs
from sifmark.report.load import load_report_results
from sifmark.report.numbers import number_tables
from sifmark.report.results import ReportResults
from sifmark.report.svg import Dot
from sifmark.results import load
from sifmark.results.numbers import format_number

CLIENTS = (1, 4, 16)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportResults]:
    """Closed loops of two systems, and a search for a goodput of each."""
    loads = [(clients, repeat) for clients in (*CLIENTS, None) for repeat in (1, 2, 3)]
    documents = [samples.of_serving(site, *each) for site in samples.SYSTEMS for each in loads]
    folder = samples.write(tmp_path_factory.mktemp("serving"), documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "violations_of", lambda: lambda document, text: iter(()))
        yield load_report_results([str(folder)], "site", "alpha")


def test_the_curve_is_of_a_user_and_a_device(results: ReportResults) -> None:
    figure = figure_of(results, "interactivity")
    dots = [mark for mark in figure.plot.marks if isinstance(mark, Dot) and mark.look == "dot"]
    assert len(dots) == len(CLIENTS) * len(samples.SYSTEMS), "a search has no number of clients"
    alpha = sorted((mark.x, mark.y) for mark in dots if mark.system == 0)
    assert alpha == sorted(alpha, key=lambda place: place[1]), "the faster a user has tokens, the lower on the page"
    assert {"tokens/s per user", "tokens/s"} <= set(words(figure)) and "4 clients" in str(figure.plot)


def test_goodput_is_a_bar_of_each_system_under_the_limits(results: ReportResults) -> None:
    workload = workload_of(results, "serving", "texts")
    ((limits, points),) = goodputs(workload).items()
    assert limits == "2 s / 100 ms"
    assert [point.system for point in points] == list(results.systems)
    text = words(figure_of(results, "goodput"))
    assert limits in text and all(format_number(point.value) in text for point in points)


def test_numbers_of_serving_have_the_goodput_and_its_limits(results: ReportResults) -> None:
    (table,) = number_tables([workload_of(results, "serving", "texts")])
    place = samples.places_of(table)
    (cell,) = {row.cells[place["Goodput"]].small for row in table.rows}
    assert cell == "2 s / 100 ms"
    assert {row.cells[place["Load"]].text for row in table.rows} == {"16"}


def test_a_million_tokens_have_a_price_where_an_hour_of_a_device_has_one(results: ReportResults) -> None:
    priced = replace(results, prices={"currency": "EUR", "per_hour": {"alpha": 3.6}})
    (table,) = number_tables([workload_of(priced, "serving", "texts")])
    prices = {row.cells[0].text: row.cells[samples.places_of(table)["Million tokens"]] for row in table.rows}
    speed = sum(samples.SYSTEMS["alpha"][1] * (1 + repeat / 100) for repeat in (1, 2, 3)) / 3
    assert prices["alpha"].small == "EUR"
    assert float(prices["alpha"].text) == pytest.approx(3.6 / 3600 * 1e6 / (90 * speed * 16 / 20), rel=5e-3)
    assert not prices["beta"].text, "its price is not known"


def test_each_chart_has_a_name_of_its_own(results: ReportResults) -> None:
    assert [figure.name for figure in figures_of_all(results)] == [
        "texts-serving-interactivity",
        "texts-serving-goodput",
        "texts-serving-first-token",
    ]
