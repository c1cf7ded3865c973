"""The repositories in a registry with the Docker images of a recipe, and their listing."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.engines import DOCKER
from sifmark.engines.docker import signature
from sifmark.oci.images import connect, fetch_manifest
from sifmark.oci.manifest import Manifest
from sifmark.publish import attestations
from sifmark.publish.attestations import Attestations
from sifmark.publish.stores import SIGNED, PublishedImage, RegistryStore, open_store
from sifmark.recipes.names import names_of

if TYPE_CHECKING:
    from sifmark.oci.client import Registry


@dataclass(frozen=True)
class Repositories:
    """The repositories with the Docker images of a recipe: one for each name."""

    store: RegistryStore
    recipe: str

    @property
    def tag(self) -> str:
        """The tag of Docker images, which differs from that of SIF files."""
        return f"{self.store.tag}-{DOCKER}"

    @property
    def names(self) -> tuple[str, ...]:
        """The recipe, and its workloads' names."""
        return (self.recipe, *names_of(self.recipe))

    def path(self, name: str) -> str:
        """Return the repository of a name within the registry."""
        return f"{self.store.path}/{name}"

    def address(self, name: str) -> str:
        """Return the repository of a name as Docker takes it, without a tag."""
        return f"{self.store.host}/{self.path(name)}"

    def tagged(self, name: str) -> str:
        """Return the reference of a name by its tag."""
        return f"{self.address(name)}:{self.tag}"

    def pinned(self, name: str, digest: str) -> str:
        """Return the reference of one image, whatever becomes of its tag."""
        return f"{self.address(name)}@{digest}"

    @cached_property
    def registry(self) -> "Registry":
        """The connection to the registry."""
        return connect(self.store.host, retry=True)

    def manifest(self, name: str) -> Manifest:
        """Return the manifest that a name's tag refers to. Raises RegistryError if there is none."""
        return fetch_manifest(self.registry, self.path(name), self.tag)

    def attestations(self, name: str, digest: str) -> Attestations:
        """Return what is attested of an image. Raises RegistryError if an attestation is missing."""
        return attestations.find(self.registry, self.path(name), digest)

    def signed(self, name: str, digest: str, attested: Attestations) -> list[str]:
        """Return the references of all that is signed of an image: its manifest, then those of its attestations."""
        return [self.pinned(name, each) for each in (digest, *sorted(attested.digests))]


@dataclass(frozen=True)
class DockerListing:
    """The Docker images of a registry, for its catalog."""

    store: RegistryStore

    def reference(self, name: str) -> str:
        """Return the reference of a name by its tag."""
        return Repositories(self.store, name).tagged(name)

    def resolve(self, name: str) -> PublishedImage:
        """Describe a recipe's image by its manifest and attestations. Raises RegistryError if there is none."""
        repositories = Repositories(self.store, name)
        manifest = repositories.manifest(name)
        announced = repositories.attestations(name, manifest.digest).annotations
        signed = str(signature.signed(repositories.pinned(name, manifest.digest))).lower()
        size = sum(layer.size for layer in manifest.layers)
        return PublishedImage(manifest.content, manifest.config.digest, size, {**announced, SIGNED: signed})


def open_registry_store(registry: str, tag: str, settings: Settings) -> RegistryStore:
    """Return the registry store that `registry` or the settings name. Raises UsageError for a folder."""
    store = open_store(registry, tag, settings)
    if not isinstance(store, RegistryStore):
        remedy = "name a registry, or carry the SIF: sifmark image.to-sif"
        raise UsageError("a folder has no room for images of Docker", remedy, code="invalid-option")
    return store
