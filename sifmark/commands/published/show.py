"""The published.show command: tables of a published study, as printed and in terms of a result."""

from collections.abc import Iterator
from pathlib import Path

from sifmark.commands.answers import MARKDOWN, Table, answer
from sifmark.commands.report.packages import require_packages
from sifmark.core.console import align_columns, markdown_lines, markdown_text, output, printable, status
from sifmark.core.files import atomic_path
from sifmark.studies.published.figures import PublishedStudy, PublishedTable
from sifmark.studies.published.listing import FIGURE_COLUMNS, figure_row, study_record, table_record
from sifmark.studies.published.load import select_tables


def show_published(name: str, form: str, folder: str = "") -> None:
    """Print or draw the tables of NAME, or the one of NAME/TABLE. Raises UsageError for an unknown one."""
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


def _draw(study: PublishedStudy, tables: tuple[PublishedTable, ...], folder: Path, form: str) -> None:
    """Draw tables as files of a folder, and list them. Charts whose numbers are not printed are named."""
    require_packages("pictures")
    from sifmark.report.charts.render import paper_files
    from sifmark.report.outputs.printed import pictures_of

    folder.mkdir(parents=True, exist_ok=True)
    files: list[tuple[str, str]] = []
    for table in tables:
        for chart in pictures_of(study, table):
            for name, content in paper_files(chart).items():
                with atomic_path(folder / name) as draft:
                    draft.write_bytes(content)
                files.append((str(folder / name), chart.title))
        if table.no_numbers:
            status(printable(f"{study.name}/{table.name}: {table.no_numbers}"))
    record = [{"file": file, "title": title} for file, title in files]
    answer(form, record, Table(("file", "title"), [[printable(cell) for cell in row] for row in files]))


def _text(study: PublishedStudy, tables: tuple[PublishedTable, ...]) -> Iterator[str]:
    yield _source(study)
    yield from (f"note: {trap}" for trap in study.traps)
    for table in tables:
        yield ""
        yield f"{study.name}/{table.name}: {table.title} ({_place(table)})"
        if table.rows:
            yield from (f"  {line}" for line in align_columns([table.columns, *table.rows]))
        yield from (f"  note: {note}" for note in _notes(table))


def _markdown(study: PublishedStudy, tables: tuple[PublishedTable, ...]) -> Iterator[str]:
    yield markdown_text(_source(study))
    for table in tables:
        yield from ("", f"**{markdown_text(table.title)}** ({markdown_text(_place(table))})", "")
        if table.rows:
            yield from markdown_lines([table.columns, *table.rows])
            yield ""
        yield from (f"- {markdown_text(note)}" for note in _notes(table))


def _source(study: PublishedStudy) -> str:
    return ". ".join(filter(None, [f"{study.authors}: {study.title}", study.venue, str(study.year), study.url]))


def _place(table: PublishedTable) -> str:
    return table.place + (f", page {table.page}" if table.page else "")


def _notes(table: PublishedTable) -> list[str]:
    """Return what to watch for in a table, each note once."""
    figures = table.figures
    reasons = [f"not comparable: {figure.not_comparable}" for figure in figures if figure.not_comparable]
    missing = [table.no_numbers] if table.no_numbers else []
    return list(dict.fromkeys([*missing, *table.traps, *(trap for each in figures for trap in each.traps), *reasons]))
