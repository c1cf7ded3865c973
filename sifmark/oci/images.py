"""Requests to registries: whether one answers, what a tag refers to, and what an image consists of.

By the OCI distribution specification 1.1 and Docker's token authentication.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import REGISTRY_REMEDY, RegistryError
from sifmark.core.files import human_size, sha256_bytes
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import (
    DIGEST,
    INDEXES,
    MANIFESTS,
    PLATFORMS,
    Descriptor,
    Manifest,
    descriptor_of,
    read_index,
    read_manifest,
    read_object,
)

if TYPE_CHECKING:
    from sifmark.oci.client import Registry


def connect(host: str, retry: bool = False) -> "Registry":
    """Return a client of a registry. With `retry` it tries again if the registry is busy or the connection breaks.

    The client's library is imported here: it takes a while, and most commands use no registry.
    """
    from sifmark.oci.client import ATTEMPTS, Registry

    return Registry(host, ATTEMPTS if retry else 1)


_manifests: dict[tuple[str, ...], tuple[Manifest, list[bytes]]] = {}  # by registry, repository, digest and platform


@dataclass(frozen=True)
class ResolvedTag:
    """The digest that a tag refers to, and the digest of each platform's manifest."""

    digest: str
    platforms: dict[str, str]


@cache
def ping(host: str) -> str | None:
    """Return why a registry does not answer, or None if it does. A request to log in is an answer."""
    try:
        answer = connect(host).get("")
    except RegistryError as error:
        return error.cause
    # nvcr.io says nothing else of itself: google/go-containerregistry#728 has its answer.
    challenge = answer.headers.get("WWW-Authenticate", "").lower()
    asks_for_login = answer.status_code == 401 and challenge.startswith(("bearer ", "basic "))
    return None if answer.status_code == 200 or asks_for_login else f"{host}: answers with {answer.status_code}"


def resolve(address: str, tag: str) -> ResolvedTag:
    """Return what a tag of `registry/repository` refers to now. Raises RegistryError.

    Digests are computed from the bytes that were received, never taken from a header.
    """
    host, _, repository = address.partition("/")
    registry = connect(host)
    digest, document = registry.document(f"{repository}/manifests/{tag}", INDEXES + MANIFESTS)
    if "manifests" in document:
        listed = document["manifests"] if isinstance(document["manifests"], list) else []
        return ResolvedTag(digest, {platform: entry for platform, entry in map(_listed, listed) if platform})
    configuration = document.get("config")
    blob = configuration.get("digest") if isinstance(configuration, dict) else None
    if not isinstance(blob, str) or DIGEST.fullmatch(blob) is None:
        cause = f"{address}:{tag}: the answer is not a manifest of an image"
        raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid")
    platform = _platform(registry.blob(repository, blob))
    return ResolvedTag(digest, {platform: digest} if platform else {})


def configuration(address: str, digest: str, platform: str) -> Mapping[str, Any]:
    """Return the configuration of an image for a platform. Raises RegistryError."""
    host, _, repository = address.partition("/")
    registry = connect(host, retry=True)
    return registry.blob(repository, _manifest(registry, repository, digest, platform)[0].config.digest)


def compressed_size(address: str, digest: str, platform: str) -> int:
    """Return the bytes of the packed layers of an image.

    Raises RegistryError, without another attempt if the registry did not answer before.
    """
    host, _, repository = address.partition("/")
    if reason := ping(host):
        raise RegistryError(reason, REGISTRY_REMEDY, code="registry-unreachable")
    manifest, _ = _manifest(connect(host), repository, digest, platform)
    return sum(layer.size for layer in manifest.layers)


