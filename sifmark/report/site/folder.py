"""The folder of a site: files are written beside and renamed, and what it no longer has is removed."""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from sifmark.core.errors import UsageError
from sifmark.core.files import read_bounded, scratch_dir, write_text
from sifmark.core.locks import exclusive_lock
from sifmark.results.load import SITE_MARKER

_FORMAT = 1
_LARGEST_MARKER = 64 << 20  # bytes
# Names that sites have: nothing that leads out of the folder.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", re.IGNORECASE)
_INDEX = "index.html"


def require_ours(folder: Path) -> None:
    """Raise UsageError if a folder has files and none of them says that it is a site's."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is no folder", "name another one: --output FOLDER", code="folder-not-empty")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / SITE_MARKER).is_file():
        cause = f"{folder} has files that are not those of a site"
        raise UsageError(cause, "name another folder, or an empty one: --output FOLDER", code="folder-not-empty")


def is_safe(name: str) -> bool:
    """Return whether a name may be that of a file of a site: nothing hidden, and nothing that leads elsewhere."""
    return _NAME.fullmatch(name) is not None


def write_site(folder: Path, files: Mapping[str, bytes | Path]) -> list[str]:
    """Write files by name below a folder, or copy them, the index last. Return what was removed of an earlier site.

    A reader who follows links meanwhile finds pages of the old or of the new site, and no half-written one. Raises
    UsageError for a folder that is not a site's.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder):
        require_ours(folder)
        folder.mkdir(exist_ok=True)
        former = _former_files(folder)
        _mark(folder, {*former, *files})  # also what an interrupted writer leaves is ours
        with scratch_dir(folder, "site") as scratch:
            for number, name in enumerate(sorted(files, key=lambda each: (each == _INDEX, each))):
                _write(scratch / str(number), folder, name, files[name])
        vanished = [name for name in former if name not in files and _remove(folder, name)]
        _mark(folder, files)
    return vanished


def _write(draft: Path, folder: Path, name: str, content: bytes | Path) -> None:
    target = folder / name
    if not is_safe(name) or _linked(folder, name):
        cause = f"{target} would be written through a link, or outside of the site"
        raise UsageError(cause, "name another folder: --output FOLDER", code="folder-not-empty")
    if isinstance(content, Path):
        shutil.copyfile(content, draft, follow_symlinks=False)
    else:
        draft.write_bytes(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.replace(target)


def _linked(folder: Path, name: str) -> bool:
    """Return whether a folder between a site and one of its files is a link."""
    return any((folder / parent).is_symlink() for parent in Path(name).parents)


def _former_files(folder: Path) -> list[str]:
    """Return the names of the files that were written earlier; none of a marker that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        names = orjson.loads(read_bounded(folder / SITE_MARKER, _LARGEST_MARKER))["files"]
        return sorted(name for name in names if is_safe(name))
    return []


def _mark(folder: Path, names: Any) -> None:
    document = {"format": _FORMAT, "files": sorted(names)}
    write_text(folder / SITE_MARKER, orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")


def _remove(folder: Path, name: str) -> bool:
    """Remove a file of ours, and its folders if nothing is left in them. Return whether it was there."""
    target = folder / name
    if _linked(folder, name) or not os.path.lexists(target) or (target.is_dir() and not target.is_symlink()):
        return False
    target.unlink()
    for parent in list(Path(name).parents)[:-1]:
        with suppress(OSError):  # others have files there
            (folder / parent).rmdir()
    return True
