"""The results.trace command: print the links from results back to image, packages, recipe and commit."""

from collections.abc import Iterable, Sequence

from sifmark.commands.answers import Table, answer
from sifmark.core.checks import Check, Status
from sifmark.core.console import output, output_table, printable
from sifmark.core.errors import SifmarkError
from sifmark.core.keys import key_files
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.engines.locate import engine_for, locate
from sifmark.results.load import load_all
from sifmark.trust.image import ImageUnderTest, image_under_test
from sifmark.trust.trace import Tracer

# How a link is described, by its status.
STATES = {
    Status.PASSED: "verified",
    Status.WARNING: "unverified",
    Status.FAILED: "contradicted",
    Status.SKIPPED: "missing",
}


def trace_results(paths: Iterable[str], image: str, settings: Settings, form: str) -> None:
    """Print the links of each result. `image` names the image that ran, or is empty.

    Raises SifmarkError if a link is broken.
    """
    key_files(settings.keys)  # a key that is not there is reported first
    tracer = Tracer(open_engine(settings), settings, _named_image(image, settings) if image else None)
    traces = [(result.file, tracer.trace(result)) for result in load_all(paths)]
    documents = [{"file": file, "links": [link_document(link) for link in links]} for file, links in traces]
    rows = [(file, *link_document(link).values()) for file, links in traces for link in links]
    answer(form, documents, Table(("file", "link", "state", "detail"), rows), lambda: _show(traces))
    broken = {link.name for _, links in traces for link in links if link.status is Status.FAILED}
    if broken:
        remedy = "do not rely on such a result; ask where it is from"
        raise SifmarkError(f"contradicted: {', '.join(sorted(broken))}", remedy, code="trace-broken")


def link_document(link: Check) -> dict[str, str]:
    """Return a link as programs read it."""
    return {"name": link.name, "state": STATES[link.status], "detail": link.detail}


def _named_image(name: str, settings: Settings) -> ImageUnderTest:
    engine = engine_for(name, settings)
    return image_under_test(engine, locate(name, engine), settings)


def _show(traces: Iterable[tuple[str, Sequence[Check]]]) -> None:
    for file, links in traces:
        output(printable(file))
        output_table("link", "state", "detail", rows=[list(link_document(link).values()) for link in links])
