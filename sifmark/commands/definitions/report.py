"""Commands that write reports: pages of results, with their tables and charts."""

from typing import Annotated

from sifmark.commands.definition import Argument, Format, Keys, Option, command
from sifmark.commands.definitions.analysis import SomeResults
from sifmark.commands.definitions.study import ResultsFolder
from sifmark.core.settings import Settings


@command("report", example="report results/ --output report/")
def report(
    settings: Settings,
    paths: SomeResults = (),
    study: Annotated[
        str, Option("The study whose questions are answered; without RESULTS, its results.", "STUDY", completes="study")
    ] = "",
    results: ResultsFolder = "results",
    against: Annotated[
        str,
        Option(
            "Also show a kept baseline, published figures, or other results.", "KIND:NAME|RESULTS", completes="file"
        ),
    ] = "",
    by: Annotated[str, Option("What names the systems. [default: site, else accelerator.name]", "FIELD")] = "",
    baseline: Annotated[str, Option("The system that others are divided by. [default: the first]", "SYSTEM")] = "",
    title: Annotated[str, Option("Title of the report. [default: the study's]", "TEXT")] = "",
    anonymous: Annotated[bool, Option("Replace hosts, users and paths by labels.")] = False,
    anonymous_sites: Annotated[bool, Option("Replace names of sites too.")] = False,
    require_signature: Annotated[bool, Option("Leave out results that no trusted key has signed.")] = False,
    key: Keys = (),  # noqa: ARG001 - it is in the settings
    output: Annotated[
        str, Option("Folder of the report. [default: report]", "FOLDER", "o", completes="folder")
    ] = "report",
    format_: Format = "table",
) -> None:
    """Write a report of results: a page, tables and charts.

    With answers in words, what should not be published, and what was left out, and why.
    """
    from sifmark.commands.report.report import ReportOptions, write_report

    options = ReportOptions(
        paths=tuple(paths),
        study=study,
        results=results,
        against=against,
        by=by,
        baseline=baseline,
        title=title,
        anonymous=anonymous or anonymous_sites,
        anonymous_sites=anonymous_sites,
        trusted_keys=settings.keys if require_signature else None,
        output=output,
        format=format_,
    )
    write_report(options, settings)


@command("report.site", example="report.site results/ --output public/")
def site(
    folder: Annotated[str, Argument("Folder with results of studies, sites or dates.", "FOLDER", completes="folder")],
    by: Annotated[str, Option("What names the systems. [default: site, else accelerator.name]", "FIELD")] = "",
    title: Annotated[str, Option("Title of the site. [default: the folder's name]", "TEXT")] = "",
    charts: Annotated[int, Option("Most charts; the rest has tables alone. [default: 100]", "N", least=0)] = 100,
    with_results: Annotated[bool, Option("Also copy the results, and link to them.")] = False,
    anonymous: Annotated[bool, Option("Replace hosts, users and paths by labels.")] = False,
    anonymous_sites: Annotated[bool, Option("Replace names of sites too.")] = False,
    output: Annotated[
        str, Option("Folder of the site. [default: public]", "FOLDER", "o", completes="folder")
    ] = "public",
    format_: Format = "table",
) -> None:
    """Write a site of many studies and dates: static pages.

    With the history of each configuration, and a page for each device, workload and study. It needs no scripts and no
    network, so any web server will do.
    """
    from sifmark.commands.report.site import SiteCommand, write_site_of
    from sifmark.report.site.site import SiteOptions

    options = SiteOptions(
        title=title,
        by=by,
        most_charts=charts,
        anonymous=anonymous or anonymous_sites,
        anonymous_sites=anonymous_sites,
        with_results=with_results,
    )
    write_site_of(SiteCommand(folder, output, options, format_))
