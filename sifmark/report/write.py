"""Writing a report into a folder of its own: each file complete, and the page last.

A report that is written again replaces its files, and removes those that it no longer has. What else lies
in the folder stays.
"""

from collections.abc import Iterator
from pathlib import Path

from sifmark.core.files import scratch_dir
from sifmark.core.locks import exclusive_lock
from sifmark.report.charts.chart import Chart
from sifmark.report.charts.render import paper_files
from sifmark.report.files.files import file_names, report_files
from sifmark.report.owned_folder import OwnedFolder
from sifmark.report.page.page import render_page
from sifmark.report.report import Report
from sifmark.results.load import REPORT_MARKER

PAGE = "index.html"
PLOTS = "plots"


def folder_of_report(path: Path) -> OwnedFolder:
    """Return the folder of a report. Raises UsageError if it has files and is not that of a report."""
    folder = OwnedFolder(path, REPORT_MARKER, "a report")
    folder.require_ours()
    return folder


def write_report(report: Report, path: Path) -> Iterator[str]:
    """Write a report and yield the name of each file below the folder when it is complete.

    All are complete before the first has its name: on a full disk an earlier report stays, and a new folder goes.
    Raises UsageError if the folder is not one of a report.
    """
    folder = folder_of_report(path)
    with exclusive_lock(path):
        former, drafts = folder.former_files(), dict[str, Path]()
        with folder.made():
            folder.mark(former)  # from here on, the folder is ours
            with scratch_dir(path, "report") as scratch:
                for name, content in _contents(report):
                    drafts[name] = folder.draft(name, content, scratch / str(len(drafts)))
                    yield name
                folder.mark({*former, *drafts})
                for name, draft in drafts.items():
                    folder.place(name, draft)
        for name in sorted(former.difference(drafts)):
            folder.remove(name)
        folder.mark(drafts)


def _contents(report: Report) -> Iterator[tuple[str, bytes]]:
    yield from ((name, text.encode()) for name, text in report_files(report).items())
    for chart in report.all_charts:
        yield from _plots(chart)
    yield PAGE, render_page(report, file_names()).encode()


def _plots(chart: Chart) -> Iterator[tuple[str, bytes]]:
    yield from ((f"{PLOTS}/{name}", content) for name, content in paper_files(chart).items())
