"""Where published images are: a path in a registry, or a folder for sites without a network.

Each name of a recipe is a repository of its own, `PREFIX/<workload>-<recipe>`, so that `apptainer pull` gives a file
that runs its workload; all of them stand for one manifest and one blob. The tag is the version. A folder is an OCI
image layout (github.com/opencontainers/image-spec, image-layout.md) in which `NAME:TAG` names a manifest.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sifmark import __version__
from sifmark.core.environment import platform_name
from sifmark.core.errors import RegistryError, SifmarkError, UsageError
from sifmark.core.files import atomic_path, compact_json, sha256_bytes, sha256_file, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import settings
from sifmark.oci.images import connect
from sifmark.oci.reference import DIGEST, MAX_DOCUMENT_SIZE
from sifmark.recipes.plan import LABEL

IDENTITY, SIGNED = f"{LABEL}.identity", f"{LABEL}.signed"  # annotations, beside the image's own labels
MANIFEST_MEDIA = "application/vnd.oci.image.manifest.v1+json"
# As Apptainer writes and expects them: github.com/apptainer/apptainer, internal/pkg/client/oras.
_CONFIG_MEDIA = "application/vnd.sylabs.sif.config.v1+json"
_LAYER_MEDIA = "application/vnd.sylabs.sif.layer.v1.sif"
_CONFIG = b"{}"
_NAMED = "org.opencontainers.image.ref.name"  # annotation, in a folder's index
_TITLE = "org.opencontainers.image.title"
_PREFIX = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+")
_SPOILED = "fetch it again: inv mirror FOLDER"


@dataclass(frozen=True)
class PublishedImage:
    """An image on a shelf: the manifest that its names stand for, and the one file that it names."""

    manifest: bytes
    blob: str  # digest; of a Docker image its configuration's
    size: int  # bytes; of a Docker image its layers', packed
    annotations: dict[str, str]

    @property
    def digest(self) -> str:
        """The manifest's, which names stand for."""
        return sha256_bytes(self.manifest)


class StoreListing(Protocol):
    """A place of images, with the tag that is in force, for who only looks."""

    def reference(self, name: str) -> str:
        """What a name is called there."""

    def resolve(self, name: str) -> PublishedImage:
        """What a name stands for. Raises RegistryError where there is no such image."""


class ImageStore(StoreListing, Protocol):
    """The same for who fetches and puts SIF files."""

    @property
    def host(self) -> str:
        """Of a registry; empty for a folder."""

    def pull(self, name: str, image: PublishedImage, target: Path, tell: Callable[[int], None]) -> None:
        """Write an image's file. Raises RegistryError where it is not what its digest says."""

    def push(self, names: Sequence[str], image: PublishedImage, file: Path) -> bool:
        """Let names stand for an image, whose file is brought along; whether it was not there yet."""


def open_store(place: str, tag: str) -> ImageStore:
    """The shelf that an option or the settings name: `host/path`, or a folder. Raises UsageError for anything else."""
    if not (chosen := place or settings().registry):
        raise UsageError("which registry?", "name it: --registry HOST/PATH, or registry in sifmark.toml")
    platform = "" if platform_name() == "x86_64" else f"-{platform_name()}"
    tag = tag or f"{__version__}{platform}"
    if chosen.startswith(("/", ".", "~")):
        return LayoutStore(Path(chosen).expanduser().absolute(), tag)
    if _PREFIX.fullmatch(chosen) is None:
        remedy = "it is HOST/PATH, the path in small letters, or a folder that begins with / or ./"
        raise UsageError(f"no registry {chosen!r}", remedy)
    host, _, path = chosen.partition("/")
    return RegistryStore(host, path, tag)


def publish(file: Path, digest: str, size: int, annotations: Mapping[str, str]) -> PublishedImage:
    """The manifest of a SIF file, as Apptainer reads it."""
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA,
        "config": {"mediaType": _CONFIG_MEDIA, "digest": sha256_bytes(_CONFIG), "size": len(_CONFIG)},
        "layers": [{"mediaType": _LAYER_MEDIA, "digest": digest, "size": size, "annotations": {_TITLE: file.name}}],
        "annotations": dict(annotations),
    }
    return PublishedImage(compact_json(document), digest, size, dict(annotations))


