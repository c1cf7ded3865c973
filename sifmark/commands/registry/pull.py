"""The registry.pull command."""

import json

from sifmark.core.console import output
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.policy import must_be_signed
from sifmark.publish.publisher import publisher_of


def pull(name: str, registry: str, tag: str, settings: Settings, as_json: bool, signed: bool) -> None:
    """Pull an image, and print where it is. With `signed` a trusted signature is required. Raises SifmarkError."""
    engine = open_engine(settings)
    required = must_be_signed(signed, settings)
    report = publisher_of(engine).pull(name, registry, tag, engine, settings, required)
    if as_json:
        output(json.dumps(report.document(), indent=2))
        return
    signature = (
        f"signed by {report.signer}"
        if report.signer
        else "its signature was not looked at, because no key is trusted here"
    )
    output(f"{report.address}: {report.identity}, {signature}; also called {', '.join(report.names)}")
