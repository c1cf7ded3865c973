"""What builds keep: each thing made once, found by its key, sealed by a hash, forgotten when its space is wanted.

An entry is a folder `cache/KIND/KEY/` with its `content/` and its `seal.json`. Who uses or makes one holds a lock
beside it: shared by users, alone for who makes or removes it.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from sifmark.core.console import status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import atomic_path, human_size, remove_stale_drafts, sha256_json, sha256_tree, write_json
from sifmark.core.locks import LockHeldError, file_lock, lock_file
from sifmark.core.settings import settings

WHEELS, LAYERS, BASES, STOCKED = KINDS = ("wheels", "layers", "bases", "stocked")  # folders of the cache
_BLOCK = 4 * 1024 * 1024  # bytes read at once
_GIB = 1024**3
_ATTEMPTS = 3  # to have an entry that reads back as it was written


@dataclass(frozen=True)
class Seal:
    """What is known of an entry since it was made."""

    digest: str  # over names and contents of its files
    size: int  # bytes
    seconds: float  # that its making took


@dataclass(frozen=True)
class Entry:
    """One thing in the cache, there or not. `make` fills the empty folder it is given."""

    kind: str
    key: str
    make: Callable[[Path], None]

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return settings().cache / self.kind / self.key

    @property
    def content(self) -> Path:
        """The folder with its files; what is in it is only sure within `held`."""
        return self.folder / "content"

    def seal(self) -> Seal | None:
        """Its seal, or None where the entry is not there or cannot be whole."""
        return _read_seal(self.folder)

    @contextmanager
    def held(self, *, check: bool = True) -> Iterator[Path]:
        """Its content, made if need be, for as long as the block runs: nobody removes it meanwhile.

        With `check` it is held against its seal first, and made again where it is damaged.
        """
        for _ in range(_ATTEMPTS):
            with in_use(self.folder):
                if (seal := self.seal()) and (not check or self._whole(seal)):
                    os.utime(self.folder / "seal.json")  # it was wanted just now
                    yield self.content
                    return
            self._make_again(check)
        raise self._spoiled()

    def ensure(self) -> bool:
        """Make it where it is not there; whether it was made now, and so read to be sealed."""
        there = self.seal() is not None
        with self.held(check=False):
            return not there

    def copy(self, target: Path, skip: Mapping[str, int] | None = None) -> None:
        """Put copies of its files into a folder, held against its seal on the way; made again where it is damaged.

        `skip` are bytes to leave free before what is copied, by the file's name.
        """
        free = skip or {}
        for _ in range(_ATTEMPTS):
            with self.held(check=False) as content:
                seal = self.seal()
                digests = {
                    name: _copy(path, target / name, free.get(name, 0)) for name, path in _files(content).items()
                }
                if seal is not None and sha256_json(digests) == seal.digest:
                    return
            self._make_again(check=True)
        raise self._spoiled()

    def _make_again(self, check: bool) -> None:
        """Make it, unless another process has done so while this one waited."""
        with _lock(self.folder, waiting=f"another process makes {self.kind}/{self.key[:12]}"):
            seal = self.seal()
            if seal and (not check or self._whole(seal)):
                return
            if self.folder.exists():
                status(f"  {self.folder} is damaged, its seal does not fit: it is made again")
                shutil.rmtree(self.folder)
            started = time.monotonic()
            with atomic_path(self.folder) as draft:
                content = draft / "content"
                content.mkdir(parents=True)
                self.make(content)
                files = _files(content)
                size = sum(path.stat().st_size for path in files.values())
                seal = Seal(sha256_tree(files), size, round(time.monotonic() - started, 3))
                write_json(draft / "seal.json", asdict(seal))

    def _whole(self, seal: Seal) -> bool:
        with suppress(OSError):
            return sha256_tree(_files(self.content)) == seal.digest
        return False

    def _spoiled(self) -> SifmarkError:
        return SifmarkError(
            f"{self.folder} was made {_ATTEMPTS} times, and what was read back was not what was written",
            "is the disk of the cache in order? name another folder in sifmark.toml",
        )


def rate(kind: str) -> float | None:
    """Bytes a second that the making of a kind's entries managed on this host, or None where there are none."""
    seals = [_read_seal(folder) for folder in _entries(kind)]
    seconds = sum(seal.seconds for seal in seals if seal)
    return sum(seal.size for seal in seals if seal) / seconds if seconds else None


def remove_all_stale_drafts() -> None:
    """Remove what killed builds left unfinished."""
    for kind in KINDS:
        remove_stale_drafts(settings().cache / kind)


def remove_all() -> Iterator[str]:
    """Remove every entry, as soon as nobody uses or makes it; says what went. The locks stay: others may hold them."""
    for kind in KINDS:
        for folder in list(_entries(kind)):
            with _lock(folder):
                shutil.rmtree(folder, ignore_errors=True)
            yield f"{kind}/{folder.name[:12]}"


def trim() -> None:
    """Remove what was longest unused until the cache is within the site's limit; what is in use stays."""
    limit = settings().cache_limit
    if limit is None:
        return
    used = sorted(_sizes(), key=lambda found: found[0])
    total = sum(size for _, size, _ in used)
    for _, size, folder in used:
        if total <= limit * _GIB:
            return
        if _remove_unused(folder):
            status(
                f"  cache over its limit of {limit:g} GiB: removed {folder.parent.name}/{folder.name[:12]}, "
                f"{human_size(size)}"
            )
            total -= size


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep an entry from being removed or made again while the block runs."""
    with _lock(folder, shared=True):
        yield


def _read_seal(folder: Path) -> Seal | None:
    try:
        return Seal(**json.loads((folder / "seal.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _entries(kind: str) -> Iterator[Path]:
    return (settings().cache / kind).glob("[!.]*")


def _sizes() -> Iterator[tuple[float, int, Path]]:
    """When each entry was last wanted, its size in bytes, and its folder."""
    for kind in KINDS:
        for folder in _entries(kind):
            with suppress(OSError):
                marks = [folder / "seal.json"] if (folder / "seal.json").is_file() else [*folder.glob("*")]
                wanted = max((mark.stat().st_mtime for mark in marks), default=0.0)
                yield wanted, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), folder


def _remove_unused(folder: Path) -> bool:
    try:
        with _lock(folder, wait=False):
            shutil.rmtree(folder, ignore_errors=True)
            return True
    except LockHeldError:
        return False


def _lock(folder: Path, **options: Any) -> AbstractContextManager[None]:
    """Hold an entry's lock: exclusive for who makes or removes it, shared for who uses it."""
    return file_lock(lock_file(folder), **options)


def _files(content: Path) -> dict[str, Path]:
    """The files of an entry by their names within it."""
    return {str(path.relative_to(content)): path for path in sorted(content.rglob("*")) if path.is_file()}


def _copy(source: Path, target: Path, skip: int) -> str:
    """Copy a file and hash it in one pass, side by side: `sha256:<hex>` of what was read."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Two for all: one is hashed while the other is filled, and fresh memory for each costs more than its hash.
    blocks = cycle([memoryview(bytearray(_BLOCK)) for _ in range(2)])
    with source.open("rb") as reader, target.open("wb") as writer, ThreadPoolExecutor(1) as beside_us:
        writer.seek(skip)
        hashed = beside_us.submit(digest.update, b"")
        while count := reader.readinto(block := next(blocks)):
            hashed.result()
            hashed = beside_us.submit(digest.update, block[:count])
            writer.write(block[:count])
    return f"sha256:{digest.hexdigest()}"
