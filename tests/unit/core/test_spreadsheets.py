"""No text in a CSV is a formula of a spreadsheet, whatever wrote it; numbers stay numbers."""

import ast
import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.report import samples

from sifmark.commands import command_line
from sifmark.commands.framework import COMMANDS
from sifmark.core import paths
from sifmark.core.spreadsheets import csv_text
from sifmark.report.files import report_files
from sifmark.report.load import load_report_results
from sifmark.report.report import make_report
from sifmark.results.tidy import Table

FORMULAS = ("=1+1", "+1+1", "-1+1", "@SUM(A1)", " =1+1", "=cmd|' /C calc'!A0")
OF_RESULTS = (
    *("compare", "results.show", "results.validate", "results.trace", "published.nearest"),
    *("study.history", "study.screen", "study.energy"),
)


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet would take a cell for a formula: what is no number, and begins like one."""
    if cell.strip().startswith(("-", "+")):
        try:
            float(cell.replace(",", ""))
        except ValueError:
            return cell != "-"
        return False
    return cell.strip().startswith(("=", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")) or cell.startswith(("\t", "\r"))


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


@given(st.text(), st.sampled_from(["", *"=+-@\t\r "]))
@example("1+1", "=")
@example("\uff0b1", " ")
def test_no_text_is_a_formula_and_none_is_lost(text: str, first: str) -> None:
    written = cells(csv_text([{first + text: first + text, "b": [first + text], "c": ("a", first + text)}]))
    assert not list(filter(is_formula, written))
    assert (first + text).isprintable() is (first + text in [cell.removeprefix("'") for cell in written])


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_stays_one(number: float) -> None:
    assert float(cells(csv_text([{"a": number}]))[1]) == number
    shown = f"{number:,.3f}"
    assert cells(csv_text([{"a": shown}]))[1] == shown


@pytest.fixture(scope="module", params=FORMULAS)
def hostile(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A formula, and a folder of results that have it wherever a text is free."""
    text: str = request.param
    some = [
        samples.sample(text, "pictures", batch, repeat, workload__title=text, accelerator__name=text)
        for batch in (8, 16)
        for repeat in (1, 2, 3)
    ]
    some.append(samples.failure(text, "texts", 64))
    return text, samples.write(tmp_path_factory.mktemp("results"), [with_text(each, text) for each in some])


def with_text(document: dict[str, Any], text: str) -> dict[str, Any]:
    """The same result with a text wherever one is free and no rule compares it with others."""
    free = {name: document[name] for name in ("workload", "host", "conditions", "environment", "device_conditions")}
    document["provenance"]["software"]["libraries"] = {"numpy": text}
    return {**document, **json.loads(json.dumps(free).replace('"a"', json.dumps(text)))}


@pytest.mark.parametrize("command", OF_RESULTS)
def test_no_table_of_a_command_has_a_formula(
    hostile: tuple[str, Path], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, folder = hostile
    more = ["--by", "site"] if command == "study.screen" else []
    assert command_line.main([command, str(folder), "--format", "csv", *more]) in (0, 1)
    written = cells(capsys.readouterr().out)
    assert len(written) > 4 and not list(filter(is_formula, written))
    if command in ("compare", "results.show"):
        assert any(text.strip() in cell for cell in written)


@pytest.mark.parametrize("table", Table)
def test_no_exported_table_has_a_formula(hostile: tuple[str, Path], table: Table, tmp_path: Path) -> None:
    text, folder = hostile
    target = tmp_path / "table.csv"
    assert command_line.main(["results.export", str(folder), "--table", table, "-o", str(target)]) == 0
    written = cells(target.read_text())
    assert any(text.strip() in cell for cell in written) and not list(filter(is_formula, written))


def test_no_table_of_a_report_has_a_formula(hostile: tuple[str, Path]) -> None:
    text, folder = hostile
    files = report_files(make_report(load_report_results([str(folder)], by="site"), title=text))
    tables = {name: cells(content) for name, content in files.items() if name.endswith(".csv")}
    assert len(tables) > 3
    assert {name: found for name, row in tables.items() if (found := list(filter(is_formula, row)))} == {}


def test_one_module_writes_tables() -> None:
    writers = {
        str(source.relative_to(paths.PACKAGE))
        for source in paths.PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("csv.writer", "csv.DictWriter")
    }
    assert writers == {"core/spreadsheets.py", "layers/wheels.py"}  # the latter writes the list of files of a wheel
    with_csv = {name for name, each in COMMANDS.items() for option in each.params if "csv" in choices(option)}
    assert {*OF_RESULTS, "results.export"} <= with_csv


def choices(option: click.Parameter) -> tuple[str, ...]:
    return tuple(getattr(option.type, "choices", ()))
