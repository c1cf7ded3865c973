"""Where published images are: a path in a registry, or a folder for sites without a network.

Each name of a recipe is a repository of its own, `PREFIX/<workload>-<recipe>`, so that `apptainer pull` gives a file
that runs its workload; all of them stand for one manifest and one blob. The tag is the version. A folder is an OCI
image layout (github.com/opencontainers/image-spec, image-layout.md) in which `NAME:TAG` names a manifest.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sifmark import __version__
from sifmark.core.environment import platform_name
from sifmark.core.errors import RegistryError, UsageError
from sifmark.core.files import sha256_bytes
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings
from sifmark.oci.images import connect
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import MANIFEST_MEDIA, TITLE, Descriptor, descriptor_of, read_manifest, write_manifest
from sifmark.recipes.plan import LABEL

IDENTITY, SIGNED = f"{LABEL}.identity", f"{LABEL}.signed"  # annotations, beside the image's own labels
# As Apptainer writes and expects them: github.com/apptainer/apptainer, internal/pkg/client/oras.
_CONFIG_MEDIA = "application/vnd.sylabs.sif.config.v1+json"
_LAYER_MEDIA = "application/vnd.sylabs.sif.layer.v1.sif"
_CONFIG = b"{}"
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


def open_store(place: str, tag: str, settings: Settings) -> ImageStore:
    """The shelf that an option or the settings name: `host/path`, or a folder. Raises UsageError for anything else."""
    if not (chosen := place or settings.registry):
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
    layer = Descriptor(_LAYER_MEDIA, digest, size, annotations={TITLE: file.name})
    manifest = write_manifest(descriptor_of(_CONFIG_MEDIA, _CONFIG), [layer], annotations)
    return PublishedImage(manifest.content, digest, size, dict(annotations))


def public_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that tell whoever looks at a shelf what an image is."""
    return {key: value for key, value in labels.items() if key.startswith((f"{LABEL}.", "org.opencontainers.image."))}


def _read(content: bytes, reference: str) -> PublishedImage:
    """A manifest of one SIF. Raises RegistryError for anything else."""
    with suppress(ValueError):
        manifest = read_manifest(content)
        if [layer.media_type for layer in manifest.layers] == [_LAYER_MEDIA]:
            return PublishedImage(content, manifest.layers[0].digest, manifest.layers[0].size, manifest.annotations)
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
            registry.put_manifest(repository, self.tag, image.manifest, MANIFEST_MEDIA)
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
        digest = self._layout.names().get(f"{name}:{self.tag}")
        if digest is None:
            raise RegistryError(
                f"{self.reference(name)}: it has no such thing", "inv mirror brings images there", status=404
            )
        return _read(self._layout.read(digest), self.reference(name))

    def pull(self, name: str, image: PublishedImage, target: Path, tell: Callable[[int], None]) -> None:  # noqa: ARG002
        """Copy the blob."""
        self._layout.copy(image.blob, image.size, target)
        tell(image.size)

    def push(self, names: Sequence[str], image: PublishedImage, file: Path) -> bool:
        """Blobs first, the index last: it says that all is there.

        Raises SifmarkError, before anything is copied, where the folder is something else.
        """
        self._layout.names()
        new = self._layout.add_file(file, image.blob)
        for content in (_CONFIG, image.manifest):
            self._layout.add(content)
        with exclusive_lock(self._layout.index_file):  # what another publisher has added meanwhile stays
            self._layout.name(descriptor_of(MANIFEST_MEDIA, image.manifest), [f"{name}:{self.tag}" for name in names])
        return new

    @property
    def _layout(self) -> Layout:
        return Layout(self.place, _SPOILED)
