"""The results.trace command: print the links from results back to image, packages, recipe and commit."""

import os
from collections.abc import Iterable, Sequence

from sifmark.commands.answers import Table, answer
from sifmark.core.checks import Check, Status
from sifmark.core.console import output, output_table, printable
from sifmark.core.errors import SifmarkError, unknown_name
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


VALID = "valid"  # a result that agrees with its schema and with itself, and that no trusted key has signed
LINKS = ("result", "image", "signature", "provenance", "packages", "base", "recipe", "workload", "commit")


def trace_results(paths: Iterable[str], image: str, settings: Settings, form: str, require: str = "") -> None:
    """Print the links of each result. `image` names the image that ran, or is empty.

    Raises SifmarkError if a link is contradicted, or if one of those in `require`, names with commas, is not verified;
    where the variable CI is set, `image` is required.
    """
    required = _required_links(require)
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
    incomplete = [file for file, links in traces if required - _verified(links)]
    if incomplete:
        cause = (
            f"{len(incomplete)} results lack a required link ({', '.join(sorted(required))}), such as {incomplete[0]}"
        )
        remedy = "name the image that ran, --image FILE, and trusted keys, --key; or choose links with --require"
        raise SifmarkError(cause, remedy, code="trace-incomplete")


def link_document(link: Check) -> dict[str, str]:
    """Return a link as programs read it."""
    unsigned = link.name == "result" and link.status is Status.WARNING
    return {"name": link.name, "state": VALID if unsigned else STATES[link.status], "detail": link.detail}


def _required_links(names: str) -> set[str]:
    """Return the links that must be verified; without names `image` in CI. Raises UsageError for an unknown one."""
    if not names:
        return {"image"} if os.environ.get("CI") else set()
    wanted = {name.strip() for name in names.split(",")}
    for name in sorted(wanted - set(LINKS)):
        raise unknown_name("link", name, LINKS)
    return wanted


def _verified(links: Iterable[Check]) -> set[str]:
    return {link.name for link in links if link.status is Status.PASSED}


def _named_image(name: str, settings: Settings) -> ImageUnderTest:
    engine = engine_for(name, settings)
    return image_under_test(engine, locate(name, engine), settings)


def _show(traces: Iterable[tuple[str, Sequence[Check]]]) -> None:
    for file, links in traces:
        output(printable(file))
        output_table("link", "state", "detail", rows=[list(link_document(link).values()) for link in links])
