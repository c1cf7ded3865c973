"""Sites of reports: what their pages say, where their links lead, and that their numbers are those of compare."""

import base64
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused
from unit.report.samples import REPEATS, failure, of_requests, sample, study
from unit.report.samples import write as write_results
from unit.report.sites import ALONE, LOWERED, NIGHTS, Elements, broken_links, night, pages, results_of_nights, write
from unit.studies.histories import FIRST, HOST, nights, write_nights

from sifmark.commands.command_line import main
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.report.describe import quantity_text
from sifmark.report.site.read import in_processes, read_results
from sifmark.report.site.rows import measured
from sifmark.report.site.site import SiteOptions, make_site
from sifmark.report.svg import Bar, Dot, Rule, Text
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.query import Query
from sifmark.results.load import REPORT_MARKER, load_results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a study and of nights."""
    return results_of_nights(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def target(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of these results."""
    folder = tmp_path_factory.mktemp("out") / "public"
    write(results, folder)
    return folder


def text_of(target: Path, name: str) -> str:
    return Elements(pages(target)[name]).text


def without_site() -> dict[str, Any]:
    """A valid result that names no site."""
    document = sample("beta", "pictures", 8) | {"site": None}
    command = document["provenance"]["command"]
    document["provenance"]["command"] = [word for word in command if not word.startswith("--site")]
    return document


def test_there_is_a_page_for_each_study_system_device_workload_and_series(target: Path) -> None:
    names = set(pages(target))
    assert {"index.html", "history.html", "studies/quick.html", "studies/nights.html"} <= names
    assert {"workloads/night.html", "workloads/pictures.html", "systems/alpha.html", "systems/beta.html"} <= names
    assert sum(name.startswith("devices/accelerator-") for name in names) == 4
    assert sum(name.startswith("history/night-training-") for name in names) == 2


def test_every_link_leads_to_a_page_of_the_site_and_to_an_anchor_there(target: Path) -> None:
    assert list(broken_links(target)) == []


def test_pages_load_nothing_but_their_style_and_one_has_a_script_that_its_policy_names(target: Path) -> None:
    for name, page in pages(target).items():
        elements = Elements(page)
        assert not {"iframe", "object", "embed", "form", "img"} & elements.tags, name
        scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        assert len(scripts) == (name == "results.html") and page.count("<script") == len(scripts), name
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
        assert re.findall(r"script-src 'sha256-([^']*)';", page) == hashes and len(page.split("script-src")) < 3, name
        assert all(len(text) < 3000 for text in scripts)
        assert not any(attribute.startswith("on") or attribute == "style" for attribute in elements.attributes), name
        assert not any(re.match(r"[a-z]+:|//|/", link) for link in elements.links), name
        assert "default-src 'none'; style-src 'self'" in page
        assert len(elements.anchors) == len(set(elements.anchors)), name
    style = (target / "style.css").read_text()
    assert (
        "url(" not in style and "@import" not in style and "prefers-color-scheme" in style and "@media print" in style
    )


def test_the_first_page_has_the_newest_study_first_and_what_became_of_its_runs(target: Path) -> None:
    text = text_of(target, "index.html")
    assert text.index("48 completed") < text.index("A new device in fifteen minutes")
    assert "54 completed, 1 out of memory, 1 crashed" in text


def test_the_first_page_has_the_best_throughput_of_each_workload_on_each_system(results: Path, target: Path) -> None:
    text = text_of(target, "index.html").partition("The best of each workload")[2].replace("\n", " ")
    rows = [row for facet in make_site(results, ALONE).workloads for row in facet.measured.rows]
    rows.sort(key=lambda row: float(row.text.split()[0].replace(",", "")))
    best = {(row.title, row.task, row.system): row.text for row in rows}
    assert len(best) > 4 and all(number in " ".join(text.split()) for number in best.values())


