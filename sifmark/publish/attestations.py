"""The attestations of a Docker image in a registry: lists of its packages, and its provenance.

Each is an OCI artifact that refers to the image's manifest and has the media type of its format, so that other tools
find it too. Which image it is about is in its manifest, and a signature of that manifest covers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sifmark.attestations.provenance import NAME as PROVENANCE
from sifmark.attestations.sbom import CYCLONEDX, SPDX
from sifmark.core.errors import RegistryError
from sifmark.core.files import compact_json, sha256_bytes
from sifmark.oci.images import fetch_manifest
from sifmark.oci.manifest import EMPTY, EMPTY_MEDIA, TITLE, Descriptor, Manifest, descriptor_of, write_manifest
from sifmark.oci.referrers import attach, list_referrers
from sifmark.publish.stores import IDENTITY

if TYPE_CHECKING:
    from sifmark.oci.client import Registry

# The media types by which other tools know these formats.
MEDIA_TYPES = {
    SPDX: "application/spdx+json",
    CYCLONEDX: "application/vnd.cyclonedx+json",
    PROVENANCE: "application/vnd.in-toto+json",
}
_REMEDY = "push the image again: sifmark registry.push NAME --engine docker"


@dataclass(frozen=True)
class Attestations:
    """What a registry holds about an image: manifests, whose signatures cover the documents, and digests of these."""

    manifests: tuple[Manifest, ...]
    documents: Mapping[str, str]  # digest by name
    annotations: Mapping[str, str]

    @property
    def digests(self) -> frozenset[str]:
        """Return the digests of the manifests."""
        return frozenset(manifest.digest for manifest in self.manifests)


def write(documents: Mapping[str, Any], subject: Descriptor, annotations: Mapping[str, str]) -> tuple[Manifest, ...]:
    """Return a manifest for each document about an image: the same documents and image, the same bytes."""
    config = descriptor_of(EMPTY_MEDIA, EMPTY)
    return tuple(
        write_manifest(
            config, [descriptor_of(kind, compact_json(documents[name]), {TITLE: name})], annotations, kind, subject
        )
        for name, kind in MEDIA_TYPES.items()
    )


def push(
    registry: "Registry",
    repository: str,
    manifests: tuple[Manifest, ...],
    documents: Mapping[str, Any],
    origin: str | None,
) -> None:
    """Store attestations and let them refer to their image, in place of earlier ones of ours. Raises RegistryError.

    If `origin` is a repository of the same registry that has the documents, they are only linked.
    """
    for content in (EMPTY, *(compact_json(documents[name]) for name in MEDIA_TYPES)):
        registry.upload(repository, sha256_bytes(content), content, origin)
    attach(registry, repository, manifests, _is_ours)


def find(registry: "Registry", repository: str, digest: str) -> Attestations:
    """Return what refers to an image. Raises RegistryError unless that is one attestation of each kind, about it."""
    ours = [referrer for referrer in list_referrers(registry, repository, digest) if _is_ours(referrer)]
    if not ours:
        return _find_earlier(registry, repository, digest)
    manifests = {name: _find(registry, repository, digest, ours, kind) for name, kind in MEDIA_TYPES.items()}
    documents = {name: manifest.layers[0].digest for name, manifest in manifests.items()}
    return Attestations(tuple(manifests.values()), documents, manifests[PROVENANCE].annotations)


def fetch(registry: "Registry", repository: str, attestations: Attestations) -> dict[str, Any]:
    """Return the documents by name, each by its digest. Raises RegistryError."""
    return {name: registry.blob(repository, digest) for name, digest in attestations.documents.items()}


def _find_earlier(registry: "Registry", repository: str, digest: str) -> Attestations:
    """Return the attestations that sifmark 0.1.0 published: in one artifact, with the tag `sha256-<hex>.papers`.

    Raises RegistryError if there are none, or if a document is missing.
    """
    where = f"{registry.host}/{repository}@{digest}"
    try:
        manifest = fetch_manifest(registry, repository, f"{digest.replace(':', '-')}.papers")
    except RegistryError as error:
        if error.status != 404:
            raise
        cause = f"{where}: no attestations refer to it"
        raise RegistryError(cause, _REMEDY, error.status, code="attestation-missing") from None
    documents = {layer.annotations.get(TITLE, ""): layer.digest for layer in manifest.layers}
    if missing := [name for name in MEDIA_TYPES if name not in documents]:
        cause = f"{where}: of its attestations {', '.join(missing)} is missing"
        raise RegistryError(cause, _REMEDY, code="attestation-missing")
    return Attestations((manifest,), {name: documents[name] for name in MEDIA_TYPES}, manifest.annotations)


def _find(registry: "Registry", repository: str, digest: str, ours: list[Descriptor], kind: str) -> Manifest:
    """Return the one attestation of a kind. Only what its own manifest says counts, not the list."""
    where = f"{registry.host}/{repository}@{digest}"
    matching = [referrer for referrer in ours if referrer.artifact_type == kind]
    if len(matching) != 1:
        cause = f"{where}: {len(matching)} attestations of type {kind} refer to it, not 1"
        raise RegistryError(cause, _REMEDY, code="attestation-mismatch")
    manifest = fetch_manifest(registry, repository, matching[0].digest)
    if manifest.subject is None or manifest.subject.digest != digest:
        cause = f"{where}: the attestation {manifest.digest} is about another image"
        raise RegistryError(cause, _REMEDY, code="attestation-mismatch")
    if [manifest.artifact_type, *(layer.media_type for layer in manifest.layers)] != [kind, kind]:
        cause = f"{where}: the attestation {manifest.digest} is not of type {kind}"
        raise RegistryError(cause, _REMEDY, code="attestation-mismatch")
    return manifest


def _is_ours(referrer: Descriptor) -> bool:
    """Return whether an attestation is sifmark's: others may attach their own, of the same types."""
    return IDENTITY in referrer.annotations and referrer.artifact_type in MEDIA_TYPES.values()
