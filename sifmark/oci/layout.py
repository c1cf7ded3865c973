"""OCI image layouts, folders of blobs with an index: the only reader and writer of these.

Format: github.com/opencontainers/image-spec, image-layout.md. A blob is named by the digest of its bytes, and written
to a draft that is renamed. The index comes last: it says that everything is there.
"""

import hashlib
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from sifmark.core.errors import SifmarkError
from sifmark.core.files import read_bounded, scratch_dir, sha256_bytes, sha256_file, write_json
from sifmark.core.locks import file_lock
from sifmark.oci.manifest import DIGEST, MAX_DOCUMENT_SIZE, Descriptor, read_index

_NAME = "org.opencontainers.image.ref.name"  # annotation of an entry of the index
_CHUNK = 1 << 20  # bytes


class BlobWriter:
    """A stream into a blob that counts and hashes its bytes."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self._hash, self.size = sink, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """The digest of all that was written."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        """Write all of `data`."""
        self._hash.update(data)
        self.size += len(data)
        return self._sink.write(data)

    def flush(self) -> None:
        """Flush the buffer."""
        self._sink.flush()


@dataclass(frozen=True)
class Layout:
    """A layout in a folder, which need not exist yet; `remedy` says how to restore a damaged one."""

    folder: Path
    remedy: str = ""

    @property
    def index_file(self) -> Path:
        """The path of the index."""
        return self.folder / "index.json"

    def blob(self, digest: str) -> Path:
        """Return the path of a blob, whether or not it exists. Raises SifmarkError if `digest` is not one."""
        if DIGEST.fullmatch(digest) is None:
            raise SifmarkError(
                f"{self.folder} names {digest!r}, which is no digest", self.remedy, code="document-invalid"
            )
        return self._blobs / digest.removeprefix("sha256:")

    def has(self, digest: str) -> bool:
        """Return whether the layout holds the bytes of a digest; reads all of them."""
        path = self.blob(digest)
        return path.is_file() and sha256_file(path) == digest

    def require(self, digest: str) -> None:
        """Raise SifmarkError unless the layout holds the bytes of a digest."""
        if not self.has(digest):
            raise self._damaged(digest)

    def read(self, digest: str) -> bytes:
        """Return a document by its digest. Raises SifmarkError if it is missing, damaged or too large."""
        try:
            content = read_bounded(self.blob(digest), MAX_DOCUMENT_SIZE)
        except (OSError, ValueError) as error:
            raise self._damaged(digest) from error
        if sha256_bytes(content) != digest:
            raise self._damaged(digest)
        return content

    def copy(self, digest: str, size: int, target: Path) -> None:
        """Copy a blob to a file. Raises SifmarkError if it has not `size` bytes, or not that digest."""
        path = self.blob(digest)
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                raise SifmarkError(f"{path} does not have the {size} bytes announced", self.remedy, code="file-damaged")
            shutil.copyfile(path, target)
        except FileNotFoundError as error:
            raise SifmarkError(f"{path} is missing", self.remedy, code="file-missing") from error
        if (actual := sha256_file(target)) != digest:
            raise SifmarkError(f"{path}: the answer has digest {actual}", self.remedy, code="digest-mismatch")

    def add(self, content: bytes) -> str:
        """Store some bytes as a blob; return their digest."""
        with self.writer() as blob:
            blob.write(content)
        return blob.digest

    def add_file(self, source: Path, digest: str) -> bool:
        """Store a file as a blob unless the layout has it; return whether it was copied.

        Raises SifmarkError if the file has another digest.
        """
        if self.has(digest):
            return False
        with source.open("rb") as stream, self.writer() as blob:
            shutil.copyfileobj(stream, blob, _CHUNK)
            if blob.digest != digest:
                cause = f"{source} has digest {blob.digest}, not {digest}"
                raise SifmarkError(cause, "has it changed? try again", code="digest-mismatch")
        return True

    @contextmanager
    def writer(self) -> Iterator[BlobWriter]:
        """Yield a stream whose bytes become a blob, named by their digest, if the block succeeds."""
        with scratch_dir(self._blobs, "blob") as holder:
            draft = holder / "blob"
            with draft.open("wb") as sink:
                blob = BlobWriter(sink)
                yield blob
            draft.replace(self.blob(blob.digest))

    @contextmanager
    def partial(self, digest: str) -> Iterator[Path | None]:
        """Yield a file that becomes a blob if the block succeeds, and else stays for the next attempt.

        The block checks the digest. Yield None if the blob exists. A process that fetches the same blob waits.
        """
        blob = self.blob(digest)
        partial = blob.with_name(f".{blob.name}.partial")
        if blob.is_file():
            yield None
            return
        with file_lock(partial, waiting=f"another process fetches {digest}"):
            if blob.is_file():  # since another process has it
                partial.unlink()
                yield None
            else:
                yield partial
                partial.replace(blob)

    def index(self) -> dict[str, Any]:
        """Return the index, including what others wrote there; an empty one if there is no file.

        Raises SifmarkError if the file is something else.
        """
        if not self.index_file.exists():
            return {"schemaVersion": 2, "manifests": []}
        try:
            return read_index(read_bounded(self.index_file, MAX_DOCUMENT_SIZE))
        except (OSError, ValueError) as error:
            cause = f"{self.index_file} is no index of an OCI image layout: {error}"
            raise SifmarkError(cause, self.remedy, code="document-invalid") from error

    def names(self) -> dict[str, str]:
        """Return the digest of the manifest of each name. Raises SifmarkError if a name has no digest."""
        names = {name: str(entry.get("digest")) for entry in self.index()["manifests"] if (name := _name(entry))}
        for digest in names.values():
            self.blob(digest)
        return names

    def write_index(self, manifests: Sequence[Descriptor]) -> None:
        """Write an index of these manifests and no others."""
        self._write_index({"schemaVersion": 2, "manifests": [manifest.document() for manifest in manifests]})

    def name(self, manifest: Descriptor, names: Sequence[str]) -> None:
        """Name a manifest; other entries of the index stay.

        The index is read, changed and written: callers that may run concurrently hold a lock.
        """
        document = self.index()
        entries = [entry for entry in document["manifests"] if _name(entry) not in names]
        entries += [replace(manifest, annotations={_NAME: name}).document() for name in names]
        self._write_index({"schemaVersion": 2, **document, "manifests": entries})

    def _write_index(self, document: dict[str, Any]) -> None:
        write_json(self.folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})
        write_json(self.index_file, document)

    def _damaged(self, digest: str) -> SifmarkError:
        return SifmarkError(f"{self.blob(digest)} is missing or damaged", self.remedy, code="file-damaged")

    @property
    def _blobs(self) -> Path:
        return self.folder / "blobs" / "sha256"


def _name(entry: dict[str, Any]) -> str:
    annotations = entry.get("annotations")
    name = annotations.get(_NAME) if isinstance(annotations, dict) else None
    return name if isinstance(name, str) else ""
