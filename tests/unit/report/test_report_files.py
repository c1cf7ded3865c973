"""The files beside a page: the numbers of `compare`, whatever texts results have, and the same bytes each time."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.report import samples

from sifmark.report.citations import works_of
from sifmark.report.describe import mean_text
from sifmark.report.files import FILE_NAMES, MOST_ON_PAPER, report_files
from sifmark.report.forms import Figure
from sifmark.report.latex import bibliography, latex_table, latex_text
from sifmark.report.load import load_report_results
from sifmark.report.markdown import citations_text
from sifmark.report.outputs.measured import Chart
from sifmark.report.report import Report, make_report
from sifmark.report.results import PublishedMark
from sifmark.report.svg import SHARES, Plot
from sifmark.report.tables import Cell, Column, Kind, Row, Table, flat, plain_table
from sifmark.results import tidy
from sifmark.results.comparison.exports import as_json
from sifmark.results.comparison.tables import ratio_text
from sifmark.results.marks import TEST_BASE
from sifmark.studies.load import load_study

HOSTILE = '\\input{/etc/passwd} $x^2$ 50% a_b #1 & <script>alert(1)</script> [x](http://y) |=1+1| `q` "z"'
UNESCAPED = re.compile(r"(?<!\\)[#$%&_^~]|(?<!\\)\\(?![a-zA-Z#$%&_{}\\,])")


def documents() -> Iterator[dict[str, Any]]:
    """Two systems with two batches, three times each; one run that failed, one on a test base, a smoke run."""
    for repeat in (1, 2, 3):
        for site in samples.SYSTEMS:
            yield from (samples.sample(site, "pictures", batch, repeat) for batch in (8, 16))
    yield samples.failure("alpha", "pictures", 64)
    yield samples.sample("beta", "texts", 8, provenance__stand_in=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.write(tmp_path_factory.mktemp("study") / "results", documents())


@pytest.fixture(scope="module")
def report(results: Path) -> Report:
    return make_report(load_report_results([str(results)], by="site"))


@pytest.fixture(scope="module")
def files(report: Report) -> dict[str, str]:
    return report_files(report)


@pytest.fixture(scope="module")
def paper(report: Report) -> dict[str, str]:
    return report_files(report, paper=True)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_file_is_there_and_ends_with_a_line(files: dict[str, str]) -> None:
    assert set(FILE_NAMES) <= set(files)
    assert {"tables/numbers-training-throughput.csv", "tables/systems.md", "tables/pictures-training.md"} <= set(files)
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in files.values())


def test_the_order_of_paths_changes_no_byte(results: Path, files: dict[str, str]) -> None:
    paths = sorted(str(path) for path in results.iterdir())
    again = report_files(make_report(load_report_results([*paths[::-1], *paths[:3]], by="site")))
    assert again | {"checks.txt": ""} == files | {"checks.txt": ""}
    assert again["checks.txt"] == files["checks.txt"]


def test_summary_has_what_compare_has(report: Report, files: dict[str, str]) -> None:
    ours = {
        (row["workload.title"], row["site"], row["batch_size"], row["metric"]): row
        for row in rows(files["summary.csv"])
    }
    for metric in report.results.metrics:
        for table in json.loads(as_json(report.results.compare(metric)))["tables"]:
            for line in table["rows"]:
                fields = line["fields"]
                row = ours.pop((table["workload.title"], fields["site"], str(fields["batch_size"]), metric))
                for name in ("value", "low", "high", "ratio", "ratio_low", "ratio_high"):
                    wanted = line["metrics"][metric][name]
                    assert row[name] == ("" if wanted is None else str(wanted))
    assert not ours


def test_runs_have_every_repeat_with_its_marks_and_why_it_is_left_out(files: dict[str, str]) -> None:
    table = rows(files["runs.csv"])
    assert list(table[0]) == ["system", *tidy.columns(tidy.Table.RUNS), "left_out"]
    speeds = [row for row in table if row["metric"] == "throughput"]
    assert len(speeds) == 14 and len({row["id"] for row in speeds}) == 14
    (failed,) = [row for row in speeds if row["status.state"] == "out_of_memory"]
    assert failed["value"] == "" and failed["left_out"].startswith("status.state out_of_memory")
    (test_base,) = [row for row in speeds if row["workload.name"] == "texts"]
    assert "test base" in test_base["marks"]


def test_tables_have_the_numbers_as_compare_prints_them(
    report: Report, files: dict[str, str], paper: dict[str, str]
) -> None:
    texts = files["tables/pictures-training.md"], files["report.md"].replace("\\[", "[")
    for point in report.results.sections[0].points("throughput"):
        for text in texts:
            assert mean_text(point.mean) in text
            assert point.ratio is None or ratio_text(point.ratio, point.unit) in text
    tex = paper["tables/pictures-training.tex"]
    number, percent = re.findall(r"[\d.]+", mean_text(report.results.sections[0].points("throughput")[0].mean))
    assert f"{number} & \\textpm{{}} \\num{{{percent}}} \\%" in tex
    assert re.search(r"\\num\{1\.6\d*\}\$\\times\$ faster", tex)
    assert not any(name.endswith(".tex") for name in files), "LaTeX is for papers"


def test_a_number_that_is_not_for_publication_is_marked_wherever_it_is(
    files: dict[str, str], paper: dict[str, str]
) -> None:
    names = ("numbers-training-throughput", "texts-training")
    lines = [line for name in names for line in files[f"tables/{name}.md"].splitlines()]
    marked = [line for line in lines if "Network of texts" in line or line.startswith("| 8 |")]
    assert len(marked) == 2 and all("(T,R)" in line for line in marked)
    assert "\\textsuperscript{T,R}" in paper["tables/texts-training.tex"]
    assert "T test base" in paper["tables/texts-training.tex"]
    assert "test base (T): 1 of 13 results" in files["report.md"]
    assert json.loads(files["trace.json"])["results"][-1]["stand_in"] is True


def test_the_scorecard_is_a_table_of_the_ratios_of_compare(report: Report, files: dict[str, str]) -> None:
    table = list(csv.reader(io.StringIO(files["tables/scorecard.csv"])))
    assert table[0] == ["workload", "metric", "configuration", "system", "relative to alpha"]
    assert report.scorecard is not None
    ratios = [ratio_text(point.ratio, point.unit) for point in report.scorecard.points if point.ratio]
    assert [row[-1] for row in table[1:]] == ratios and {row[3] for row in table[1:]} == {"beta"}
    assert all(ratio in files["report.md"].replace("\\[", "[") for ratio in ratios)


def test_single_runs_are_no_means(tmp_path: Path) -> None:
    folder = samples.write(tmp_path / "results", [samples.sample("alpha", "pictures", 8)])
    text = report_files(make_report(load_report_results([str(folder)])))["report.md"]
    assert "Single runs, without intervals." in text and "Geometric means of" not in text


def test_the_text_has_the_order_of_the_page(files: dict[str, str]) -> None:
    heads = [line for line in files["report.md"].splitlines() if line.startswith("#")]
    parts = ("# ", "## Do not publish", "## Scorecard", "## Numbers", "## Network of pictures", "## Network of texts",
             "## Systems", "## Left out", "## Methods", "## Citations", "## All results")  # fmt: skip
    places = [next(place for place, head in enumerate(heads) if head.startswith(part)) for part in parts]
    assert places == sorted(places)


def test_charts_are_pictures_of_the_plots(report: Report) -> None:
    figure = Figure("speed", "Speed](x)", "", Plot("By *batch*.", 100, SHARES))
    text = report_files(replace(report, figures=(figure,)))["report.md"]
    assert "![Speed\\]\\(x)](plots/speed.svg)" in text


def test_a_table_of_a_study_is_a_table_in_every_form(report: Report) -> None:
    table = Chart((), plain_table("study-table-1", "Table 1", ("system", "=rate"), [("a", "1.5")], "Means."))
    written = report_files(replace(report, charts=(table,)), paper=True)
    assert "| a | 1.5 |" in written["tables/study-table-1.md"] and "| a | 1.5 |" in written["report.md"]
    assert written["tables/study-table-1.csv"] == "system,'=rate\na,1.5\n"
    assert "a & 1.5" in written["tables/study-table-1.tex"]
    assert "study-table-1.svg" not in written["report.md"]


def test_methods_say_only_what_results_say(report: Report, files: dict[str, str]) -> None:
    text = files["methods.md"]
    document = report.results.members[0].document
    image = document["provenance"]["image"]
    digests = (image["build_key"], image["file"]["identity"], image["base"]["digest"])
    words = ("Student", "Welch", "fresh process", "not recorded", "100", "package", "The systems differ in accelerator")
    for fact in (*(digest[:19] for digest in digests), *words):
        assert fact in text
    assert image["build_key"] not in text and image["build_key"] in files["trace.json"]
    assert "14 results of 2 systems; 1 of them is no measurement" in text


def test_an_unknown_fact_is_named_as_not_recorded(tmp_path: Path) -> None:
    unknown = {"value": None, "reason": "hidden", "unit": "W"}
    document = samples.sample("alpha", "pictures", 8, conditions__cpu_power_cap=unknown, host__kernel={
        "value": None, "reason": "hidden"})  # fmt: skip
    folder = samples.write(tmp_path / "results", [document])
    text = report_files(make_report(load_report_results([str(folder)])))["methods.md"]
    assert "not recorded: power limit of the CPUs, kernel" in text


def test_checks_name_every_result_and_how_it_came_out(report: Report, files: dict[str, str]) -> None:
    text = files["checks.txt"]
    for entry in report.runs:
        assert f"\n{entry.file}\n" in text and entry.result.document["id"] in text
    assert text.count("schema and rules  valid: result 1.2") == 14
    assert "tolerance 0.1000" in text and "left out" in text and "not checked (--require-signature)" in text


def test_what_is_no_result_is_in_the_checks(results: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(results, tmp_path / "results")
    (folder / "broken.json").write_text("{")
    text = report_files(make_report(load_report_results([str(folder)], by="site")))["checks.txt"]
    assert "Not among the results:\n" in text and "broken.json: is not JSON" in text


def test_traces_lead_to_image_and_commit(report: Report, files: dict[str, str]) -> None:
    traces = json.loads(files["trace.json"])["results"]
    image = report.results.members[0].document["provenance"]["image"]
    assert len(traces) == 14
    assert traces[0]["image"]["image_id"] == image["file"]["identity"]
    assert traces[0]["image"]["commit"] == image["revision"]
    assert traces[0]["command"].startswith("sifmark run a -- pictures")


def test_the_study_published_figures_and_sifmark_are_cited(report: Report) -> None:
    mark = PublishedMark(
        report.results.sections[0].key, "Qwant, table 2, row 1", "https://arxiv.org/abs/2002.11670", "GC2",
        "throughput", "images/s", 1.0, 1.0, "", {}, (),
    )  # fmt: skip
    study, results = load_study("pearc22"), replace(report.results, published=(mark,))
    cited = replace(report, study=study, results=results, citations=works_of(results, study))
    text, entries = citations_text(cited), bibliography(cited.citations)
    assert "Honggao Liu" in text and "Kacher" in text and "sifmark" in text and "Qwant, table 2, row 1" in text
    assert [line for line in entries.splitlines() if line.startswith("@")] == [
        "@misc{pearc22,", "@misc{qwant,", "@misc{sifmark,"]  # fmt: skip
    assert "{Ilyes Kacher} and {Maxime Portaz}" in entries and entries.count("{") == entries.count("}")


def test_each_system_has_a_row_for_each_configuration(tmp_path: Path) -> None:
    some = (samples.sample(f"site {number:02}", "pictures", 8) for number in range(9))
    report = make_report(load_report_results([str(samples.write(tmp_path / "results", some))], by="site"))
    written = report_files(report, paper=True)
    text = written["tables/pictures-training.md"]
    assert text.startswith("| batch size | system | throughput [images/s] | relative to site 00 |")
    assert text.count("| 8 | site 0") == 9
    structure(written["tables/pictures-training.tex"])


def test_systems_that_are_alike_are_described_once(tmp_path: Path) -> None:
    some = (samples.sample(site, "pictures", 8, accelerator__name="A") for site in ("left", "right"))
    report = make_report(load_report_results([str(samples.write(tmp_path / "results", some))], by="site"))
    assert sum("left and right. Device: accelerator A" in text for text in report.methods) == 1
    assert not any("differ in" in text for text in report.methods)


# Texts of anybody


def structure(tex: str) -> None:
    """Fail unless a table is balanced, and every row has as many cells as there are columns."""
    assert re.findall(r"\\begin\{(\w+)\}", tex) == re.findall(r"\\end\{(\w+)\}", tex)[::-1]
    body = re.sub(r"\\[{}]", "", tex)
    assert body.count("{") == body.count("}")
    (types,) = re.findall(r"\\begin\{tabular\}\{(.*)\}$", tex, re.MULTILINE)
    columns = len(re.findall(r"[lS]", re.sub(r"\[[^\]]*\]|@\{[^}]*\}", "", types)))
    lines = [line for line in tex.splitlines() if line.endswith(r"\\")]
    for line in lines:
        wide = line.count(r"\multicolumn{2}")
        assert len(re.findall(r"(?<!\\)&", line)) + 1 + wide == columns, line
    for line in tex.splitlines()[2:]:
        plain = re.sub(r"\$\\times\$|(?<!\\)&|\\label\{[^}]*\}", "", line)
        assert not UNESCAPED.search(plain.rstrip("\\ ")), line


def hostile_files(folder: Path, text: str) -> dict[str, str]:
    some = [
        samples.sample(text, "pictures", 8, repeat, workload__title=text, accelerator__name=text)
        for repeat in (1, 2, 3)
    ]
    results = load_report_results([str(samples.write(folder, some))], by="site")
    return report_files(make_report(results, title=text), paper=True)


def test_hostile_texts_are_text_in_every_file(tmp_path: Path) -> None:
    files = hostile_files(tmp_path / "results", HOSTILE)
    for name, text in files.items():
        if name.endswith(".tex"):
            structure(text)
            assert "\\input" not in text and "<script" not in text
        if name.endswith(".md"):
            assert "<script" not in text and not re.search(r"(?<!\\)\[x\]\(", text), name
    for row in (*rows(files["summary.csv"]), *rows(files["runs.csv"])):
        assert not any(str(value).startswith(("=", "@", "\t")) for value in row.values())


def test_a_formula_is_a_text_in_spreadsheets(tmp_path: Path) -> None:
    files = hostile_files(tmp_path / "results", "=HYPERLINK(1)")
    assert "'=HYPERLINK(1)" in files["summary.csv"] and "'=HYPERLINK(1)" in files["runs.csv"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_latex_has_no_command_of_anybody(first: str, second: str) -> None:
    number = Cell("1,234.5", "[1,200.0, 1,300.0]", (TEST_BASE,))
    table = Table("t", first, (Column(first), Column(second, Kind.NUMBER)), (Row((Cell(second), number)),))
    structure(latex_table(table))
    assert "\\num{1200.0}" in latex_table(table) and "1234.5 &" in latex_table(table)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: texlive-latex-recommended, texlive-science")
def test_pdflatex_makes_pages_of_all_tables(report: Report, tmp_path: Path) -> None:
    letters = "".join(map(chr, range(32, 384)))
    odd = Table("odd", HOSTILE, (Column(HOSTILE), Column("*", Kind.NUMBER)), (
        Row((Cell("[x] \u00b5 \u2026"), Cell("-1.2e-07", "[-2.0e-07, 1.1e+12]", (TEST_BASE,)))),
        Row((Cell("*"), Cell("-"))),
    ), letters)  # fmt: skip
    every = (*(flat(table, MOST_ON_PAPER) for table in report.tables), odd)
    tables = "\n".join(latex_table(table) + "\\clearpage" for table in every)
    packages = "\\usepackage{booktabs}\\usepackage{siunitx}"
    for encoding in ("", "\\usepackage[T1]{fontenc}"):
        document = f"\\documentclass{{article}}{encoding}{packages}\\begin{{document}}\n{tables}\n\\end{{document}}\n"
        (tmp_path / "all.tex").write_text(document)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout[-1500:]
        assert "Missing character" not in (tmp_path / "all.log").read_text("utf-8", "replace")


def test_every_special_character_of_latex_is_escaped() -> None:
    assert latex_text("a_b % $ # & { } ~ ^ \\") == (
        "a\\_b \\% \\$ \\# \\& \\{ \\} \\textasciitilde{} \\textasciicircum{} \\textbackslash{}"
    )
    assert latex_text("--x\n\u4e2d") == "{-}{-}x\\textbackslash{}nU+4E2D"
