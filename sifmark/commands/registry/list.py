"""The registry.list command: print what a store has, or write it as a document and a page."""

from pathlib import Path

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output
from sifmark.core.files import write_json, write_text
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.catalog import COLUMNS, catalog_document, catalog_page, catalog_rows
from sifmark.publish.publisher import publisher_of


def catalog(registry: str, tag: str, folder: str, settings: Settings, form: str) -> None:
    """Print a store's catalog, or write it to a folder as catalog.json and index.html. Raises SifmarkError."""
    publisher = publisher_of(open_engine(settings))
    document = catalog_document(publisher.listing(registry, tag, settings))
    if folder:
        path = Path(folder) / "catalog.json"
        write_json(path, document)
        write_text(path.with_name("index.html"), catalog_page(document, publisher.PULL_COMMAND))
        output(str(path))
    else:
        answer(form, document, Table(COLUMNS, catalog_rows(document)))
