"""The registry.push command."""

import json

from sifmark.core.console import output, status
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.publisher import publisher_of


def push(name: str, registry: str, tag: str, settings: Settings, as_json: bool) -> None:
    """Push a recipe's image to a store, under each of its names, and print its reference. Raises SifmarkError."""
    engine = open_engine(settings)
    report = publisher_of(engine).push(name, registry, tag, engine, settings)
    if as_json:
        output(json.dumps(report.document(), indent=2))
    else:
        output(report.reference)
        status(f"  {report.summary}")
