"""The registry.list command: print what a store has, or write it as a document and a page."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output
from sifmark.core.files import write_json, write_text
from sifmark.core.keys import key_names
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.catalog import COLUMNS, catalog_document, catalog_rows
from sifmark.publish.catalog_page import catalog_page
from sifmark.publish.publisher import Publisher, publisher_of


def catalog(registry: str, tag: str, folder: str, settings: Settings, form: str) -> None:
    """Print a store's catalog, or write it to a folder as catalog.json and index.html. Raises SifmarkError."""
    publisher = publisher_of(open_engine(settings))
    document = catalog_document(publisher.listing(registry, tag, settings))
    if folder:
        output("\n".join(map(str, write_catalog(document, Path(folder), publisher, settings))))
    else:
        answer(form, document, Table(tuple(COLUMNS.values()), catalog_rows(document)))


def write_catalog(
    document: Mapping[str, Any], folder: Path, publisher: Publisher, settings: Settings
) -> tuple[Path, Path]:
    """Write a catalog to a folder as a document and a page, and return their paths."""
    paths = folder / "catalog.json", folder / "index.html"
    write_json(paths[0], document)
    write_text(paths[1], catalog_page(document, publisher.PULL_COMMAND, key_names(settings.keys), datetime.now(UTC)))
    return paths
