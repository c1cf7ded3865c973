"""Reports of studies that are in the folders of their results: a site has copies of them."""

import os
from collections.abc import Iterator
from pathlib import Path

from sifmark.report.owned_folder import is_safe
from sifmark.results.load import REPORT_MARKER

LARGEST = 256 << 20  # bytes of all files of a report


def is_report(folder: Path) -> bool:
    """Return whether a folder is that of a report."""
    return (folder / REPORT_MARKER).is_file()


def report_of(folder: Path) -> Path | None:
    """Return the report in a folder of results; of several, the newest by name."""
    if not folder.is_dir():
        return None
    with os.scandir(folder) as entries:
        folders = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return next((each for each in reversed(folders) if is_report(each)), None)


def report_files(report: Path, target: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a report by their names below a folder of the site. Links are left out, and strange names."""
    size = 0
    for parent, folders, files in os.walk(report):
        folders[:] = sorted(name for name in folders if not Path(parent, name).is_symlink())
        for name in sorted(files):
            file = Path(parent, name)
            site_name = f"{target}/{file.relative_to(report).as_posix()}"
            if file.is_symlink() or not file.is_file() or not is_safe(site_name):
                continue
            size += file.stat().st_size
            if size > LARGEST:
                return
            yield site_name, file
