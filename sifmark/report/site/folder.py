"""The folder of a site: files are written beside and renamed, and what it no longer has is removed."""

from collections.abc import Mapping
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import scratch_dir
from sifmark.core.locks import exclusive_lock
from sifmark.report.owned_folder import OwnedFolder
from sifmark.results.load import SITE_MARKER

_INDEX = "index.html"


def folder_of_site(path: Path) -> OwnedFolder:
    """Return the folder of a site. Raises UsageError if it is a link, or has files and is not a site's."""
    if path.is_symlink():
        raise UsageError(f"{path} is no folder", "name another one: --output FOLDER", code="folder-not-empty")
    folder = OwnedFolder(path, SITE_MARKER, "a site")
    folder.require_ours()
    return folder


def write_site(path: Path, files: Mapping[str, bytes | Path]) -> list[str]:
    """Write files by name below a folder, or copy them, the index last. Return what was removed of an earlier site.

    A reader who follows links meanwhile finds pages of the old or of the new site, and no half-written one. Raises
    UsageError for a folder that is not a site's.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(path):
        folder = folder_of_site(path)
        former = folder.former_files()
        with folder.made():
            folder.mark({*former, *files})  # also what an interrupted writer leaves is ours
            with scratch_dir(path, "site") as scratch:
                for name in sorted(files, key=lambda each: (each == _INDEX, each)):
                    folder.write(name, files[name], scratch)
        vanished = [name for name in sorted(former) if name not in files and folder.remove(name)]
        folder.mark(files)
    return vanished
