"""What a stranger needs on the first screen: what systems are, what is missing, and marks beside every number."""

from pathlib import Path
from typing import Any

from unit.report import samples

from sifmark.core import paths
from sifmark.report.checks import checks
from sifmark.report.describe import failure_text
from sifmark.report.load import load_report_results
from sifmark.report.page import render_page
from sifmark.report.report import Report, make_report
from sifmark.report.systems import FACTS, values_of
from sifmark.results.marks import SHORT_WINDOW, UNSTEADY
from sifmark.results.summary import summary


def report_of(folder: Path, *documents: dict[str, Any]) -> Report:
    return make_report(load_report_results([str(samples.write(folder, documents))], by="site"))


def test_each_number_of_a_row_has_its_marks(tmp_path: Path) -> None:
    runs = [
        samples.of_requests(site, clients, n, steadiness__steady=site != "beta")
        for site in samples.SYSTEMS
        for clients in (1, 4)
        for n in (1, 2, 3)
    ]
    report = report_of(tmp_path, *runs)
    (table,) = report.numbers
    place = samples.places_of(table)
    assert [row.system for row in table.rows] == list(samples.SYSTEMS)
    for row in table.rows:
        for head in ("Throughput", "Latency", "Rate within a time", "Energy"):
            assert (UNSTEADY in row.cells[place[head]].marks) == (row.system == "beta"), head
    page = render_page(report)
    assert page.count('<abbr class="chip" title="not steady">') > len(table.columns)


def test_a_load_of_one_is_a_client(tmp_path: Path) -> None:
    runs = [samples.of_requests(site, clients, n) for site in samples.SYSTEMS for clients in (1, 2) for n in (1, 2, 3)]
    assert "1 client" in (page := render_page(report_of(tmp_path, *runs))) and "1 clients" not in page


def test_cards_that_say_the_same_name_what_differs(tmp_path: Path) -> None:
    report = report_of(
        tmp_path,
        *(
            samples.sample(
                *(site, "pictures", batch, n),
                accelerator__name="One device",
                configuration__compile=site == "beta",
                configuration__threads=2,
            )
            for site in samples.SYSTEMS
            for batch in (8, 16)
            for n in (1, 2, 3)
        ),
    )
    assert [card.apart for card in report.cards] == ["compile false", "compile true"]
    assert "unlike the others: <b><bdi>compile true</bdi></b>" in render_page(report)


def test_cards_that_differ_need_no_more_words(tmp_path: Path) -> None:
    report = report_of(tmp_path, *(samples.sample(site, "pictures", 8) for site in samples.SYSTEMS))
    assert [card.apart for card in report.cards] == ["", ""]


def test_a_processor_has_cores_and_the_memory_of_its_host() -> None:
    report = make_report(load_report_results([str(samples.TWO_RANKS)]))
    (card,) = report.cards
    assert card.facts[0] == "1 to 2 of 2 cores, 23.54 GiB"
    assert "<p>energy not measured: <bdi>no meter was asked for (--meter none)</bdi></p>" in render_page(report)
    assert not any(fact == "memory of a device" for fact, *_ in samples.texts_of(report.systems))


def test_a_framework_of_unknown_version_is_not_another_one() -> None:
    software = {"framework": "pytorch", "framework_version": "2.13.0", "libraries": {}}
    versions = ({**software}, {**software, "framework_version": None})
    documents = [{"provenance": {"software": each}} for each in versions]
    assert values_of(documents, FACTS["framework"]) == "pytorch 2.13.0"


def test_an_inconsistent_run_is_explained(tmp_path: Path) -> None:
    good = samples.sample("alpha", "pictures", 8)
    report = report_of(tmp_path, good, samples.failure("alpha", "pictures", 64, "inconsistent"))
    (failure,) = report.results.failures
    assert "contradict each other" in failure_text(failure) and failure_text(failure) in render_page(report)


def test_a_window_too_short_for_a_drift_is_a_reservation_wherever_marks_are() -> None:
    report = make_report(load_report_results([str(paths.CHECKOUT / "tests" / "fixtures" / "h200")]))
    (notice,) = (each for each in report.notices if each.mark is SHORT_WINDOW)
    (run,) = notice.results
    assert run.document["workload"]["name"] == "lstm" and SHORT_WINDOW.code in run.observation.marks
    assert "35 timed steps where 40 are needed" in checks(report)
    assert any("short window" in line for line in summary(run.document))


def test_settings_of_the_environment_are_with_systems_methods_and_runs(tmp_path: Path) -> None:
    wait = {"OMP_WAIT_POLICY": "PASSIVE"}
    waits: tuple[dict[str, str], ...] = (wait, {"OMP_NUM_THREADS": "2", **wait}, {})
    runs = (
        samples.sample("alpha", "pictures", 8, n, environment={"variables": each, "preloaded": []})
        for n, each in enumerate(waits, 1)
    )
    report = report_of(tmp_path, *runs)
    both = "OMP_NUM_THREADS=2; OMP_WAIT_POLICY=PASSIVE"
    assert ("environment", f"{both}, OMP_WAIT_POLICY=PASSIVE") in samples.texts_of(report.systems)
    assert any(f"settings by the environment {both}, OMP_WAIT_POLICY=PASSIVE, none" in each for each in report.methods)
    entries = render_page(report).partition('id="runs"')[2].split('class="entry')[1:]
    assert [both in each for each in entries] == [False, True, False], "runs that differ in it are no repeats"


def test_memory_below_a_gibibyte_is_in_the_unit_of_charts(tmp_path: Path) -> None:
    used = {"value": 372.4, "unit": "MiB"}
    runs = [samples.sample("alpha", "pictures", 8, n, metrics__peak_process_memory=used) for n in (1, 2, 3)]
    report = report_of(tmp_path, *runs)
    (table,) = report.numbers
    cell = table.rows[0].cells[samples.places_of(table)["Memory"]]
    assert (cell.text, cell.small) == ("372", "MiB on the host")
    page = render_page(report)
    assert "Bold: ahead" not in page and "(measurements:" not in page, "one system, and no failure"


def test_an_operating_system_is_that_of_the_image_if_there_is_one() -> None:
    report = make_report(load_report_results([str(samples.TWO_RANKS)]))
    (outside,) = {each.document["provenance"]["image"] is None for each in report.results.members}
    facts = {fact for fact, *_ in samples.texts_of(report.systems)}
    name = "operating system" if outside else "operating system of the image"
    assert {each for each in facts if "operating system" in each} == {name}
