"""Commands that write reports: a page of results with tables and charts, and sites of many studies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer, answer_record, list_left_out
from sifmark.core.console import counted, fraction, printable
from sifmark.core.errors import UsageError
from sifmark.core.files import human_size
from sifmark.core.keys import require_trusted_keys
from sifmark.core.terminal import output, output_table, status, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.report.report import Report
    from sifmark.report.site.site import SiteOptions

anonymous_flag = cli.flag("--anonymous", "Replace hosts, users and paths by labels.")
anonymous_sites_flag = cli.flag("--anonymous-sites", "Replace names of sites too.")


@cli.command("report", example="report results/ --output report/")
@cli.results_argument(required=False)
@cli.option(
    "--study", "The study that results are of, with its questions and charts; without RESULTS, its results.", "STUDY"
)
@cli.variant_option
@cli.results_folder_option
@cli.option(
    "--against",
    "Also show a kept baseline, published figures, or other results.",
    "KIND:NAME|RESULTS",
    completes="file",
)
@cli.by_option
@cli.option("--baseline", "The system that others are divided by. [default: the first]", "SYSTEM")
@cli.option(
    "--allow",
    "Compare results that differ in this field, although they should not. Repeatable.",
    "FIELD",
    multiple=True,
)
@cli.between_option
@cli.option("--title", "Title of the report. [default: the study's]", "TEXT")
@cli.option("--paper", "Add charts as PDF and PNG of this width, and tables for LaTeX.", "MM", kind=float)
@anonymous_flag
@anonymous_sites_flag
@cli.signature_flag
@cli.key_option
@cli.output_option("Folder of the report. [default: report]", "FOLDER", "folder")
@cli.format_option
def report(
    settings: Settings,
    paths: Sequence[str] = (),
    study: str = "",
    variant: str = "",
    results: str = "results",
    against: str = "",
    by: str = "",
    baseline: str = "",
    allow: Sequence[str] = (),
    between: str = "",
    title: str = "",
    paper: float | None = None,
    anonymous: bool = False,
    anonymous_sites: bool = False,
    require_signature: bool = False,
    folder: str = "report",
    form: str = TABLE,
) -> None:
    """Write a report of results: a page, tables and charts.

    With what should not be published, and what was left out and why.
    """
    from sifmark.report import library
    from sifmark.report.write import PAGE
    from sifmark.results.comparison.sessions import BETWEEN

    written = library.report(
        paths,
        folder,
        study=study,
        variant=variant,
        results=results,
        against=against,
        by=by,
        baseline=baseline,
        allow=allow,
        between=fraction(between, "--between") if between else BETWEEN,
        paper=paper,
        title=title,
        anonymous=anonymous,
        anonymous_sites=anonymous_sites,
        trusted_keys=settings.keys if require_signature else None,
        settings=settings,
    )
    sizes = {name: (written.folder / name).stat().st_size for name in written.names}
    rows = [(str(written.folder / name), size) for name, size in sizes.items()]
    document = {"folder": folder, "files": [{"file": file, "size": size} for file, size in rows]}

    def show() -> None:
        folders = Counter(name.partition("/")[0] for name in sizes if "/" in name)
        shown = [(name, human_size(size)) for name, size in sizes.items() if "/" not in name]
        shown += [(f"{name}/", counted(count, "file")) for name, count in folders.items()]
        output_table("file", "size", rows=[(printable(f"{written.folder}/{name}"), size) for name, size in shown])

    answer(form, document, Table(("file", "bytes"), rows), show)
    _report_left_out(written.report)
    status(f"open {printable(str(written.folder / PAGE))} in a browser")
    written.require_complete()


def _report_left_out(report: Report) -> None:
    left_out = [printable(f"{each.file}: {each.reason}") for each in report.left_out]
    list_left_out(left_out, report.results.duplicates, "left out")
    for each in report.refused:
        warn(printable(f"not compared: {each.reason}; for example {each.file}"))
    if report.notices:
        reasons = ", ".join(
            f"{notice.mark.name} ({notice.count})" if notice.of > 1 else notice.mark.name for notice in report.notices
        )
        warn(f"not for publication: {reasons}")


@cli.command("report.site", example="report.site results/ --output public/")
@cli.argument(
    "folders",
    "Folders with results of studies, sites or dates; of a register also images that results refer to: "
    "oras://HOST/PATH:TAG.",
    "FOLDER",
    nargs=-1,
)
@cli.by_option
@cli.option("--title", "Title of the site. [default: the folder's name]", "TEXT")
@cli.option("--charts", "Most charts; the rest has tables alone. [default: 1000]", "N", least=0)
@cli.flag("--with-results", "Also copy the results, and link to them.")
@anonymous_flag
@anonymous_sites_flag
@cli.signature_flag
@cli.key_option
@cli.output_option("Folder of the site. [default: public]", "FOLDER", "target")
@cli.format_option
def site(
    folders: Sequence[str],
    settings: Settings,
    by: str = "",
    title: str = "",
    charts: int = 1000,
    with_results: bool = False,
    anonymous: bool = False,
    anonymous_sites: bool = False,
    require_signature: bool = False,
    target: str = "public",
    form: str = TABLE,
) -> None:
    """Write a site of many studies and dates: static pages.

    With the history of each configuration, and a page for each device, workload and study. It needs no
    network, so any web server will do. With --require-signature it is a register: only what a trusted key has
    signed counts, each number says whose it is, and systems are ranked as far as they compare.
    """
    from sifmark.publish.results import ADDRESS, fetch_results
    from sifmark.report.site.folder import folder_of_site
    from sifmark.report.site.read import Fetched
    from sifmark.report.site.site import SiteOptions

    options = SiteOptions(
        title=title,
        by=by,
        most_charts=charts,
        anonymous=anonymous or anonymous_sites,
        anonymous_sites=anonymous_sites,
        with_results=with_results,
        trusted_keys=tuple(settings.keys) if require_signature else None,
    )
    folder_of_site(Path(target))
    images = [each for each in folders if each.startswith(ADDRESS)]
    local = [Path(each) for each in folders if each not in images]
    if not images:
        _write_site(local, options, target, form)
        return
    if not require_signature:
        remedy = "add --require-signature, and --key FILE.pub for each that you trust"
        raise UsageError("anybody may have pushed what is in a registry", remedy, code="invalid-option")
    require_trusted_keys(settings.keys)
    with TemporaryDirectory(prefix="sifmark-") as name:
        fetched = Fetched(Path(name), tuple(fetch_results(images, Path(name))))
        _write_site(local, replace(options, fetched=fetched), target, form)


def _write_site(folders: Sequence[Path], options: SiteOptions, target: str, form: str) -> None:
    from sifmark.report.site.folder import write_site
    from sifmark.report.site.pages import site_pages
    from sifmark.report.site.site import copies, make_site

    made = make_site(folders, options)
    status(f"{counted(len(made.results.members), 'result')} read")
    pages = dict(site_pages(made))
    vanished = write_site(Path(target), {**copies(made), **pages})
    list_left_out(made.results.invalid, made.results.duplicates, "left out, not valid")
    list_left_out(made.results.unsigned, label="left out, nobody vouches for it")
    count = sum(name.endswith(".html") for name in pages)
    document: dict[str, Any] = {
        "folder": target,
        "pages": count,
        "removed": len(vanished),
        "results": len(made.results.members),
        "charts": made.chart_count,
        "series": len(made.history.series),
        "changes": len(made.history.changes()),
        "invalid": len(made.results.invalid),
        "duplicates": made.results.duplicates,
    }
    if made.results.signed:
        document |= {
            "signers": made.results.signers,
            "unsigned": made.results.unsigned,
            "rankings": len(made.rankings),
        }
    index = printable(str(Path(target) / "index.html"))
    text = f"written: {index} and {counted(count - 1, 'page')} more"
    answer_record(form, document, lambda: output(text))
