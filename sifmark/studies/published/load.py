"""Reading published studies: the files, checked, and each printed cell as a figure."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from sifmark.core import paths
from sifmark.core.errors import UsageError, unknown_name
from sifmark.core.schemas import check_document, read_schema
from sifmark.recipes.names import cards
from sifmark.studies.published.cells import parse_cell
from sifmark.studies.published.figures import (
    Bound,
    Conditions,
    Device,
    Figure,
    PrintedNumber,
    PublishedStudy,
    PublishedTable,
    Reference,
)
from sifmark.studies.study import Scalar

SCHEMA = "published-1.0"
OWN = Path("studies/published")  # a site's own files, below the current folder
TEXT, AGAINST, UNIT = "text", "against", "unit"  # columns and values that are no condition
LISTING = "sifmark published.list"
# Other than those of the result's schema: spans of time, and images per second of an epoch.
_SPANS = re.compile(r"phases\.[a-z_]+|epochs\.\d+(\.throughput)?")
_OPPOSITE = {Bound.AT_LEAST: Bound.AT_MOST, Bound.AT_MOST: Bound.AT_LEAST}

Json = dict[str, Any]


def published_names() -> tuple[str, ...]:
    """Return the names of the published studies: those that sifmark has, and a site's own."""
    return tuple(sorted(_files()))


def load_published(name: str) -> PublishedStudy:
    """Return a published study by name, or from a path that ends in .json. Raises UsageError."""
    if name.endswith(".json"):
        return read_published(Path(name))
    files = _files()
    if name not in files:
        raise unknown_name("published study", name, files)
    return read_published(files[name])


def load_all_published(own: bool = True) -> tuple[PublishedStudy, ...]:
    """Return all published studies; with `own`, those of a site too. Raises UsageError for a file that is not valid."""
    return tuple(read_published(path) for _, path in sorted(_files(own).items()))


def select_tables(name: str) -> tuple[PublishedStudy, tuple[PublishedTable, ...]]:
    """Return the study and the tables that NAME, NAME/TABLE or FILE.json/TABLE stands for. Raises UsageError.

    A chart without numbers stands for what is printed about it too: figure-2 for figure-2-h100 and so on.
    """
    match = re.fullmatch(r"(?P<study>.*\.json|[^/]*)(?:/(?P<table>[^/]*))?", name)
    study = load_published(match["study"] if match else name)
    if match is None or not match["table"]:
        return study, study.tables
    tables = {table.name: table for table in study.tables}
    if match["table"] not in tables:
        raise unknown_name(f"table of {study.name}", match["table"], tables)
    table = tables[match["table"]]
    parts = () if table.rows else (each for each in study.tables if each.name.startswith(f"{table.name}-"))
    return study, (table, *parts)


