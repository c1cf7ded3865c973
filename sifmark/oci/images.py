"""What a registry says: whether it answers, and which digests a tag stands for.

By the OCI distribution specification 1.1 and Docker's token authentication, anonymously.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import REGISTRY_REMEDY, RegistryError
from sifmark.core.files import human_size, sha256_bytes
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import Descriptor, Manifest, descriptor_of, read_index, read_manifest, read_object
from sifmark.oci.reference import DIGEST, INDEXES, MANIFESTS, PLATFORMS

if TYPE_CHECKING:
    from sifmark.oci.client import Registry


def connect(host: str, retry: bool = False) -> "Registry":
    """The connection to a registry; its library takes a while to import, and most verbs ask none.

    A patient one asks again where the registry is busy or the connection breaks.
    """
    from sifmark.oci.client import ATTEMPTS, Registry

    return Registry(host, ATTEMPTS if retry else 1)


@dataclass(frozen=True)
class ResolvedTag:
    """What a tag stands for: its own digest, and that of the manifest of each platform."""

    digest: str
    platforms: dict[str, str]


@cache
def ping(host: str) -> str | None:
    """None when a registry answers; else why not. Being asked to log in is an answer."""
    try:
        answer = connect(host).get("")
    except RegistryError as error:
        return error.cause
    known = answer.status_code == 200 or (
        answer.status_code in (401, 403) and "registry" in str(answer.headers).lower()
    )
    return None if known else f"{host}: answers with {answer.status_code}"


def resolve(address: str, tag: str) -> ResolvedTag:
    """Ask what a tag of `registry/repository` stands for now. Raises RegistryError.

    A digest is computed of the bytes that came, never taken from a header.
    """
    host, _, repository = address.partition("/")
    registry = connect(host)
    digest, document = registry.document(f"{repository}/manifests/{tag}", INDEXES + MANIFESTS)
    if "manifests" in document:
        listed = document["manifests"] if isinstance(document["manifests"], list) else []
        return ResolvedTag(digest, {name: found for name, found in map(_listed, listed) if name})
    configuration = document.get("config")
    blob = configuration.get("digest") if isinstance(configuration, dict) else None
    if not isinstance(blob, str) or DIGEST.fullmatch(blob) is None:
        raise RegistryError(f"{address}:{tag}: what came is no manifest of an image", REGISTRY_REMEDY)
    told = registry.blob(repository, blob)
    platform = PLATFORMS.get((str(told.get("os")), str(told.get("architecture"))))
    return ResolvedTag(digest, {platform: digest} if platform else {})


def configuration(address: str, digest: str, platform: str) -> Mapping[str, Any]:
    """What an image says of itself and its making. Raises RegistryError."""
    host, _, repository = address.partition("/")
    registry = connect(host, retry=True)
    return registry.blob(repository, _manifest(registry, repository, digest, platform)[0].config.digest)


def compressed_size(address: str, digest: str, platform: str) -> int:
    """Bytes of the packed layers of an image. Raises RegistryError; at once where the registry was silent before."""
    host, _, repository = address.partition("/")
    if why := ping(host):
        raise RegistryError(why, REGISTRY_REMEDY)
    manifest, _ = _manifest(connect(host), repository, digest, platform)
    return sum(layer.size for layer in manifest.layers)


def fetch_image(
    address: str, digest: str, platform: str, layout: Layout, tell: Callable[[str], None]
) -> tuple[Descriptor, int]:
    """Fetch an image for a platform into a layout, all but its index; blobs that are there are kept.

    `digest` may be of a manifest or of a list of platforms. The manifest's descriptor, and bytes of all. Raises
    RegistryError.
    """
    host, _, repository = address.partition("/")
    registry = connect(host, retry=True)
    manifest, documents = _manifest(registry, repository, digest, platform)
    parts = (manifest.config, *manifest.layers)
    for number, part in enumerate(parts, start=1):
        if not layout.blob(part.digest).is_file():
            tell(f"{number} of {len(parts)}, {human_size(part.size)}")
            with layout.draft(part.digest) as draft:
                registry.download(f"{repository}/blobs/{part.digest}", part.digest, part.size, draft)
    for content in documents:
        layout.add(content)
    return descriptor_of(manifest.media_type, manifest.content), sum(part.size for part in parts)


def fetch_manifest(registry: "Registry", repository: str, reference: str) -> Manifest:
    """Return the manifest of a tag or a digest. Raises RegistryError for anything else."""
    content = _document(registry, repository, reference, MANIFESTS)
    try:
        return read_manifest(content)
    except ValueError as error:
        where = f"{registry.host}/{repository}, {reference}"
        raise RegistryError(f"{where}: what came is no manifest: {error}", REGISTRY_REMEDY) from error


def _manifest(registry: "Registry", repository: str, digest: str, platform: str) -> tuple[Manifest, list[bytes]]:
    """Ask for what a digest names, by way of a list of platforms if it names one. Raises RegistryError.

    The manifest for a platform, and the documents that lead to it, itself included, as they came.
    """
    documents = [_document(registry, repository, digest, INDEXES + MANIFESTS)]
    try:
        if "manifests" in read_object(documents[0]):
            listed = dict(map(_listed, read_index(documents[0])["manifests"]))
            documents.append(_document(registry, repository, listed[platform], INDEXES + MANIFESTS))
        return read_manifest(documents[-1]), documents
    except (ValueError, KeyError) as error:
        where = f"{registry.host}/{repository}@{digest}"
        raise RegistryError(f"{where}: what came is no manifest of an image for {platform}", REGISTRY_REMEDY) from error


def _document(registry: "Registry", repository: str, reference: str, accepted: tuple[str, ...]) -> bytes:
    """Return what a tag or a digest names. Raises RegistryError where what came has not that digest."""
    content = registry.content(f"{repository}/manifests/{reference}", accepted)
    if DIGEST.fullmatch(reference) and sha256_bytes(content) != reference:
        where = f"{registry.host}/{repository}@{reference}"
        raise RegistryError(f"{where}: what came has digest {sha256_bytes(content)}", REGISTRY_REMEDY)
    return content


def _listed(entry: Any) -> tuple[str | None, str]:
    """Platform and digest of an entry of an index."""
    told = entry.get("platform") if isinstance(entry, dict) else None
    if not isinstance(told, dict):
        return None, ""
    platform = PLATFORMS.get((str(told.get("os")), str(told.get("architecture"))))
    digest = str(entry.get("digest"))
    return (platform, digest) if DIGEST.fullmatch(digest) else (None, "")