def test_a_change_of_performance_is_on_the_first_page_with_what_changed(target: Path) -> None:
    text = text_of(target, "index.html")
    change = text.index("driver 550.54 → 560.28")
    assert "slower" in text[:change] and "night training alpha" in text[:change]
    assert f"{FIRST.date().replace(day=1 + LOWERED)}" in text[:change]


def test_the_page_of_a_series_has_a_chart_with_the_change_and_both_periods(results: Path) -> None:
    site = make_site(results, ALONE)
    (series,) = [each for each in site.history.series if each.history.changes]
    plot = site.history_charts[series.page].plot
    assert sum(isinstance(mark, Dot) for mark in plot.marks) == NIGHTS
    assert [mark.words for mark in plot.marks if isinstance(mark, Text)] == ["1"]
    (change,) = [mark for mark in plot.backdrop if isinstance(mark, Rule) and mark.title]
    assert "driver 550.54 → 560.28" in change.title and change.x1 == change.x2
    before, after = [mark for mark in plot.backdrop if isinstance(mark, Bar)]
    assert before.x2 < change.x1 <= after.x1 and before.y < after.y, "lower on the page is slower"
    assert [row.cells[2].text for row in series.period_table.rows] == [str(LOWERED), str(NIGHTS - LOWERED)]


def test_the_first_page_opens_with_what_changed_then_systems_then_workloads(target: Path) -> None:
    anchors = [name for name in Elements(pages(target)["index.html"]).anchors if "-" not in name]
    assert anchors == ["content", "changes", "systems", "workloads", "studies"]


def test_the_first_page_needs_two_lines_to_say_that_nothing_changed(tmp_path: Path) -> None:
    write_nights(tmp_path / "nights" / "beta", nights(5, NIGHTS), **night("beta"))
    write(tmp_path / "nights", tmp_path / "site")
    changes = pages(tmp_path / "site")["index.html"].partition('id="changes"')[2].partition("</section>")[0]
    assert changes.count("<p") == 2 and "<table" not in changes
    assert "No change of throughput in 1 series" in Elements(changes).text


def test_the_list_of_results_has_each_measurement_with_its_number_to_sort_by_and_each_failure(
    results: Path, target: Path
) -> None:
    site, page = make_site(results, ALONE), pages(target)["results.html"]
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert body.count("<tr>") == len(site.rows) + len(site.failures) > 10
    rates = re.findall(r'data-label="throughput" data-sort="([^"]*)"', body)
    assert [float(rate) for rate in rates] == pytest.approx([row.order[0] for row in site.rows], rel=1e-6)
    latencies = re.findall(r'data-label="latency" data-sort="([^"]*)"', body)
    assert latencies.count("") == sum(row.order[1] is None for row in site.rows) + len(site.failures)
    assert {"out of memory", "crashed"} <= set(re.findall(r'data-label="state" data-sort="">([^<]*)<', body))


def test_times_have_the_unit_that_suits_them(target: Path) -> None:
    text = text_of(target, "results.html")
    assert re.search(r"[\d.]+ ms ± [\d.]+ % p99", text) and not re.search(r"\b0\.0\d+ s\b", text)


def test_a_system_has_the_same_look_in_the_charts_of_all_workloads(tmp_path: Path) -> None:
    documents = [sample("beta", "texts", batch) for batch in (8, 16)]
    documents += [sample(site, "pictures", batch) for site in ("alpha", "beta") for batch in (8, 16)]
    site = make_site(write_results(tmp_path / "s", documents), ALONE)
    marks = [
        (mark.words, mark.system)
        for facet in site.workloads
        for figures in facet.charts.values()
        for figure in figures
        for mark in figure.plot.marks
        if isinstance(mark, Text) and mark.look == "end"
    ]
    assert set(marks) == {("alpha", 0), ("beta", 1)}


def test_several_folders_make_one_site(results: Path) -> None:
    whole = make_site(results, ALONE)
    parts = make_site([folder for folder in sorted(results.iterdir()) if folder.is_dir()], ALONE)
    assert {each.id for each in parts.results.members} == {each.id for each in whole.results.members}
    assert [page.study.name for page in parts.studies] == [page.study.name for page in whole.studies]


