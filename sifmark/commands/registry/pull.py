"""The registry.pull command."""

from sifmark.commands.answers import answer_record
from sifmark.core.console import detail, output
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.publish.policy import must_be_signed
from sifmark.publish.publisher import publisher_of
from sifmark.publish.reports import PullReport


def pull(name: str, registry: str, tag: str, settings: Settings, form: str, signed: bool) -> None:
    """Pull an image, and print where it is. With `signed` a trusted signature is required. Raises SifmarkError."""
    engine = open_engine(settings)
    required = must_be_signed(signed, settings)
    report = publisher_of(engine).pull(name, registry, tag, engine, settings, required)
    answer_record(form, report.document(), lambda: _show(report))


def _show(report: PullReport) -> None:
    signature = f"signed by {report.signer}" if report.signer else "signature not checked: no key is trusted here"
    output(f"{report.address}: {report.identity}, {signature}, {len(report.names)} names")
    detail(f"  {', '.join(report.names)}")
