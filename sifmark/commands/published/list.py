"""The published.list command: the published studies whose figures sifmark has."""

from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.console import status
from sifmark.studies.published.listing import study_record
from sifmark.studies.published.load import load_published, published_names


def list_published(form: str) -> None:
    """Print a row for each published study. Raises UsageError for a file that is not valid."""
    records = [study_record(load_published(name)) for name in published_names()]
    columns = ("name", "tables", "figures", "year", "authors", "title")
    # A year is no number with a separator of thousands.
    rows = [[str(record[column]) if column == "year" else record[column] for column in columns] for record in records]
    answer(form, records, Table(columns, rows))
    if form == TABLE:
        status("the figures of one: sifmark published.show NAME; results beside them: --against published:NAME")
