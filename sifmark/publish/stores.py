"""Where published images are: a path in a registry, or a folder for sites without a network.

Each name of a recipe is a repository of its own, `PREFIX/<workload>-<recipe>`, so that `apptainer pull` gives a file
that runs its workload; all of them refer to one manifest and one blob. The tag is the version. A folder is an OCI
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
from sifmark.core.errors import RegistryError, SifmarkError, UsageError
from sifmark.core.files import sha256_bytes
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings
from sifmark.oci.client import ignore
from sifmark.oci.images import connect
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import (
    MANIFEST_MEDIA,
    TITLE,
    Descriptor,
    descriptor_of,
    is_loopback,
    read_manifest,
    write_manifest,
)
from sifmark.recipes.labels import LABEL, STAND_IN

_LICENCE, _REDISTRIBUTABLE = f"{LABEL}.base-licence", f"{LABEL}.base-redistributable"
IDENTITY, SIGNED = f"{LABEL}.identity", f"{LABEL}.signed"  # annotations, beside the image's own labels
# As Apptainer writes and expects them: github.com/apptainer/apptainer, internal/pkg/client/oras.
_CONFIG_MEDIA = "application/vnd.sylabs.sif.config.v1+json"
_LAYER_MEDIA = "application/vnd.sylabs.sif.layer.v1.sif"
_CONFIG = b"{}"
MOST_LISTED = 5  # names in a message
_PREFIX = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)  # by the OCI distribution specification
_SPOILED = "fetch it again: sifmark registry.mirror FOLDER"


def must_be_signed(signed: bool, settings: Settings) -> bool:
    """Return whether a pulled image needs a trusted signature: if requested, or if this site trusts keys at all."""
    return signed or settings.require_signature or bool(settings.keys)


def require_allowed(host: str, name: str, labels: Mapping[str, str], settings: Settings) -> None:
    """Raise SifmarkError if an image may not be pushed to a host, because of its base's licence, or as a stand-in.

    Others would take a stand-in for the real image. A folder, whose host is empty, publishes nothing by itself.
    """
    if not host or host in settings.private_registries:
        return
    remedy = f'if nobody outside may pull from {host}, say so in sifmark.toml: private_registries = ["{host}"]'
    if labels.get(STAND_IN) == "true":
        if not is_loopback(host):
            raise SifmarkError(f"{name} has a test base: it is only for tests", remedy, code="publishing-forbidden")
    elif labels.get(_REDISTRIBUTABLE) != "true":
        licence = labels.get(_LICENCE, "unknown")
        cause = f"{name}: its base may not be redistributed. Licence: {licence}"
        raise SifmarkError(cause, remedy, code="publishing-forbidden")


@dataclass(frozen=True)
class PublishedImage:
    """An image in a store: the manifest that its names refer to, and the one file that the manifest names."""

    manifest: bytes
    blob: str  # digest; of a Docker image its configuration's
    size: int  # bytes; of a Docker image its layers', packed
    annotations: dict[str, str]

    @property
    def digest(self) -> str:
        """The digest of the manifest, which names refer to."""
        return sha256_bytes(self.manifest)


class StoreListing(Protocol):
    """A store of images and a tag, for listing them."""

    def reference(self, name: str) -> str:
        """Return what users call an image name in this store."""

    def resolve(self, name: str) -> PublishedImage:
        """Return the image that a name refers to. Raises RegistryError if there is none."""


class ImageStore(StoreListing, Protocol):
    """A store of SIF files and a tag, for fetching and pushing them."""

    @property
    def host(self) -> str:
        """The host of a registry; empty for a folder."""

    def pull(self, name: str, image: PublishedImage, target: Path, report: Callable[[int], None]) -> None:
        """Write an image's file as `target`, and report the bytes that have arrived.

        Raises RegistryError if the file is not what its digest says.
        """

    def push(
        self, names: Sequence[str], image: PublishedImage, file: Path, report: Callable[[int], None] = ignore
    ) -> bool:
        """Let names refer to an image, send its file, and report the bytes that were sent.

        Return whether the store did not have the file yet.
        """


def open_store(name: str, tag: str, settings: Settings) -> ImageStore:
    """Return the store that `name` or the settings name: `host/path`, or a folder.

    An empty `tag` is the version of sifmark. Raises UsageError for any other name.
    """
    if not (address := name or settings.registry):
        remedy = "name it: --registry HOST/PATH, or registry in sifmark.toml"
        raise UsageError("which registry?", remedy, code="invalid-option")
    platform = "" if platform_name() == "x86_64" else f"-{platform_name()}"
    tag = tag or f"{__version__}{platform}"
    if _TAG.fullmatch(tag) is None:
        remedy = (
            "it has at most 128 letters, digits, points, dashes and underscores, the first of them no point or dash"
        )
        raise UsageError(f"no tag {tag!r}", remedy, code="invalid-option")
    if address.startswith(("/", ".", "~")):
        return LayoutStore(Path(address).expanduser().absolute(), tag)
    if _PREFIX.fullmatch(address) is None:
        remedy = "it is HOST/PATH, the path in small letters, or a folder that begins with / or ./"
        raise UsageError(f"no registry {address!r}", remedy, code="invalid-option")
    host, _, path = address.partition("/")
    return RegistryStore(host, path, tag)


def some_of(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many there are."""
    rest = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def publish(file: Path, digest: str, size: int, annotations: Mapping[str, str]) -> PublishedImage:
    """Return the manifest of a SIF file, as Apptainer reads it."""
    layer = Descriptor(_LAYER_MEDIA, digest, size, annotations={TITLE: file.name})
    manifest = write_manifest(descriptor_of(_CONFIG_MEDIA, _CONFIG), [layer], annotations)
    return PublishedImage(manifest.content, digest, size, dict(annotations))


