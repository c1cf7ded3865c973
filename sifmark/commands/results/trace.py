"""The results.trace command: print the links from results back to image, packages, recipe and commit."""

import json
from collections.abc import Sequence

from sifmark.core.checks import Check, Status
from sifmark.core.console import output, output_table, printable
from sifmark.core.errors import SifmarkError
from sifmark.core.keys import key_files
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.engines.locate import engine_for, locate
from sifmark.results.load import load_results
from sifmark.trust.image import ImageUnderTest, image_under_test
from sifmark.trust.trace import Tracer

# How a link is described, by its status.
STANDINGS = {
    Status.PASSED: "proven",
    Status.WARNING: "claimed",
    Status.FAILED: "broken",
    Status.SKIPPED: "missing",
}


def trace_results(path: str, image: str, settings: Settings, as_json: bool) -> None:
    """Print the links of each result. `image` names the image that ran, or is empty.

    Raises SifmarkError if a link is broken.
    """
    key_files(settings.keys)  # a key that is not there is reported first
    tracer = Tracer(open_engine(settings), settings, _named_image(image, settings) if image else None)
    traces = [(result.file, tracer.trace(result)) for result in load_results(path)]
    if as_json:
        documents = [{"file": file, "links": [link_document(link) for link in links]} for file, links in traces]
        output(json.dumps(documents, indent=2))
    else:
        for file, links in traces:
            _print(file, links)
    broken = {link.name for _, links in traces for link in links if link.status is Status.FAILED}
    if broken:
        remedy = "do not rely on such a result; ask where it is from"
        raise SifmarkError(f"broken: {', '.join(sorted(broken))}", remedy, code="trace-broken")


def link_document(link: Check) -> dict[str, str]:
    """Return a link as programs read it."""
    return {"name": link.name, "standing": STANDINGS[link.status], "told": link.detail}


def _named_image(name: str, settings: Settings) -> ImageUnderTest:
    engine = engine_for(name, settings)
    return image_under_test(engine, locate(name, engine), settings)


def _print(file: str, links: Sequence[Check]) -> None:
    output(printable(file))
    output_table("link", "standing", "told", rows=[list(link_document(link).values()) for link in links])
