"""Commands for the figures of published studies: list, show, and those nearest to results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import MARKDOWN, TABLE, Table, answer, list_left_out
from sifmark.core.console import align_columns, markdown_lines, markdown_text, printable
from sifmark.core.terminal import output, output_table, status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sifmark.studies.published.figures import PublishedStudy, PublishedTable


@cli.command("published.list", example="published.list")
@cli.format_option
def list_published(form: str = TABLE) -> None:
    """List published studies with their figures."""
    from sifmark.studies.published.listing import study_record
    from sifmark.studies.published.load import load_all_published

    records = list(map(study_record, load_all_published()))
    columns = ("name", "tables", "figures", "comparable", "year", "authors", "title")
    # A year is no number with a separator of thousands.
    rows = [[str(record[column]) if column == "year" else record[column] for column in columns] for record in records]
    answer(form, records, Table(columns, rows))
    if form == TABLE:
        status("the figures of one: sifmark published.show NAME; results beside them: --against published:NAME")


@cli.command("published.show", example="published.show pearc22/1")
@cli.argument("name", "A study, one of its tables, or a file in the same format.", "NAME[/TABLE]")
@cli.output_option("Draw the tables and figures as files of a folder instead.", "FOLDER", "folder")
@cli.format_option
def show_published(name: str, form: str = TABLE, folder: str = "") -> None:
    """Print or draw the tables of a published study.

    They are as printed; JSON and CSV also have each figure as a result has it: metric, unit, conditions.
    """
    from sifmark.studies.published.listing import FIGURE_COLUMNS, figure_row, study_record, table_record
    from sifmark.studies.published.load import select_tables

    study, tables = select_tables(name)
    if folder:
        _draw(study, tables, Path(folder), form)
        return
    if form == MARKDOWN:
        output("\n".join(_markdown(study, tables)))
        return
    document = study_record(study) | {"traps": list(study.traps), "tables": [table_record(table) for table in tables]}
    flat = Table(FIGURE_COLUMNS, [figure_row(figure) for table in tables for figure in table.figures])
    answer(form, document, flat, lambda: output("\n".join(_text(study, tables))))


@cli.command("published.nearest", example="published.nearest first.json")
@cli.results_argument()
@cli.format_option
def list_nearest(paths: Sequence[str], form: str = TABLE) -> None:
    """List the published figures nearest to results.

    They have the same workload, task, metric and unit. A ratio is measured over published.
    """
    from sifmark.library import load
    from sifmark.results.load import require_valid
    from sifmark.results.summary import title
    from sifmark.studies.published import nearest as near
    from sifmark.studies.published.load import load_all_published

    studies = load_all_published()
    results = load(paths)
    found = [(result, near.nearest_figures([result.document], studies)) for result in results]
    document = {
        "results": [{"file": result.file, **near.nearest_record(nearest)} for result, nearest in found],
        "context": near.context_records(studies),
    }
    rows = [[result.file, *near.csv_row(each)] for result, nearest in found for each in nearest.figures]

    def show() -> None:
        for result, nearest in found:
            output(printable(f"{result.file}: {title(result.document)}"))
            if nearest.figures:
                output_table(*near.COLUMNS, rows=map(near.nearest_row, nearest.figures))
            else:
                output(printable(f"none: {nearest.none}"))
        for table in document["context"]:
            output(printable(f"never divided: {table['table']}: {table['title']} ({table['source']})"))

    answer(form, document, Table(("file", *near.CSV_COLUMNS), rows), show)
    list_left_out((), len(results.duplicates))
    require_valid(results.invalid)


def _draw(study: PublishedStudy, tables: tuple[PublishedTable, ...], folder: Path, form: str) -> None:
    """Draw tables as files of a folder, and list them. Charts whose numbers are not printed are named."""
    from sifmark.core.files import atomic_path
    from sifmark.report.packages import require_packages

    require_packages("pictures")
    from sifmark.report.outputs.printed import WIDTH, pictures_of
    from sifmark.report.paper import figure_files

    folder.mkdir(parents=True, exist_ok=True)
    files: list[tuple[str, str]] = []
    for table in tables:
        for figure in pictures_of(study, table):
            for name, content in figure_files(figure, WIDTH).items():
                with atomic_path(folder / name) as draft:
                    draft.write_bytes(content)
                files.append((str(folder / name), figure.title))
        if table.no_numbers:
            status(printable(f"{study.name}/{table.name}: {table.no_numbers}"))
    record = [{"file": file, "title": title} for file, title in files]
    answer(form, record, Table(("file", "title"), [[printable(cell) for cell in row] for row in files]))


def _text(study: PublishedStudy, tables: tuple[PublishedTable, ...]) -> Iterator[str]:
    yield _source(study)
    yield from (f"note: {trap}" for trap in _traps(study))
    for table in tables:
        yield ""
        yield f"{study.name}/{table.name}: {table.title} ({_place(table)})"
        if table.rows:
            yield from (f"  {line}" for line in align_columns([table.columns, *table.rows]))
        yield from (f"  note: {note}" for note in _notes(study, table))


def _markdown(study: PublishedStudy, tables: tuple[PublishedTable, ...]) -> Iterator[str]:
    yield markdown_text(_source(study))
    yield from ("", *(f"- {markdown_text(trap)}" for trap in _traps(study)))
    for table in tables:
        yield from ("", f"**{markdown_text(table.title)}** ({markdown_text(_place(table))})", "")
        if table.rows:
            yield from markdown_lines([table.columns, *table.rows])
            yield ""
        yield from (f"- {markdown_text(note)}" for note in _notes(study, table))


def _source(study: PublishedStudy) -> str:
    return ". ".join(filter(None, [f"{study.authors}: {study.title}", study.venue, str(study.year), study.url]))


def _place(table: PublishedTable) -> str:
    return table.place + (f", page {table.page}" if table.page else "")


def _traps(study: PublishedStudy) -> list[str]:
    """Return what to watch for in the whole document."""
    return [*([f"never compared: {study.context}"] if study.context else []), *study.traps]


def _notes(study: PublishedStudy, table: PublishedTable) -> list[str]:
    """Return what to watch for in a table, each note once."""
    figures = table.figures
    own = [figure.not_comparable for figure in figures if figure.not_comparable != study.context]
    reasons = [f"not comparable: {reason}" for reason in own if reason]
    missing = [table.no_numbers] if table.no_numbers else []
    return list(dict.fromkeys([*missing, *table.traps, *(trap for each in figures for trap in each.traps), *reasons]))
