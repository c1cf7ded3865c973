"""The folder of a site: names of its files, how they are written, and the reports of studies that it copies."""

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.report.write import OwnedFolder, is_safe
from sifmark.results.load import REPORT_MARKER, SITE_MARKER

_LONGEST = 40
_UNSAFE = re.compile(r"[^a-z0-9_]+")
_DIGITS, _ALL_DIGITS = 10, 64  # of a digest in a name
_WITH_DIGEST = re.compile(r"(.*-)?[0-9a-f]{10,}")
LARGEST = 256 << 20  # bytes of all files of a report
_INDEX = "index.html"


def file_names(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return a name of small letters, digits, `-` and `_` for each text, made of its label; no two are equal.

    A text that is no such name gets a digest, so that `ResNet` and `resnet` differ on file systems without case.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text, label in sorted(labels.items()):
        name = _name(text, label, _DIGITS)
        if name in taken:
            name = _name(text, label, _ALL_DIGITS)
        names[text] = name
        taken.add(name)
    return names


def _name(text: str, label: str, digits: int) -> str:
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    slug = _UNSAFE.sub("-", plain).strip("-_")[:_LONGEST].strip("-_")
    if slug and slug == text and digits < _ALL_DIGITS and not _WITH_DIGEST.fullmatch(text):
        return slug
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{slug}-{digest}" if slug else digest


def is_report(folder: Path) -> bool:
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
    folder = folder_of_site(path)
    former = [name for name in sorted(folder.former_files()) if os.path.lexists(path / name)]
    ordered = sorted(files, key=lambda each: (each == _INDEX, each))
    for _ in folder.replace_files((name, files[name]) for name in ordered):
        pass
    return [name for name in former if name not in files and not os.path.lexists(path / name)]