def test_numbers_are_those_of_compare(results: Path) -> None:
    site = make_site(results, ALONE)
    comparison = compare_results([str(results / "quick")], Query(("throughput",), more_fields=("site",)))
    expected = {
        (
            table.title,
            row.fields["site"],
            quantity_text(row.means["throughput"], table.units["throughput"]),
            len(row.observations),
        )
        for table in comparison.tables
        for unit in (table.units["throughput"],)
        for row in table.rows
    }
    (page,) = [page for page in site.studies if page.study.name == "quick"]
    assert {(row.title, row.system, row.text, row.repeats) for row in page.measured.rows} == expected
    of_systems = {row for facet in site.systems for row in facet.measured.rows if row.workload != "night"}
    assert {(row.title, row.system, row.text, row.repeats) for row in of_systems} == expected


def test_failures_are_named_with_their_reason_and_without_a_number(target: Path) -> None:
    text = text_of(target, "workloads/pictures.html")
    failed = text[text.rindex("No measurement") :]
    assert "batch size 64" in failed and "out of memory" in failed and "images/s" not in failed


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"provenance__stand_in": True}, "test base"),
        ({"provenance__simulated": True}, "simulated"),
        ({"numerics__state": "not_run"}, "correctness not shown"),
    ],
)
def test_results_that_are_not_for_publication_have_their_mark_on_every_page(
    tmp_path: Path, change: dict[str, Any], name: str
) -> None:
    documents = [sample("alpha", "pictures", 8, repeat, **change) for repeat in range(1, REPEATS + 1)]
    written = write(write_results(tmp_path / "results" / "s", documents), tmp_path / "site")
    shown = [page for page in written.values() if "images/s" in page]
    assert len(shown) >= 4  # of the study, the workload, the site and the device
    assert all("Not for publication: " in Elements(page).text and name in page for page in shown)


def test_what_compare_refuses_has_no_number_on_the_page_of_both_but_on_those_of_its_studies(tmp_path: Path) -> None:
    real = [sample("alpha", "pictures", 8, repeat) for repeat in (1, 2, 3)]
    stand_in = [sample("alpha", "pictures", 8, repeat, provenance__stand_in=True) for repeat in (1, 2, 3)]
    write_results(tmp_path / "results" / "vendor", real)
    write_results(tmp_path / "results" / "tests", stand_in)
    written = write(tmp_path / "results", tmp_path / "site")
    both = Elements(written["workloads/pictures.html"]).text
    assert re.search(r"provenance.stand_in differs \(\w+: 3, \w+: 3\): a test base says nothing", both)
    assert "images/s" not in both
    assert "images/s" in written["studies/vendor.html"] and "test base" not in written["studies/vendor.html"]
    assert "images/s" in written["studies/tests.html"] and "test base" in written["studies/tests.html"]


def test_mixed_meters_refuse_energy_and_not_throughput(tmp_path: Path) -> None:
    documents = [sample(name, "pictures", 8, repeat) for name in ("alpha", "beta") for repeat in (1, 2, 3)]
    members = read_results(write_results(tmp_path / "s", documents), processes=1).members
    for each in members:
        scope = "node" if each.observation.fields["site"] == "alpha" else "board"
        each.observation.fields["power.scope"] = scope
    both = measured(members, "site")
    assert [row.system for row in both.rows] == ["alpha", "beta"] and {row.energy for row in both.rows} == {""}
    assert len(both.refused) == 1 and "power.scope differs" in both.refused[0]
    alone = measured([each for each in members if each.observation.fields["site"] == "alpha"], "site")
    assert alone.rows[0].energy and not alone.refused


def test_files_that_are_not_valid_and_copies_are_named_and_counted(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "s", [sample("alpha", "pictures", 8)])
    (folder / "copy.json").write_bytes(next(folder.iterdir()).read_bytes())
    (folder / "broken.json").write_text("{")
    write(folder, tmp_path / "site")
    text = text_of(tmp_path / "site", "index.html")
    assert "not valid: broken.json: is not JSON" in text and "1 copy of results" in text


