"""Writing a report into a folder of its own: each file complete, and the page last.

A report that is written again replaces its files one by one, and removes those that it no longer has. What else lies
in the folder stays.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from sifmark.core.errors import UsageError
from sifmark.core.files import atomic_path, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.report.charts.chart import Chart
from sifmark.report.charts.render import paper_files
from sifmark.report.files.files import file_names, report_files
from sifmark.report.page.page import render_page
from sifmark.report.report import Report
from sifmark.results.load import REPORT_MARKER

PAGE = "index.html"
OWNER = REPORT_MARKER  # it says which files of a folder are those of a report
PLOTS = "plots"


def require_own_folder(folder: Path) -> None:
    """Raise UsageError if a folder exists that has files and is not that of a report."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "choose another: --output FOLDER", code="folder-not-empty")
    if folder.is_dir() and not (folder / OWNER).is_file() and any(folder.iterdir()):
        remedy = "choose another, or remove what is in it: --output FOLDER"
        raise UsageError(f"{folder} holds files of others", remedy, code="folder-not-empty")


def write_report(report: Report, folder: Path) -> Iterator[str]:
    """Write a report and yield the name of each file below the folder when it is complete.

    Raises UsageError if the folder is not one of a report.
    """
    require_own_folder(folder)
    with exclusive_lock(folder):
        former, written = _former_files(folder), list[str]()
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / OWNER, {"files": sorted(former)})  # from here on, the folder is ours
        for name, content in _contents(report):
            _write(folder, name, content)
            written.append(name)
            write_json(folder / OWNER, {"files": sorted({*former, *written})})
            yield name
        for name in sorted(former.difference(written)):
            if _leaves(folder, name):
                continue
            (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # other files are in it
                (folder / name).parent.rmdir()
        write_json(folder / OWNER, {"files": sorted(written)})


def _contents(report: Report) -> Iterator[tuple[str, bytes]]:
    yield from ((name, text.encode()) for name, text in report_files(report).items())
    for chart in report.all_charts:
        yield from _plots(chart)
    yield PAGE, render_page(report, file_names()).encode()


def _plots(chart: Chart) -> Iterator[tuple[str, bytes]]:
    yield from ((f"{PLOTS}/{name}", content) for name, content in paper_files(chart).items())


def _write(folder: Path, name: str, content: bytes) -> None:
    if _leaves(folder, name):
        cause = f"{folder / name} would be written through a link"
        raise UsageError(cause, "remove the link, or name another folder: --output FOLDER", code="folder-not-empty")
    with atomic_path(folder / name) as draft:
        draft.write_bytes(content)


def _leaves(folder: Path, name: str) -> bool:
    """Return whether the folder of a file within a report is a link, by which one would leave it."""
    return "/" in name and (folder / name).parent.is_symlink()


def _former_files(folder: Path) -> set[str]:
    """Return the files that a report wrote into a folder before. Names that lead out of it are none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        names: Sequence[str] | Mapping[str, object] = json.loads((folder / OWNER).read_text("utf-8"))["files"]
        return {name for name in names if isinstance(name, str) and _is_within(PurePosixPath(name))}
    return set()


def _is_within(path: PurePosixPath) -> bool:
    return not path.is_absolute() and ".." not in path.parts and len(path.parts) in (1, 2)
