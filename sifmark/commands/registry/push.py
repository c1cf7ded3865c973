"""The registry.push command."""

from sifmark.commands.answers import answer_record
from sifmark.core.console import detail, output, status
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.publisher import publisher_of


def push(name: str, registry: str, tag: str, settings: Settings, form: str) -> None:
    """Push a recipe's image to a store, under each of its names, and print its reference. Raises SifmarkError."""
    engine = open_engine(settings)
    report = publisher_of(engine).push(name, registry, tag, engine, settings)
    answer_record(form, report.document(), lambda: output(report.reference))
    status(f"  {report.summary}")
    detail(f"  {', '.join(report.names)}")
