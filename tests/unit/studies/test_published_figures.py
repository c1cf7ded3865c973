"""Published figures: the files against the documents' text, number by number; and what a faulty file is told."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.refusals import refused

from sifmark.commands.published import list_published, show_published
from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.core.schemas import validator
from sifmark.recipes.names import cards
from sifmark.studies.published.cells import parse_cell
from sifmark.studies.published.figures import Bound, Figure, PublishedTable
from sifmark.studies.published.listing import table_record
from sifmark.studies.published.load import load_published, published_names, read_published, select_tables

PAPERS = paths.CHECKOUT / "tests" / "fixtures" / "papers"
STUDIES = ("caraml", "context", "deeplearningexamples", "graphcore", "pearc22", "qwant", "turing")
# Tables that the text extraction has as tables: all others are sentences, or charts.
WHOLE = {
    "caraml": ("nlp-ipu", "cv-ipu"),
    "pearc22": ("1", "2", "3", "4"),
    "qwant": ("1", "2", "3"),
    "turing": ("5",),
}
# Tables of context figures whose sources are files of repositories as they are stored; others are of pages and logs.
HELD = ("torchtitan-8b", "torchtitan-larger", "torchtitan-h200", "torchao", "megatron-8b", "megatron-70b")
PRINTED = [
    (study, table.name)
    for study in STUDIES
    for table in load_published(study).tables
    if table.rows and (study != "context" or table.name in HELD)
]
# Numbers, whatever separates their thousands.
NUMBER = r"\d{1,3}(?:[,\u00a0\u202f ]\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?"


def excerpts(study: str) -> dict[str, str]:
    """The excerpts of a document by the name of their table."""
    parts = re.split(r"^== (.+)\n", (PAPERS / f"{study}.txt").read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def numbers(text: str) -> list[float]:
    return [float(re.sub(r"[^\d.]", "", number)) for number in re.findall(NUMBER, text)]


def table_of(study: str, name: str) -> PublishedTable:
    return select_tables(f"{study}/{name}")[1][0]


def rebuilt(table: PublishedTable) -> list[list[float | str]]:
    """The rows of a table from its figures: a value's number or state, and other cells as they are."""
    record = table_record(table)
    rows: list[list[Any]] = [list(row) for row in record["rows"]]
    for figure in record["figures"]:
        at = record["columns"].index(figure["column"])
        rows[figure["row"] - 1][at] = figure["state"] or figure["printed_low"]
    return rows


def cells_of(line: str, width: int) -> list[str]:
    cells = line.split("\t")
    return cells + [""] * (width - len(cells))


def test_all_studies_are_here_and_valid() -> None:
    assert published_names() == STUDIES
    for name in STUDIES:
        document = json.loads((paths.PUBLISHED / f"{name}.json").read_text())
        validator("published-1.0").validate(document)


@pytest.mark.parametrize(("study", "name"), [(study, name) for study, names in WHOLE.items() for name in names])
def test_a_table_rebuilt_from_its_figures_has_the_documents_numbers(study: str, name: str) -> None:
    table = table_of(study, name)
    lines = excerpts(study)[name].strip().splitlines()[-len(table.rows) :]
    valued = {table.columns.index(figure.column) for figure in table.figures}
    states = {"Out of Memory": "out_of_memory"}
    for line, row in zip(lines, rebuilt(table), strict=True):
        printed = cells_of(line, len(row))
        assert row == [
            (states.get(cell) or next(iter(numbers(cell)), "")) if at in valued else cell
            for at, cell in enumerate(printed)
        ]


@pytest.mark.parametrize(("study", "name"), PRINTED)
def test_every_number_of_a_table_is_in_the_documents_words(study: str, name: str) -> None:
    excerpt = excerpts(study)[name]
    for figure in table_of(study, name).figures:
        printed = numbers(figure.printed) if "double" not in figure.printed else []
        assert set(printed) <= set(numbers(excerpt)), figure.printed
        assert printed or any(word in excerpt for word in (figure.printed, "double", "train")), figure.printed


@pytest.mark.parametrize("study", STUDIES)
def test_the_excerpts_are_of_tables_that_exist(study: str) -> None:
    assert set(excerpts(study)) == {name for each, name in PRINTED if each == study}


@pytest.mark.parametrize("study", STUDIES)
def test_figures_speak_of_workloads_metrics_and_devices_of_sifmark(study: str) -> None:
    figures = load_published(study).figures
    for figure in figures:
        assert set(figure.conditions.get("workload", ())) <= set(cards())
        assert figure.metric is None or figure.unit
        assert (figure.state is None) == (figure.low is not None)
        assert figure.metric or figure.not_comparable
    assert len({(figure.table, figure.row, figure.column) for figure in figures}) == len(figures)


