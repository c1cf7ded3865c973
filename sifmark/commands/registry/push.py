"""The registry.push command."""

from sifmark.commands.answers import Table, answer
from sifmark.core.console import detail, output, status
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.publisher import publisher_of


def push(name: str, registry: str, tag: str, settings: Settings, form: str) -> None:
    """Push a recipe's image to a store, under each of its names, and print its reference. Raises SifmarkError."""
    engine = open_engine(settings)
    report = publisher_of(engine).push(name, registry, tag, engine, settings)
    document = report.document()
    answer(form, document, Table(tuple(document), [tuple(document.values())]), lambda: output(report.reference))
    status(f"  {report.summary}")
    detail(f"  {', '.join(report.names)}")