def read_published(path: Path) -> PublishedStudy:
    """Return the study of a file. Raises UsageError that names the file, and the table, row and column."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remedy = f"name a file that is there, or one of those that `{LISTING}` lists"
        raise UsageError(f"{path}: {error}", remedy, code="document-invalid") from error
    check_document(SCHEMA, document, str(path))
    return _DocumentReader(path, document).study()


def _files(own: bool = True) -> dict[str, Path]:
    folders = (paths.PUBLISHED, OWN) if own else (paths.PUBLISHED,)
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.json"))}


class _DocumentReader:
    """One document, valid by its schema."""

    def __init__(self, path: Path, document: Json) -> None:
        self.path = path
        self.document = document
        self.workloads = frozenset(cards())
        self.metrics = frozenset(read_schema("result-1.2")["properties"]["metrics"]["properties"])
        self.conditions = read_schema(SCHEMA)["$defs"]["conditions"]["properties"]

    def study(self) -> PublishedStudy:
        """Return the document as a study."""
        document = self.document
        if document["name"] != self.path.stem:
            self._refuse(f"its name is {document['name']!r}", f"call the file {document['name']}.json")
        names = [table["name"] for table in document["tables"]]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            self._refuse(f"several tables are called {repeated[0]!r}", "give each table its own name")
        return PublishedStudy(
            name=document["name"],
            title=document["title"],
            authors=document["authors"],
            venue=document.get("venue", ""),
            year=document["year"],
            url=document.get("url", ""),
            devices={name: self._device(name, fields) for name, fields in document["devices"].items()},
            traps=tuple(document.get("traps", ())),
            tables=tuple(map(self._table, document["tables"])),
            context=document.get("context"),
        )

    def _device(self, name: str, fields: Json) -> Device:
        try:
            re.compile(fields["pattern"])
        except re.error as error:
            self._refuse(f"device {name}: {fields['pattern']!r}: {error}", "write a regular expression of Python")
        return Device(name, **fields)

    def _table(self, table: Json) -> PublishedTable:
        if bool(table["rows"]) == ("no_numbers" in table):
            self._refuse(f"table {table['name']}: it has rows or `no_numbers`, not both", "remove one, or add one")
        return PublishedTable(
            name=table["name"],
            title=table["title"],
            place=table["place"],
            page=table.get("page"),
            columns=tuple(column["title"] for column in table["columns"]),
            rows=tuple(map(tuple, table["rows"])),
            traps=tuple(table.get("traps", ())),
            no_numbers=table.get("no_numbers"),
            figures=tuple(self._figures(table)),
        )

    def _figures(self, table: Json) -> Iterator[Figure]:
        columns = table["columns"]
        for number, cells in enumerate(table["rows"], start=1):
            where = f"table {table['name']}, row {number}"
            if len(cells) != len(columns):
                self._refuse(f"{where}: {len(cells)} cells under {len(columns)} columns", "write a cell for each")
            pairs = list(zip(columns, cells, strict=True))
            given = dict(table.get("conditions", {}))
            for column, cell in pairs:
                if "condition" in column:
                    given |= self._condition(column, cell, where)
            for column, cell in pairs:
                if "metric" in column and cell:
                    yield self._figure(table, number, column, cell, given)

    def _condition(self, column: Json, cell: str, where: str) -> Json:
        """Return the conditions that a cell of a condition's column stands for."""
        key = column["condition"]
        if key == TEXT:
            return {}
        meaning = column.get("values", {}).get(cell, cell)
        if isinstance(meaning, dict):
            return meaning
        if key not in self.conditions:
            allowed = ", ".join(sorted([*self.conditions, TEXT, AGAINST]))
            self._refuse(f"{where}: column {column['title']!r} has the condition {key!r}", f"one of {allowed}")
        whole = isinstance(meaning, str) and meaning.isdigit() and "values" not in column
        return {key: int(meaning) if whole else meaning}

    def _figure(self, table: Json, row: int, column: Json, cell: str, given: Json) -> Figure:
        where = f"table {table['name']}, row {row}, column {column['title']!r}"
        conditions = {key: value for key, value in given.items() if key not in (AGAINST, UNIT)}
        figure = Figure(
            study=self.document["name"],
            table=table["name"],
            row=row,
            column=column["title"],
            printed=cell,
            printed_unit=column["printed_unit"],
            number=None,
            metric=self._known(column["metric"], where),
            unit=str(given.get(UNIT, column.get("unit", ""))),
            low=None,
            high=None,
            bound=Bound.EXACT,
            state=column.get("states", {}).get(cell),
            conditions=self._values(conditions, where),
            reference=self._reference({**column.get("reference", {}), **given.get(AGAINST, {})}, where),
            best=self._known(column.get("best"), where),
            within=self._known(column.get("within"), where),
            traps=(*table.get("traps", ()), *column.get("traps", ())),
            not_comparable=self.document.get("context") or _objection(table, column, conditions),
        )
        if figure.metric is None and figure.not_comparable is None:
            self._refuse(f"{where}: no metric is the same", "say why in `not_comparable` of the column or table")
        return figure if figure.state else self._measured(figure, column, where)

    def _measured(self, figure: Figure, column: Json, where: str) -> Figure:
        """Return a figure with the number that its cell prints, and its value in our unit."""
        try:
            number = parse_cell(figure.printed)
        except ValueError as error:
            self._refuse(f"{where}: {error}", "print a number, or name the text in `states` of the column")
        low, high, bound = _converted(number, column)
        return replace(figure, number=number, low=low, high=high, bound=bound)

    def _known(self, name: str | None, where: str) -> str | None:
        """Return the name of a metric. Raises UsageError for an unknown one."""
        if name is not None and name not in self.metrics and not _SPANS.fullmatch(name):
            error = unknown_name("metric", name, self.metrics, "sifmark compare --metrics all")
            self._refuse(f"{where}: {error.cause}", error.remedy)
        return name

    def _reference(self, fields: Json, where: str) -> Reference | None:
        if not fields:
            return None
        times, rest = None, dict(fields)
        metric, best = (self._known(rest.pop(name, None), where) for name in ("metric", "best"))
        if isinstance(batch := rest.get("batch_size_per_replica"), dict):
            times = float(batch["times"])
            del rest["batch_size_per_replica"]
        return Reference(self._values(rest, where), times, metric, best)

    def _values(self, conditions: Json, where: str) -> Conditions:
        """Return conditions as tuples. Raises UsageError for an unknown name or value."""
        check_document(SCHEMA, self._alone(conditions), f"{self.path}: {where}")
        values = {key: tuple(value) if isinstance(value, list) else (value,) for key, value in conditions.items()}
        for key, names in (("workload", self.workloads), ("device", frozenset(self.document["devices"]))):
            for name in values.get(key, ()):
                if name not in names:
                    error = unknown_name(key, str(name), names)
                    self._refuse(f"{where}: {error.cause}", error.remedy)
        return values

    def _alone(self, conditions: Mapping[str, Scalar]) -> Json:
        """Return a document with nothing but these conditions, for the schema to check what cells say."""
        table = {"name": "t", "title": "t", "place": "t", "conditions": conditions, "columns": [], "rows": []}
        return {**self.document, "tables": [table]}

    def _refuse(self, cause: str, remedy: str) -> NoReturn:
        raise UsageError(f"{self.path}: {cause}", remedy, code="document-invalid")


def _objection(table: Json, column: Json, conditions: Json) -> str | None:
    """Return why a figure must not be compared; None if it may."""
    for exception in table.get("exceptions", ()):
        if exception["where"].items() <= conditions.items():
            return str(exception["not_comparable"])
    reason: str | None = column.get("not_comparable", table.get("not_comparable"))
    return reason


def _converted(number: PrintedNumber, column: Json) -> tuple[float, float, Bound]:
    """Return both ends in our unit, the smaller first, and the bound, which turns round if the order does."""
    factor, offset = column.get("factor", 1), column.get("offset", 0)
    ends = [offset + factor * end for end in (number.low, number.high)]
    if column.get("inverse"):
        ends = [1 / end for end in ends]
    reverses = (factor < 0) is not bool(column.get("inverse"))
    ends = [float(f"{end:.12g}") for end in ends]  # 0.46, not 1 - 0.54
    return min(ends), max(ends), _OPPOSITE.get(number.bound, number.bound) if reverses else number.bound