def figure_at(study: str, table: str, row: int, column: str) -> Figure:
    return next(each for each in table_of(study, table).figures if (each.row, each.column) == (row, column))


def test_sequences_that_are_called_tokens_become_tokens() -> None:
    figure = figure_at("caraml", "nlp-ipu", 6, "Tokens/Time 1/s")
    assert figure.printed == "183.37"
    assert (figure.metric, figure.unit, figure.low) == ("token_throughput", "tokens/s", 183.37 * 1024)


def test_energy_of_an_ipu_becomes_that_of_all_four() -> None:
    figure = figure_at("caraml", "nlp-ipu", 1, "Energy/Epoch/IPU Wh")
    assert (figure.unit, figure.low) == ("J", 15.68 * 3600 * 4)
    assert figure.conditions["samples_per_epoch"] == (256,)


@pytest.mark.parametrize(("column", "unit"), [("Energy/Epoch Wh", "J"), ("Images/Energy 1/Wh", "images/Wh")])
def test_images_per_energy_are_those_of_an_epoch_of_imagenet(column: str, unit: str) -> None:
    energy, efficiency = (
        figure_at("caraml", "cv-ipu", 1, name).low or 0.0 for name in ("Energy/Epoch Wh", "Images/Energy 1/Wh")
    )
    assert figure_at("caraml", "cv-ipu", 1, column).unit == unit
    assert energy / 3600 * efficiency == pytest.approx(1281167, rel=1e-3)


def test_the_items_of_bert_are_sequences() -> None:
    units = {figure.conditions["workload"][0]: figure.unit for figure in table_of("pearc22", "2").figures}
    assert units["bert_base"] == "sequences/s"
    assert units["efficientnet_b0"] == "images/s"


def test_a_model_that_does_not_fit_is_a_state() -> None:
    figure = figure_at("turing", "5", 6, "Peak memory (MB)")
    assert (figure.state, figure.number, figure.metric) == ("out_of_memory", None, "peak_allocated_memory")


@pytest.mark.parametrize(
    ("text", "low", "high", "bound"),
    [
        ("1,862.9", 1862.9, 1862.9, Bound.EXACT),
        ("2\u00a0298.80", 2298.8, 2298.8, Bound.EXACT),
        ("57 239.73", 57239.73, 57239.73, Bound.EXACT),
        ("over 5x", 5, 5, Bound.AT_LEAST),
        ("less than 3 hours", 3, 3, Bound.AT_MOST),
        ("≈ 10 - 15 mins", 10, 15, Bound.RANGE),
        ("3.5\u20133.9", 3.5, 3.9, Bound.RANGE),
        ("8% to 15%", 8, 15, Bound.RANGE),
        ("1458 MB/s and 3027 MB/s", 1458, 3027, Bound.RANGE),
        ("nearly double", 2, 2, Bound.ABOUT),
        ("higher", 1, 1, Bound.AT_LEAST),
        ("within 10%", 10, 10, Bound.AT_MOST),
    ],
)
def test_cells_are_numbers_bounds_and_ranges(text: str, low: float, high: float, bound: Bound) -> None:
    number = parse_cell(text)
    assert (number.low, number.high, number.bound) == (low, high, bound)


@given(st.floats(0.001, 1e9, allow_nan=False).map(lambda value: round(value, 3)))
def test_any_number_with_commas_is_read_exactly(value: float) -> None:
    assert parse_cell(f"{value:,.3f}").low == value


@pytest.mark.parametrize("text", ["", "fast", "about", "1.2.3", "9 - 3", "probably 4"])
def test_a_cell_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_cell(text)


@pytest.mark.parametrize(
    ("column", "low", "high", "bound"),
    [
        ({"factor": -0.01, "offset": 1, "cell": "10% to 15%"}, 0.85, 0.9, Bound.RANGE),
        ({"inverse": True, "cell": "over 5x"}, 0.2, 0.2, Bound.AT_MOST),
        ({"factor": -0.01, "offset": 1, "cell": "over 20%"}, 0.8, 0.8, Bound.AT_MOST),
        ({"factor": 1024, "cell": "64.99"}, 66549.76, 66549.76, Bound.EXACT),
    ],
)
def test_numbers_are_converted_with_their_bounds(
    tmp_path: Path, column: dict[str, Any], low: float, high: float, bound: Bound
) -> None:
    document = example()
    cell = column.pop("cell")
    document["tables"][0]["columns"][1] |= column
    document["tables"][0]["rows"] = [["16", cell]]
    figure = read_published(written(tmp_path, document)).figures[0]
    assert (figure.low, figure.high, figure.bound) == (low, high, bound)