def public_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that tell whoever looks at a shelf what an image is."""
    return {key: value for key, value in labels.items() if key.startswith((f"{LABEL}.", "org.opencontainers.image."))}


def _read(manifest: bytes, reference: str) -> PublishedImage:
    """A manifest of one SIF. Raises RegistryError for anything else."""
    try:
        document = json.loads(manifest)
        (layer,) = document["layers"]
        digest, size = str(layer["digest"]), int(layer["size"])
        annotations = {str(key): str(value) for key, value in (document.get("annotations") or {}).items()}
        if layer["mediaType"] == _LAYER_MEDIA and DIGEST.fullmatch(digest) and size >= 0:
            return PublishedImage(manifest, digest, size, annotations)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    raise RegistryError(f"{reference} is no SIF", "is it an image of Docker? those are pulled with --engine docker")


@dataclass(frozen=True)
class RegistryStore:
    """A path in a registry."""

    host: str
    path: str
    tag: str

    def reference(self, name: str) -> str:
        """What `apptainer pull oras://` takes."""
        return f"{self.host}/{self.path}/{name}:{self.tag}"

    def resolve(self, name: str) -> PublishedImage:
        """Ask for the tag."""
        registry = connect(self.host, retry=True)
        manifest = registry.content(f"{self.path}/{name}/manifests/{self.tag}", (MANIFEST_MEDIA,))
        return _read(manifest, self.reference(name))

    def pull(self, name: str, image: PublishedImage, target: Path, tell: Callable[[int], None]) -> None:
        """Download the blob."""
        path = f"{self.path}/{name}/blobs/{image.blob}"
        connect(self.host, retry=True).download(path, image.blob, image.size, target, tell)

    def push(self, names: Sequence[str], image: PublishedImage, file: Path) -> bool:
        """The first name gets the bytes, the others are linked to them."""
        registry, first = connect(self.host, retry=True), f"{self.path}/{names[0]}"
        sent = False
        for name in names:
            repository, origin = f"{self.path}/{name}", None if name == names[0] else first
            sent |= registry.upload(repository, image.blob, file, origin)
            registry.upload(repository, sha256_bytes(_CONFIG), _CONFIG, origin)
            registry.tag(repository, self.tag, image.manifest, MANIFEST_MEDIA)
        return sent


@dataclass(frozen=True)
class LayoutStore:
    """An OCI image layout."""

    place: Path
    tag: str
    host: str = ""

    def reference(self, name: str) -> str:
        """The folder, and the name in its index."""
        return f"{self.place}: {name}:{self.tag}"

    def resolve(self, name: str) -> PublishedImage:
        """By the index."""
        if not self.place.is_dir():
            raise RegistryError(f"{self.place} is no folder", "name one that inv mirror or inv push has filled")
        wanted = [entry for entry in self._index() if _name(entry) == f"{name}:{self.tag}"]
        if not wanted:
            raise RegistryError(
                f"{self.reference(name)}: it has no such thing", "inv mirror brings images there", status=404
            )
        blob = self._blob(wanted[0]["digest"])
        with suppress(OSError):
            manifest = blob.read_bytes() if blob.stat().st_size <= MAX_DOCUMENT_SIZE else b""
            if sha256_bytes(manifest) == wanted[0]["digest"]:
                return _read(manifest, self.reference(name))
        raise RegistryError(f"{blob} is missing or damaged", _SPOILED)

    def pull(self, name: str, image: PublishedImage, target: Path, tell: Callable[[int], None]) -> None:
        """Copy the blob."""
        try:
            if self._blob(image.blob).stat().st_size != image.size:
                raise RegistryError(f"{self._blob(image.blob)} has not the {image.size} bytes announced", _SPOILED)
            shutil.copyfile(self._blob(image.blob), target)
        except FileNotFoundError as error:
            raise RegistryError(f"{self.reference(name)}: {self._blob(image.blob)} is missing", _SPOILED) from error
        if (seen := sha256_file(target)) != image.blob:
            raise RegistryError(f"{self._blob(image.blob)}: what came has digest {seen}", _SPOILED)
        tell(image.size)

    def push(self, names: Sequence[str], image: PublishedImage, file: Path) -> bool:
        """Blobs first, the index last: it says that all is there.

        Raises SifmarkError, before anything is copied, where the folder is something else.
        """
        self._index()
        self.place.mkdir(parents=True, exist_ok=True)
        target = self._blob(image.blob)
        new = not (target.is_file() and sha256_file(target) == image.blob)
        if new:
            with atomic_path(target) as draft:
                shutil.copyfile(file, draft)
        for content in (_CONFIG, image.manifest):
            with atomic_path(self._blob(sha256_bytes(content))) as draft:
                draft.write_bytes(content)
        entry = {"mediaType": MANIFEST_MEDIA, "digest": image.digest, "size": len(image.manifest)}
        tagged = self._tagged(names)
        with exclusive_lock(self.place / "index.json"):  # what another publisher has added meanwhile stays
            document = self._document()
            known = [other for other in document["manifests"] if _name(other) not in tagged]
            known += [{**entry, "annotations": {_NAMED: name}} for name in tagged]
            write_json(self.place / "oci-layout", {"imageLayoutVersion": "1.0.0"})
            write_json(self.place / "index.json", {"schemaVersion": 2, **document, "manifests": known})
        return new

    def _tagged(self, names: Sequence[str]) -> list[str]:
        return [f"{name}:{self.tag}" for name in names]

    def _blob(self, digest: str) -> Path:
        return self.place / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def _index(self) -> list[dict[str, Any]]:
        """The entries that have names. Raises SifmarkError where the folder is no layout."""
        named = [entry for entry in self._document()["manifests"] if _name(entry)]
        if bad := [entry for entry in named if not DIGEST.fullmatch(str(entry.get("digest")))]:
            raise SifmarkError(f"{self.place} names {bad[0].get('digest')!r}, which is no digest", _SPOILED)
        return named

    def _document(self) -> dict[str, Any]:
        """All that the index says, also what others wrote there. Raises SifmarkError where it is none."""
        path = self.place / "index.json"
        if not path.exists():
            return {"schemaVersion": 2, "manifests": []}
        try:
            if path.stat().st_size > MAX_DOCUMENT_SIZE:
                raise ValueError(f"it has more than {MAX_DOCUMENT_SIZE} bytes")
            document: dict[str, Any] = json.loads(path.read_text())
            for entry in document["manifests"]:
                _name(entry)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SifmarkError(f"{path} is no index of an OCI image layout: {error}", _SPOILED) from error
        return document


def _name(entry: dict[str, Any]) -> str:
    """What an entry of a folder's index is called there; empty where it has no name."""
    name = (entry.get("annotations") or {}).get(_NAMED)
    return name if isinstance(name, str) else ""