def fetch_image(
    address: str, digest: str, platform: str, layout: Layout, report: Callable[[str], None]
) -> tuple[Descriptor, int]:
    """Fetch an image for a platform into a layout, except for what exists there. Its index is not written.

    What an interrupted process left of a blob is continued. `digest` may be of a manifest or of a list of platforms.
    Return the manifest's descriptor and the bytes of the image. Raises RegistryError.
    """
    host, _, repository = address.partition("/")
    registry = connect(host, retry=True)
    manifest, documents = _manifest(registry, repository, digest, platform)
    parts = (manifest.config, *manifest.layers)
    total, done = sum(part.size for part in parts), 0
    for number, part in enumerate(parts, start=1):
        with layout.partial(part.digest) as partial:
            if partial is not None:
                report(f"{number} of {len(parts)}, {human_size(part.size)}")
                tell = _progress(report, done, total)
                registry.download(f"{repository}/blobs/{part.digest}", part.digest, part.size, partial, tell)
        done += part.size
    for content in documents:
        layout.add(content)
    return descriptor_of(manifest.media_type, manifest.content), total


def _progress(report: Callable[[str], None], done: int, total: int) -> Callable[[int], None]:
    """Return what reports a blob's bytes received so far, as a part of an image; `done` bytes came before it."""
    return lambda size: report(f"{human_size(done + size)} of {human_size(total)}")


def fetch_manifest(registry: "Registry", repository: str, reference: str) -> Manifest:
    """Return the manifest of a tag or a digest. Raises RegistryError if it is not one."""
    content = _document(registry, repository, reference, MANIFESTS)
    try:
        return read_manifest(content)
    except ValueError as error:
        where = f"{registry.host}/{repository}, {reference}"
        cause = f"{where}: the answer is not a manifest: {error}"
        raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid") from error


def _manifest(registry: "Registry", repository: str, digest: str, platform: str) -> tuple[Manifest, list[bytes]]:
    """Return the manifest for a platform, and the documents that lead to it, itself included, as received.

    `digest` may be of the manifest or of a list of platforms. What it names never changes, so it is requested once:
    registries count such requests. Raises RegistryError.
    """
    key = (registry.host, repository, digest, platform)
    if key not in _manifests:
        _manifests[key] = _request_manifest(registry, repository, digest, platform)
    return _manifests[key]


def _request_manifest(
    registry: "Registry", repository: str, digest: str, platform: str
) -> tuple[Manifest, list[bytes]]:
    documents = [_document(registry, repository, digest, INDEXES + MANIFESTS)]
    try:
        if "manifests" in read_object(documents[0]):
            listed = dict(map(_listed, read_index(documents[0])["manifests"]))
            documents.append(_document(registry, repository, listed[platform], INDEXES + MANIFESTS))
        return read_manifest(documents[-1]), documents
    except (ValueError, KeyError) as error:
        where = f"{registry.host}/{repository}@{digest}"
        cause = f"{where}: the answer is not a manifest of an image for {platform}"
        raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid") from error


def _document(registry: "Registry", repository: str, reference: str, accepted: tuple[str, ...]) -> bytes:
    """Return the document of a tag or a digest. Raises RegistryError if it has another digest."""
    content = registry.content(f"{repository}/manifests/{reference}", accepted)
    if DIGEST.fullmatch(reference) and sha256_bytes(content) != reference:
        where = f"{registry.host}/{repository}@{reference}"
        cause = f"{where}: the answer has digest {sha256_bytes(content)}"
        raise RegistryError(cause, REGISTRY_REMEDY, code="digest-mismatch")
    return content


def _listed(entry: Any) -> tuple[str | None, str]:
    """Return platform and digest of an entry of an index; the platform is None if the entry has no known one."""
    description = entry.get("platform") if isinstance(entry, dict) else None
    if not isinstance(description, dict):
        return None, ""
    digest = str(entry.get("digest"))
    return (_platform(description), digest) if DIGEST.fullmatch(digest) else (None, "")


def _platform(description: Mapping[str, Any]) -> str | None:
    """Return the platform of an image configuration or an entry of an index, or None for one that we do not use."""
    return PLATFORMS.get((str(description.get("os")), str(description.get("architecture"))))
