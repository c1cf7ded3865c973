"""The report.site command: static pages of the results of many studies and dates."""

from dataclasses import dataclass
from pathlib import Path

from sifmark.commands.answers import answer_record, list_left_out, report_copies
from sifmark.commands.report.packages import require_packages
from sifmark.core.console import output, printable, status
from sifmark.report.site.folder import folder_of_site, write_site
from sifmark.report.site.pages import site_pages
from sifmark.report.site.site import SiteOptions, copies, draw, make_site


@dataclass(frozen=True)
class SiteCommand:
    """The options of the command line."""

    folder: str
    output: str
    site: SiteOptions
    format: str = "table"


def write_site_of(command: SiteCommand) -> None:
    """Write a site and print what it has. Raises SifmarkError."""
    require_packages("a site of reports")
    target = Path(command.output)
    folder_of_site(target)
    site = make_site(Path(command.folder), command.site)
    status(f"{len(site.results.members)} results read; drawing {len(site.charts())} charts")
    pages = dict(site_pages(site, draw(site, command.site.processes)))
    vanished = write_site(target, {**copies(site), **pages})
    list_left_out("left out, not valid", site.results.invalid)
    report_copies(site.results.duplicates)
    count = sum(name.endswith(".html") for name in pages)
    document = {
        "folder": command.output,
        "pages": count,
        "removed": len(vanished),
        "results": len(site.results.members),
        "charts": len(site.charts()),
        "series": len(site.history.series),
        "changes": len(site.history.changes()),
        "invalid": len(site.results.invalid),
        "duplicates": site.results.duplicates,
    }
    text = f"written: {printable(command.output)}/index.html and {count - 1} pages more"
    answer_record(command.format, document, lambda: output(text))