def public_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that describe an image to the users of a store."""
    return {key: value for key, value in labels.items() if key.startswith((f"{LABEL}.", "org.opencontainers.image."))}


def _read(content: bytes, reference: str) -> PublishedImage:
    """Read a manifest of one SIF. Raises RegistryError for anything else."""
    with suppress(ValueError):
        manifest = read_manifest(content)
        if [layer.media_type for layer in manifest.layers] == [_LAYER_MEDIA]:
            return PublishedImage(content, manifest.layers[0].digest, manifest.layers[0].size, manifest.annotations)
    remedy = "is it an image of Docker? those are pulled with --engine docker"
    raise RegistryError(f"{reference} is no SIF", remedy, code="not-a-sif")


@dataclass(frozen=True)
class RegistryStore:
    """A path in a registry."""

    host: str
    path: str
    tag: str

    def reference(self, name: str) -> str:
        """Return what `apptainer pull oras://` takes."""
        return f"{self.host}/{self.path}/{name}:{self.tag}"

    def resolve(self, name: str) -> PublishedImage:
        """Return the image that a name's tag refers to. Raises RegistryError."""
        registry = connect(self.host, retry=True)
        manifest = registry.content(f"{self.path}/{name}/manifests/{self.tag}", (MANIFEST_MEDIA,))
        return _read(manifest, self.reference(name))

    def pull(self, name: str, image: PublishedImage, target: Path, report: Callable[[int], None]) -> None:
        """Download the blob. Raises RegistryError."""
        path = f"{self.path}/{name}/blobs/{image.blob}"
        connect(self.host, retry=True).download(path, image.blob, image.size, target, report)

    def push(
        self, names: Sequence[str], image: PublishedImage, file: Path, report: Callable[[int], None] = ignore
    ) -> bool:
        """Send the bytes to the repository of the first name, and link the others to them. Raises RegistryError."""
        registry, first = connect(self.host, retry=True), f"{self.path}/{names[0]}"
        sent = False
        for name in names:
            repository, origin = f"{self.path}/{name}", None if name == names[0] else first
            sent |= registry.upload(repository, image.blob, file, origin, report)
            registry.upload(repository, sha256_bytes(_CONFIG), _CONFIG, origin)
            registry.put_manifest(repository, self.tag, image.manifest, MANIFEST_MEDIA)
        return sent


@dataclass(frozen=True)
class LayoutStore:
    """A folder that is an OCI image layout."""

    folder: Path
    tag: str
    host: str = ""

    def reference(self, name: str) -> str:
        """Return the folder, and the name in its index."""
        return f"{self.folder}: {name}:{self.tag}"

    def resolve(self, name: str) -> PublishedImage:
        """Return the image that a name in the index refers to. Raises SifmarkError."""
        if not self.folder.is_dir():
            remedy = "name one that sifmark registry.mirror or sifmark registry.push has filled"
            raise RegistryError(f"{self.folder} is no folder", remedy, code="store-missing")
        names = self._layout.names()
        digest = names.get(f"{name}:{self.tag}")
        if digest is None:
            cause = f"{self.folder} has no image {name}:{self.tag}"
            remedy = (
                f"it has {some_of(sorted(names))}" if names else "fill it: sifmark registry.push NAME --registry DIR"
            )
            raise RegistryError(cause, remedy, status=404, code="image-not-published")
        return _read(self._layout.read(digest), self.reference(name))

    def pull(self, name: str, image: PublishedImage, target: Path, report: Callable[[int], None]) -> None:  # noqa: ARG002
        """Copy the blob. Raises SifmarkError if it is missing or damaged."""
        self._layout.copy(image.blob, image.size, target)
        report(image.size)

    def push(
        self, names: Sequence[str], image: PublishedImage, file: Path, report: Callable[[int], None] = ignore
    ) -> bool:
        """Copy the blobs, and then change the index: what it names is complete.

        Raises SifmarkError, before anything is copied, if the folder is something else.
        """
        self._layout.names()
        new = self._layout.add_file(file, image.blob)
        report(image.size)
        for content in (_CONFIG, image.manifest):
            self._layout.add(content)
        with exclusive_lock(self._layout.index_file):  # what another publisher has added meanwhile stays
            self._layout.name(descriptor_of(MANIFEST_MEDIA, image.manifest), [f"{name}:{self.tag}" for name in names])
        return new

    @property
    def _layout(self) -> Layout:
        return Layout(self.folder, _SPOILED)