def test_a_folder_without_results_or_without_a_valid_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no result"):
        make_site(tmp_path, ALONE)
    (tmp_path / "broken.json").write_text("{")
    with refused(SifmarkError, "result-invalid"):
        make_site(tmp_path, ALONE)


def test_a_file_or_nothing_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    for name in ("a.json", "missing"):
        with refused(UsageError, "result-missing"):
            make_site(tmp_path / name, ALONE)


def _ended(items: Sequence[int]) -> list[int]:
    os._exit(3)


def test_a_process_that_is_killed_is_an_error_and_not_an_endless_wait() -> None:
    with refused(SifmarkError, "run-failed"):
        list(in_processes(_ended, range(8), 1, 2))


def test_one_result_makes_a_site_without_history(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "s", [sample("alpha", "pictures", 8)])
    written = write(folder, tmp_path / "site")
    assert "there is no history yet" in written["history.html"] and list(broken_links(tmp_path / "site")) == []
    assert "few repeats" in written["workloads/pictures.html"]


def test_only_failures_make_a_site_too(tmp_path: Path) -> None:
    write(write_results(tmp_path / "s", [failure("alpha", "pictures", 8)]), tmp_path / "site")
    assert list(broken_links(tmp_path / "site")) == []
    assert "out of memory" in text_of(tmp_path / "site", "index.html")


def test_the_same_results_give_the_same_bytes_in_any_number_of_processes(
    results: Path, target: Path, tmp_path: Path
) -> None:
    write(results, tmp_path / "again", SiteOptions(processes=3))
    contents = [
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (target, tmp_path / "again")
    ]
    assert contents[0] == contents[1]


def test_several_processes_read_the_same_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study(tmp_path / "s")
    monkeypatch.setattr("sifmark.report.site.read._FILES_AT_ONCE", 5)
    alone, together = (read_results(tmp_path, processes=count) for count in (1, 3))
    assert alone.members == together.members and len(alone.members) == 56


def test_systems_are_devices_where_a_result_names_no_site(tmp_path: Path) -> None:
    documents = [sample("alpha", "pictures", 8), without_site()]
    written = write(write_results(tmp_path / "s", documents), tmp_path / "site")
    assert not any(name.startswith("systems/") for name in written)
    assert list(broken_links(tmp_path / "site")) == []


def test_another_field_may_name_the_systems(tmp_path: Path) -> None:
    documents = [of_requests("alpha", 1, repeat) for repeat in (1, 2)]
    folder = write_results(tmp_path / "s", documents)
    written = write(folder, tmp_path / "site", dataclasses.replace(ALONE, by="host.hostname.value"))
    assert "systems/alpha-node.html" in written
    with refused(UsageError, "unknown-name"):
        make_site(folder, dataclasses.replace(ALONE, by="host.hostnaem"))


def test_the_number_of_charts_is_bounded_and_what_is_not_drawn_has_its_table(results: Path, tmp_path: Path) -> None:
    options = dataclasses.replace(ALONE, most_charts=2)
    assert make_site(results, options).chart_count == 2
    written = write(results, tmp_path / "site", dataclasses.replace(ALONE, most_charts=0))
    series = [page for name, page in written.items() if name.startswith("history/")]
    assert series and all("This series is not drawn" in page and "<table" in page for page in series)
    assert not any("<figure" in page for page in series)


@pytest.mark.full
def test_a_long_history_is_drawn_by_session(tmp_path: Path) -> None:
    write_nights(tmp_path / "nights", nights(1, 140), repeats=3, **night("alpha"))
    site = make_site(tmp_path, ALONE)
    (chart,) = site.history_charts.values()
    assert sum(isinstance(mark, Dot) for mark in chart.plot.marks) == 140
    assert "the mean of a session" in chart.note


