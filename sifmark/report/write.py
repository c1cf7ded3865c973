"""Folders of reports and sites, and writing a report: each file complete, and the page last.

A folder's marker names the files in it that are ours: those of others are neither replaced nor removed. A report that
is written again replaces its files, and removes those that it no longer has.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from sifmark.core.errors import UsageError
from sifmark.core.files import read_bounded, scratch_dir, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.report.files import FILE_NAMES, report_files
from sifmark.report.page import render_page
from sifmark.report.paper import figure_files
from sifmark.report.report import Report
from sifmark.results.load import REPORT_MARKER

_FORMAT = 1
_LARGEST_MARKER = 64 << 20  # bytes
# Names that files of ours have: nothing hidden, and nothing that leads out of the folder.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", re.IGNORECASE)
PAGE = "index.html"
PLOTS = "plots"


def is_safe(name: str) -> bool:
    """Return whether a name may be that of a file of ours: nothing hidden, and nothing that leads elsewhere."""
    return _NAME.fullmatch(name) is not None


class OwnedFolder:
    """A folder of ours. What it is of, such as a report, its marker shows."""

    def __init__(self, path: Path, marker: str, of: str) -> None:
        self.path, self.marker, self.of = path, path / marker, of

    def require_ours(self) -> None:
        """Raise UsageError if the folder has files, and none of them says that they are ours."""
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is no folder", "name another one: --output FOLDER", code="folder-not-empty")
        if self.path.is_dir() and any(self.path.iterdir()) and not self.marker.is_file():
            cause = f"{self.path} has files that are not those of {self.of}"
            raise UsageError(cause, "name another folder, or an empty one: --output FOLDER", code="folder-not-empty")

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make the folder if need be; one that was not there goes again if the block cannot write its files."""
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except OSError:
            if is_new:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def former_files(self) -> set[str]:
        """Return the names of the files that were written earlier; none of a marker that cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            names = orjson.loads(read_bounded(self.marker, _LARGEST_MARKER))["files"]
            return {name for name in names if isinstance(name, str) and is_safe(name)}
        return set()

    def mark(self, names: Iterable[str]) -> None:
        """Say that the files of these names are ours."""
        write_json(self.marker, {"format": _FORMAT, "files": sorted(names)})

    def replace_files(self, contents: Iterable[tuple[str, bytes | Path]]) -> Iterator[str]:
        """Write files, or copy them, and yield the name of each when it is complete. Earlier ones of ours go.

        All are complete before the first has its name: on a full disk earlier files stay, and a new folder goes. A
        reader meanwhile finds files of before or of now, and none half-written.
        """
        with exclusive_lock(self.path):
            former, drafts = self.former_files(), dict[str, Path]()
            with self.made():
                self.mark(former)  # from here on, the folder is ours
                with scratch_dir(self.path, self.of.removeprefix("a ")) as scratch:
                    for name, content in contents:
                        drafts[name] = self.draft(name, content, scratch / str(len(drafts)))
                        yield name
                    self.mark({*former, *drafts})
                    for name, draft in drafts.items():
                        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                        draft.replace(self.path / name)
            for name in sorted(former.difference(drafts)):
                self.remove(name)
            self.mark(drafts)

    def draft(self, name: str, content: bytes | Path, draft: Path) -> Path:
        """Write what is to become a file of ours. Return its path.

        Raises UsageError for a name that is not safe, or that leads through a link.
        """
        target = self.path / name
        if not is_safe(name) or self.is_linked(name):
            cause = f"{target} would be written through a link, or outside of {self.of}"
            raise UsageError(cause, "name another folder: --output FOLDER", code="folder-not-empty")
        if isinstance(content, Path):
            shutil.copyfile(content, draft, follow_symlinks=False)
        else:
            draft.write_bytes(content)
        return draft

    def remove(self, name: str) -> None:
        """Remove a file of ours, and its folders if nothing is left in them."""
        target = self.path / name
        if self.is_linked(name) or not os.path.lexists(target) or (target.is_dir() and not target.is_symlink()):
            return
        target.unlink()
        for parent in list(Path(name).parents)[:-1]:
            with suppress(OSError):  # others have files there
                (self.path / parent).rmdir()

    def is_linked(self, name: str) -> bool:
        """Return whether a folder between this one and one of its files is a link."""
        return any((self.path / parent).is_symlink() for parent in list(Path(name).parents)[:-1])


def folder_of_report(path: Path) -> OwnedFolder:
    """Return the folder of a report. Raises UsageError if it has files and is not that of a report."""
    folder = OwnedFolder(path, REPORT_MARKER, "a report")
    folder.require_ours()
    return folder


def write_report(report: Report, path: Path, paper: float | None = None) -> Iterator[str]:
    """Write a report and yield the name of each file below the folder when it is complete.

    With `paper`, a width in mm, also tables for LaTeX, and charts of that width as PDF and PNG.

    Raises UsageError if the folder is not one of a report.
    """
    yield from folder_of_report(path).replace_files(_contents(report, paper))


def _contents(report: Report, paper: float | None) -> Iterator[tuple[str, bytes]]:
    is_for_paper = paper is not None
    yield from ((name, text.encode()) for name, text in report_files(report, is_for_paper).items())
    for figure in report.every_figure:
        yield from ((f"{PLOTS}/{name}", content) for name, content in figure_files(figure, paper).items())
    yield PAGE, render_page(report, FILE_NAMES, is_for_paper).encode()
