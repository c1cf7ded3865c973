"""Whether a layer of wheels holds what the locked wheels list, and nothing else.

The seal of a cache entry finds damage. It does not find what somebody added who then made a new seal; the lists in the
wheels do, because the lock has the hash of each wheel.
"""

import base64
import csv
import io
import re
import stat
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sifmark.core.errors import SifmarkError

_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
_OF_INSTALLER = re.compile(r"[^/]+\.dist-info/(INSTALLER|REQUESTED|RECORD)")  # nothing imports or runs these
_MOVED = re.compile(r"[^/]+\.data/(purelib|platlib|data)/(.*)")  # what is installed beside the packages of a wheel
_REMEDY = "who else writes to the cache? Remove it and build again: `sifmark clean --cache`"
_BYTECODE = ".pyc"


def listed_digests(wheels: Iterable[Path]) -> dict[str, set[str]]:
    """Return the files that wheels install, by name, each with the `sha256:<hex>` that their lists give."""
    listed: dict[str, set[str]] = defaultdict(set)
    for wheel in wheels:
        for name, digest in _rows(wheel):
            moved = _MOVED.fullmatch(name)
            listed[moved.group(2) if moved else name].add(digest)
    return listed


def require_listed(content: Path, folder: str, digests: Mapping[str, str], wheels: Iterable[Path]) -> list[str]:
    """Check the files of a layer, all of them in `folder`, against the lists in wheels.

    `digests` has the hashes of all ordinary files by their names. Return the names of bytecode that no wheel lists.
    Raises SifmarkError for the first file that is not as listed.
    """
    listed = {f"{folder}/{name}": values for name, values in listed_digests(wheels).items()}
    for path in content.rglob("*"):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise altered(path, "is no ordinary file")
    rest = {name for name, digest in digests.items() if digest not in listed.get(name, ())}
    rest -= {name for name in rest if _OF_INSTALLER.fullmatch(name.removeprefix(f"{folder}/"))}
    unlisted = {name for name in rest if not name.endswith(_BYTECODE)}
    if name := min(unlisted, default=None):
        raise altered(content / name, "is not as its wheel has it" if name in listed else "is in no wheel of the lock")
    return sorted(rest)


def altered(path: Path, how: str) -> SifmarkError:
    """Return the error for a file in the cache that is not what a build put there."""
    return SifmarkError(f"the cache was changed: {path} {how}", _REMEDY, code="cache-altered")


def _rows(wheel: Path) -> Iterator[tuple[str, str]]:
    """Yield name and digest of each file in a wheel's list."""
    with zipfile.ZipFile(wheel) as archive:
        (record,) = (name for name in archive.namelist() if _RECORD.fullmatch(name))
        with archive.open(record) as stream:
            for name, digest, *_ in csv.reader(io.TextIOWrapper(stream, "utf-8", newline="")):
                algorithm, _, value = digest.partition("=")
                if algorithm == "sha256":
                    yield name, f"sha256:{base64.urlsafe_b64decode(value + '=' * (-len(value) % 4)).hex()}"