def report_in(folder: Path) -> Path:
    """A folder that looks like a report, with a link that leads out of it."""
    for name in ("index.html", "methods.md", "plots/a.svg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}")
    (folder / "trace.json").write_text("{}")
    (folder / REPORT_MARKER).write_text('{"files": []}')
    (folder / "secret.txt").symlink_to("/etc/passwd")
    (folder / "odd name.txt").write_text("")
    return folder


def test_the_report_of_a_study_is_copied_and_linked_and_its_files_are_no_results(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results" / "quick" / "alpha", [sample("alpha", "pictures", 8)])
    report_in(folder.parent / "report")
    (folder.parent / ".study.json").write_text('{"name": "quick", "title": "Quick"}')
    target = tmp_path / "site"
    written = write(tmp_path / "results", target)
    assert "reports/quick/index.html" in written["index.html"] and list(broken_links(target)) == []
    copied = {file.relative_to(target / "reports/quick").as_posix() for file in (target / "reports").rglob("*.*")}
    assert copied == {"index.html", "methods.md", "trace.json", "plots/a.svg"}
    assert "not valid" not in written["index.html"]
    assert [result.problems for result in load_results(str(tmp_path / "results"))] == [()]


def test_results_are_copied_and_linked_if_asked_for(tmp_path: Path) -> None:
    folder = write_results(
        tmp_path / "results" / "s", [sample("alpha", "pictures", 8), failure("alpha", "pictures", 16)]
    )
    target = tmp_path / "site"
    write(tmp_path / "results", target, dataclasses.replace(ALONE, with_results=True))
    for file in folder.iterdir():
        assert (target / "results" / "s" / file.name).read_bytes() == file.read_bytes()
    assert f'href="../results/s/{file.name}"' in pages(target)["workloads/pictures.html"]
    assert list(broken_links(target)) == []


def test_the_site_itself_may_be_among_the_results(tmp_path: Path) -> None:
    write_results(tmp_path / "s", [sample("alpha", "pictures", 8)])
    options = dataclasses.replace(ALONE, with_results=True)
    first = write(tmp_path, tmp_path / "public", options)
    assert write(tmp_path, tmp_path / "public", options) == first


def test_an_anonymous_site_names_no_host_user_or_path(tmp_path: Path) -> None:
    secrets = {"host__hostname": {"value": "secret-host.site.example"}, "configuration__data_path": "/home/jane/data"}
    documents = [sample("alpha", "pictures", 8, repeat, **secrets) for repeat in (1, 2, 3)]
    failed = failure("alpha", "pictures", 16)
    failed["status"]["message"] = "no such file: /home/jane/data on secret-host.site.example"
    folder = write_results(tmp_path / "results" / "jane-study", [*documents, failed])
    changes = {HOST: ["secret-host"] * 12 + ["other-host"] * 12, "accelerator__name": "Accelerator N"}
    write_nights(folder / "nights", nights(1, 24), **night("alpha", **changes))
    report_in(folder / "report")
    target = tmp_path / "site"
    write(tmp_path / "results", target, dataclasses.replace(ALONE, anonymous=True))
    for file in target.rglob("*"):
        name = file.relative_to(target).as_posix()
        content = name if file.is_dir() else name + file.read_text()
        assert not re.search(r"jane|secret|other-host", content), name
    assert list(broken_links(target)) == []
    assert "alpha" in pages(target)["index.html"]
    write(tmp_path / "results", target, dataclasses.replace(ALONE, anonymous=True, anonymous_sites=True))
    assert not any("alpha" in page for page in pages(target).values()) and "site-1" in pages(target)["index.html"]
    with pytest.raises(UsageError, match="anonymous"):
        make_site(folder, SiteOptions(anonymous=True, with_results=True))


def test_the_command_writes_a_site_and_says_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results(tmp_path / "s", [sample("alpha", "pictures", 8)])
    monkeypatch.chdir(tmp_path)
    assert main(["report.site", "s", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["results"] == 1 and answer["folder"] == "public" and (tmp_path / "public" / "index.html").is_file()
    assert main(["report.site", "s", "--output", "s"]) == 2
