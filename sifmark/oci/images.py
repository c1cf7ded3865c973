"""What a registry says: whether it answers, and which digests a tag stands for.

By the OCI distribution specification 1.1 and Docker's token authentication, anonymously.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import REGISTRY_REMEDY, RegistryError
from sifmark.core.files import atomic_path, human_size, sha256_bytes
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
    return registry.blob(repository, _manifest(registry, repository, digest, platform).parts[0][0])


def compressed_size(address: str, digest: str, platform: str) -> int:
    """Bytes of the packed layers of an image. Raises RegistryError; at once where the registry was silent before."""
    host, _, repository = address.partition("/")
    if why := ping(host):
        raise RegistryError(why, REGISTRY_REMEDY)
    manifest = _manifest(connect(host), repository, digest, platform)
    return sum(size for _, size in manifest.parts[1:])


def fetch_image(
    address: str, digest: str, platform: str, blobs: Path, tell: Callable[[str], None]
) -> tuple[dict[str, Any], int]:
    """Fetch an image for a platform into a folder, each blob under its hash; what is there is kept.

    `digest` may be of a manifest or of a list of platforms. The manifest's descriptor, and bytes of all. Raises
    RegistryError.
    """
    host, _, repository = address.partition("/")
    registry = connect(host, retry=True)
    manifest = _manifest(registry, repository, digest, platform)
    for number, (name, size) in enumerate(manifest.parts, start=1):
        target = blobs / name.removeprefix("sha256:")
        if not target.is_file():
            tell(f"{number} of {len(manifest.parts)}, {human_size(size)}")
            with atomic_path(target) as draft:
                registry.download(f"{repository}/blobs/{name}", name, size, draft)
    for name, content in manifest.documents.items():
        with atomic_path(blobs / name.removeprefix("sha256:")) as draft:
            draft.write_bytes(content)
    return manifest.descriptor, sum(size for _, size in manifest.parts)


@dataclass(frozen=True)
class _Manifest:
    """An image's manifest: its descriptor, the documents that lead to it, and its parts, configuration first."""

    descriptor: dict[str, Any]
    documents: dict[str, bytes]  # by digest, as they came
    parts: list[tuple[str, int]]  # digest and bytes


def _manifest(registry: "Registry", repository: str, digest: str, platform: str) -> _Manifest:
    """Ask for what a digest names, by way of a list of platforms if it names one. Raises RegistryError."""
    where = f"{registry.host}/{repository}@{digest}"
    documents: dict[str, bytes] = {}
    try:
        told, wanted = _named(registry, repository, digest, documents), digest
        if "manifests" in told:
            wanted = dict(_listed(entry) for entry in told["manifests"])[platform]
            told = _named(registry, repository, wanted, documents)
        parts = [(str(part["digest"]), int(part["size"])) for part in (told["config"], *told["layers"])]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RegistryError(f"{where}: what came is no manifest of an image for {platform}", REGISTRY_REMEDY) from error
    if not all(DIGEST.fullmatch(name) for name, _ in parts):
        raise RegistryError(f"{where}: its manifest names parts that are no digests", REGISTRY_REMEDY)
    media = str(told.get("mediaType", MANIFESTS[0]))
    descriptor = {"mediaType": media, "digest": wanted, "size": len(documents[wanted])}
    return _Manifest(descriptor, documents, parts)


def _named(registry: "Registry", repository: str, digest: str, documents: dict[str, bytes]) -> Any:
    content = registry.content(f"{repository}/manifests/{digest}", INDEXES + MANIFESTS)
    if sha256_bytes(content) != digest:
        raise RegistryError(
            f"{registry.host}/{repository}@{digest}: what came has digest {sha256_bytes(content)}", REGISTRY_REMEDY
        )
    documents[digest] = content
    return json.loads(content)


def _listed(entry: Any) -> tuple[str | None, str]:
    """Platform and digest of an entry of an index."""
    told = entry.get("platform") if isinstance(entry, dict) else None
    if not isinstance(told, dict):
        return None, ""
    platform = PLATFORMS.get((str(told.get("os")), str(told.get("architecture"))))
    digest = str(entry.get("digest"))
    return (platform, digest) if DIGEST.fullmatch(digest) else (None, "")
