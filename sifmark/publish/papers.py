"""The attestations of Docker images that sifmark 0.1.0 published: read, and no longer written.

All were in one OCI artifact of a type of its own, which the tag `sha256-<hex>.papers` named beside the image.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sifmark.core.errors import RegistryError
from sifmark.oci.images import fetch_manifest
from sifmark.oci.manifest import TITLE, Manifest

if TYPE_CHECKING:
    from sifmark.oci.client import Registry


def find(
    registry: "Registry", repository: str, digest: str, names: Sequence[str]
) -> tuple[tuple[Manifest], dict[str, str], dict[str, str]]:
    """Return the manifest, the digests of the documents by name, and the annotations.

    Raises RegistryError if a document is missing; its status is 404 if all are.
    """
    manifest = fetch_manifest(registry, repository, f"{digest.replace(':', '-')}.papers")
    documents = {layer.annotations.get(TITLE, ""): layer.digest for layer in manifest.layers}
    if missing := [name for name in names if name not in documents]:
        cause = f"{registry.host}/{repository}@{digest}: of its attestations {', '.join(missing)} is missing"
        remedy = "push the image again: sifmark registry.push NAME --engine docker"
        raise RegistryError(cause, remedy, code="attestation-missing")
    return (manifest,), {name: documents[name] for name in names}, manifest.annotations