# Faulty files


def example() -> dict[str, Any]:
    """A small document that is valid."""
    columns = [
        {"title": "Batch", "condition": "batch_size"},
        {"title": "Rate", "metric": "throughput", "printed_unit": "img/s", "unit": "images/s"},
    ]
    table: dict[str, Any] = {
        "name": "1",
        "title": "Rates",
        "place": "Table 1",
        "columns": columns,
        "rows": [["16", "20.5"]],
    }
    table["conditions"] = {"workload": "resnet50", "task": "training", "device": "gpu"}
    device = {"title": "A GPU", "pattern": "GPU", "granularity": "package"}
    return {
        "schema_version": "1.0", "name": "mine", "title": "T", "authors": "A", "year": 2024,
        "devices": {"gpu": device}, "tables": [table],
    }  # fmt: skip


def written(folder: Path, document: Any, name: str = "mine.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    document = example()
    change(document["tables"][0])
    return document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "mine.json: Expecting"),
        (changed(lambda t: t.update(rows=[["16"]])), "row 1: 1 cells under 2 columns"),
        (changed(lambda t: t.update(rows=[["16", "fast"]])), "row 1, column 'Rate': 'fast' is not a number"),
        (changed(lambda t: t.update(rows=[["many", "1"]])), "batch_size"),
        (changed(lambda t: t.update(rows=[])), "table 1: it has rows or `no_numbers`"),
        (changed(lambda t: t["conditions"].update(workload="resnet5")), "no workload 'resnet5'"),
        (changed(lambda t: t["conditions"].update(device="tpu")), "no device 'tpu'"),
        (changed(lambda t: t["conditions"].update(batchsize=1)), "conditions"),
        (changed(lambda t: t["columns"][1].update(metric="throughputs")), "no metric 'throughputs'"),
        (changed(lambda t: t["columns"][0].update(condition="batchsize")), "has the condition 'batchsize'"),
        (changed(lambda t: t["columns"][1].pop("unit")), "columns"),
        (changed(lambda t: t["columns"][1].update(metric=None)), "no metric is the same"),
        (changed(lambda t: t["columns"][1].update(best="speed")), "no metric 'speed'"),
        (changed(lambda t: t["columns"][1].update(reference={"best": "speed"})), "no metric 'speed'"),
        ({**example(), "name": "other"}, "its name is 'other'"),
        ({**example(), "tables": example()["tables"] * 2}, "several tables are called '1'"),
        ({**example(), "devices": {"gpu": {"title": "A", "pattern": "(", "granularity": "package"}}}, "device"),
        ({**example(), "colour": "red"}, "colour"),
    ],
)
def test_a_faulty_file_is_refused_with_the_place_of_the_fault(tmp_path: Path, document: Any, words: str) -> None:
    with refused(UsageError, "document-invalid") as refusal:
        read_published(written(tmp_path, document))
    assert "mine.json" in refusal.value.cause
    assert words in refusal.value.cause
    assert refusal.value.remedy


def test_a_sites_own_study_is_listed_and_shown(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "studies" / "published").mkdir(parents=True)
    written(tmp_path / "studies" / "published", example())
    monkeypatch.chdir(tmp_path)
    assert published_names() == tuple(sorted([*STUDIES, "mine"]))
    show_published("mine/1", "table")
    assert "20.5" in capsys.readouterr().out
    assert load_published("studies/published/mine.json").figures == load_published("mine").figures


@pytest.mark.parametrize(
    ("name", "words"), [("pearc", "pearc22"), ("pearc22/11", "1"), ("nothing.json", "published.list")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        select_tables(name)
    assert words in refusal.value.remedy


def test_a_chart_without_numbers_stands_for_the_sentences_about_it() -> None:
    names = [table.name for table in select_tables("turing/figure-3")[1]]
    assert names == ["figure-3", "figure-3-speedup", "figure-3-batch"]
    assert [table.name for table in select_tables("caraml/cv-ipu")[1]] == ["cv-ipu"]


def test_the_list_counts_tables_and_figures(capsys: Any) -> None:
    list_published("json")
    records = {record["name"]: record for record in json.loads(capsys.readouterr().out)}
    assert tuple(records) == STUDIES
    assert sum(record["figures"] for record in records.values()) == 781
    assert records["context"]["comparable"] == 0


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_shown_in_every_format(study: str, form: str, capsys: Any) -> None:
    show_published(study, form)
    text = capsys.readouterr().out
    table = next(table for table in load_published(study).tables if table.figures)
    assert table.figures[0].printed in text
