"""The cache of builds: each entry is made once, found by its key, and checked against a checksum of its files.

An entry is a folder `cache/KIND/KEY/` with its `content/` and its `seal.json`. Its lock file lies beside it: readers
share the lock, who makes or removes the entry holds it alone.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from sifmark.core.console import status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import atomic_path, read_once, read_record, sha256_files, sha256_json, sha256_tree, write_json
from sifmark.core.locks import file_lock, lock_file
from sifmark.core.permissions import require_unshared

# Folders of the cache. What is fetched of a base stays only until the base is converted.
WHEELS, LAYERS, FETCHED, BASES, BASES_WITH_WHEELS = "wheels", "layers", "fetched", "bases", "bases-with-wheels"
# With the name that bases with wheels had in 0.2: its entries have the keys of that version, and are only removed.
KINDS = (WHEELS, LAYERS, FETCHED, BASES, BASES_WITH_WHEELS, "stocked")
CHECKSUM_FILE = "seal.json"
_Result = TypeVar("_Result")
_ATTEMPTS = 3  # to make an entry that reads back as it was written


@dataclass(frozen=True)
class Checksum:
    """The checksum of an entry's files, taken when it was made."""

    digest: str  # over names and contents of its files
    size: int  # bytes
    seconds: float  # that it took to make it


@dataclass(frozen=True)
class Entry:
    """One entry of a cache folder, which may not exist yet. `make` fills the empty folder that it is given.

    `verify` gets the folder of an entry that was made earlier, and the hashes of its files by name. It raises
    SifmarkError if they are not what `make` makes.
    """

    cache: Path
    kind: str
    key: str
    make: Callable[[Path], None]
    verify: Callable[[Path, Mapping[str, str]], None] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the entry."""
        return self.cache / self.kind / self.key

    @property
    def content(self) -> Path:
        """The folder with its files, which stay only during `use`."""
        return self.folder / "content"

    def checksum(self) -> Checksum | None:
        """Return the checksum, or None if the entry does not exist or is incomplete."""
        return read_checksum(self.folder)

    @contextmanager
    def use(self, *, check: bool = True) -> Iterator[Path]:
        """Return the folder with its files; make the entry if it does not exist. It is not removed during the block.

        With `check` its files are compared with the checksum first, and made again if they are damaged. Raises
        SifmarkError if they never read back as they were written, or if `verify` does.
        """
        for folder in (self.cache, self.folder):  # the second one may be behind a link
            require_unshared(folder, "the cache")
        for attempt in range(_ATTEMPTS):
            with in_use(self.folder):
                if (checksum := self.checksum()) and (not check or self._matches(checksum, made_now=attempt > 0)):
                    os.utime(self.folder / CHECKSUM_FILE)  # the time of the last use
                    yield self.content
                    return
            self._make_again(check)
        raise self._unreliable()

    def ensure(self) -> bool:
        """Make the entry if it does not exist. Return whether it was made now; then it was read for its checksum."""
        exists = self.checksum() is not None
        with self.use(check=False):
            return not exists

    def copy(self, target: Path) -> None:
        """Copy its files into a folder. Raises SifmarkError as `use`."""
        copied: list[Path] = []

        def consume(content: Path) -> tuple[None, dict[str, str]]:
            for path in copied:  # of a damaged entry, which may have had other files
                path.unlink(missing_ok=True)
            files = _files(content)
            copied[:] = [target / name for name in files]
            return None, {name: _copy(path, target / name) for name, path in files.items()}

        self.read(consume)

    def read(self, consume: Callable[[Path], tuple[_Result, Mapping[str, str]]]) -> _Result:
        """Give the folder with its files to `consume`; return what that made of them.

        `consume` reads every file, and returns their hashes by name beside its result. These are compared with the
        checksum: a damaged entry is made and consumed again. Raises SifmarkError as `use` does, and what `consume`
        raises if the entry is not damaged.
        """
        for _ in range(_ATTEMPTS):
            with self.use(check=False) as content:
                checksum = self.checksum()
                try:
                    result, digests = consume(content)
                except Exception:  # a damaged document may lack any key
                    status(f"  {self.folder} is compared with its checksum, since a step failed")
                    if checksum is not None and self._matches(checksum):
                        raise
                else:
                    if checksum is not None and sha256_json(dict(digests)) == checksum.digest:
                        return result
            self._make_again(check=True)
        raise self._unreliable()

    def _make_again(self, check: bool) -> None:
        """Make the entry, unless another process has made it while this one waited for the lock."""
        with lock_entry(self.folder, waiting=f"another process makes {self.kind}/{self.key[:12]}"):
            checksum = self.checksum()
            if checksum and (not check or self._matches(checksum)):
                return
            if self.folder.exists():
                status(f"  {self.folder} is damaged, its checksum does not match: it is made again")
                shutil.rmtree(self.folder)
            self._make()

    def _make(self) -> None:
        started = time.monotonic()
        with atomic_path(self.folder, content_addressed=True) as draft:
            content = draft / "content"
            content.mkdir(parents=True)
            self.make(content)
            files = _files(content)
            size = sum(path.stat().st_size for path in files.values())
            checksum = Checksum(sha256_tree(files), size, round(time.monotonic() - started, 3))
            write_json(draft / CHECKSUM_FILE, asdict(checksum))

    def _matches(self, checksum: Checksum, made_now: bool = True) -> bool:
        """Return whether the files have a checksum. Raises SifmarkError if `verify` refuses what was made earlier."""
        try:
            digests = sha256_files(_files(self.content))
        except OSError:
            return False
        if sha256_json(digests) != checksum.digest:
            return False
        if self.verify is not None and not made_now:
            self.verify(self.content, digests)
        return True

    def _unreliable(self) -> SifmarkError:
        return SifmarkError(
            f"{self.folder} was made {_ATTEMPTS} times, and what was read back differs from what was written",
            "is the disk of the cache in order? name another folder in sifmark.toml",
            code="cache-unreliable",
        )


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep other processes from removing or making an entry during the block."""
    with lock_entry(folder, shared=True):
        yield


def lock_entry(folder: Path, **options: Any) -> AbstractContextManager[int]:
    """Hold an entry's lock, with the options of `file_lock`: exclusive to make or remove it, shared to use it."""
    return file_lock(lock_file(folder), **options)


def read_checksum(folder: Path) -> Checksum | None:
    """Return the checksum of an entry's folder, or None if it cannot be read."""
    return read_record(folder / CHECKSUM_FILE, Checksum)


def entry_folders(cache: Path, kind: str) -> Iterator[Path]:
    """Return the folders of all entries of a kind."""
    return (cache / kind).glob("[!.]*")


def _files(content: Path) -> dict[str, Path]:
    return {str(path.relative_to(content)): path for path in sorted(content.rglob("*")) if path.is_file()}


def _copy(source: Path, target: Path) -> str:
    """Copy a file and hash it in the same pass. Return `sha256:<hex>` of the bytes that were read."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb", buffering=0) as reader, target.open("wb") as writer:
        read_once(reader, digest.update, writer.write)
    return f"sha256:{digest.hexdigest()}"
