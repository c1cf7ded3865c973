"""Pushing, pulling and signing Docker images: the engine moves them, their attestations refer to them in the registry.

`HOST/PATH/<name>:TAG-docker` is an image; the SIF of the same name has the tag without that ending. A workload's name
adds a variable to the recipe's image: it has a digest of its own, and so attestations and signatures.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.attestations.provenance import NAME as PROVENANCE
from sifmark.build import ledger
from sifmark.build.image import lock_path, update_record, write_image_record
from sifmark.core.console import Step, output, status, step
from sifmark.core.environment import platform_name
from sifmark.core.errors import REBUILD_REMEDY, REGISTRY_REMEDY, RegistryError, SifmarkError, UsageError
from sifmark.core.files import human_size, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import settings
from sifmark.engines import BuiltImage
from sifmark.engines.docker import signature
from sifmark.engines.docker.attestations import IMAGE, attestation_folder
from sifmark.engines.docker.client import BaseUnavailableError, attributes, docker_client, follow, translated_errors
from sifmark.engines.docker.engine import NAME, REPOSITORY, Docker, remove_unnamed
from sifmark.engines.docker.inspection import DockerInspection
from sifmark.oci.images import connect, fetch_manifest
from sifmark.oci.manifest import Manifest
from sifmark.publish import attestations
from sifmark.publish.attestations import MEDIA_TYPES, Attestations
from sifmark.publish.policy import require_allowed
from sifmark.publish.stores import IDENTITY, SIGNED, PublishedImage, RegistryStore, open_store, public_labels
from sifmark.recipes.names import find_recipe, names_of
from sifmark.recipes.plan import PLATFORM, RECIPE
from sifmark.trust.checks import require_unchanged
from sifmark.trust.image import image_under_test

if TYPE_CHECKING:
    from sifmark.oci.client import Registry

_STRANGE = "do not run it; ask whoever pushed it"


@dataclass(frozen=True)
class _Place:
    """Where the Docker images of a recipe are."""

    there: RegistryStore
    recipe: str

    @property
    def tag(self) -> str:
        return f"{self.there.tag}-{NAME}"

    @property
    def names(self) -> tuple[str, ...]:
        """The recipe, and its workloads' names."""
        return (self.recipe, *names_of(self.recipe))

    def repository(self, name: str) -> str:
        """Within the registry."""
        return f"{self.there.path}/{name}"

    def called(self, name: str) -> str:
        """What `docker pull` takes, but the tag."""
        return f"{self.there.host}/{self.there.path}/{name}"

    def tagged(self, name: str) -> str:
        """What `docker pull` takes."""
        return f"{self.called(name)}:{self.tag}"

    def pinned(self, name: str, digest: str) -> str:
        """The one image, whatever becomes of its tag."""
        return f"{self.called(name)}@{digest}"

    @cached_property
    def registry(self) -> "Registry":
        """Return the connection to the registry."""
        return connect(self.there.host, retry=True)

    def manifest(self, name: str) -> Manifest:
        """Return the manifest that a name's tag stands for. Raises RegistryError where there is none."""
        return fetch_manifest(self.registry, self.repository(name), self.tag)

    def attestations(self, name: str, digest: str) -> Attestations:
        """Return what is attested of an image. Raises RegistryError where an attestation is missing."""
        return attestations.find(self.registry, self.repository(name), digest)

    def signed(self, name: str, digest: str, attested: Attestations) -> list[str]:
        """Return the references of all that is signed of an image: its manifest, then those of its attestations."""
        return [self.pinned(name, each) for each in (digest, *sorted(attested.digests))]


@dataclass(frozen=True)
class DockerListing:
    """The Docker images of a registry, for its catalog."""

    there: RegistryStore

    def reference(self, name: str) -> str:
        """As its tag names it."""
        return _Place(self.there, name).tagged(name)

    def resolve(self, name: str) -> PublishedImage:
        """A recipe's image, by its manifest and what its attestations say. Raises RegistryError where it has none."""
        place = _Place(self.there, name)
        manifest = place.manifest(name)
        announced = place.attestations(name, manifest.digest).annotations
        signed = str(signature.signed(place.pinned(name, manifest.digest))).lower()
        size = sum(layer.size for layer in manifest.layers)
        return PublishedImage(manifest.content, manifest.config.digest, size, {**announced, SIGNED: signed})


def images(registry: str, tag: str) -> DockerListing:
    """The Docker images of a registry. Raises UsageError for a folder."""
    return DockerListing(_registry(registry, tag))


def push(name: str, registry: str, tag: str, as_json: bool) -> None:
    """Put a recipe's image and its attestations into a registry, under each of its names. Raises SifmarkError."""
    place, tool = _place(name, registry, tag), Docker()
    with exclusive_lock(lock_path(place.recipe, tool)):
        image = tool.inspect(tool.address(place.recipe))
        require_allowed(place.there.host, image.address, image.labels)
        for each in map(tool.address, place.names):
            if tool.inspect(each).identity() != image.identity():
                raise SifmarkError(f"{each} is another image than {image.address}", "name them anew: inv build NAME")
        documents = _documents(image, place.recipe)
        with step(f"push {image.address}, {human_size(image.size)}, to {place.called(place.recipe)}") as progress:
            digests = {each: _send(tool, place, each, progress) for each in place.names}
            for each, digest in digests.items():
                _attest(place, each, digest, documents, _announced(image))
        update_record(place.recipe, tool, pushed=place.pinned(place.recipe, digests[place.recipe]))
    references = list(map(place.tagged, place.names))
    if as_json:
        told = {"digest": digests[place.recipe], "identity": image.identity(), "names": references}
        output(json.dumps(told, indent=2))
    else:
        output(place.pinned(place.recipe, digests[place.recipe]))
        status(f"  as {', '.join(references)}")


def pull(name: str, registry: str, tag: str, as_json: bool, to_be_signed: bool) -> None:
    """Fetch a recipe's image and its attestations, and name it when digests, signatures, labels and identity hold.

    Raises SifmarkError, Refuted for a signature.
    """
    place, tool = _place(name, registry, tag), Docker()
    digest = place.manifest(place.recipe).digest
    pinned = place.pinned(place.recipe, digest)
    attested = place.attestations(place.recipe, digest)
    documents = attestations.fetch(place.registry, place.repository(place.recipe), attested)
    by = None
    if to_be_signed:
        signed = place.signed(place.recipe, digest, attested)
        by, *_ = [signature.signer(reference, settings().keys) for reference in signed]
    with exclusive_lock(lock_path(place.recipe, tool)):
        with step(f"pull {place.tagged(place.recipe)}") as progress, _told_of(place):
            follow(docker_client().api.pull(pinned, stream=True, decode=True), None, progress.detail, wanted="")
        try:
            image = tool.inspect(pinned)
            _require_announced(image, place.recipe, documents)
        except SifmarkError:
            with translated_errors():
                docker_client().images.remove(pinned)
            raise
        for each, content in documents.items():
            write_json(attestation_folder(place.recipe) / each, content)
        made = BuiltImage(image.size, image.identity(), image.identifier)
        write_image_record(place.recipe, tool, made, image.labels, pulled=pinned, signed_by=by)
        if by:
            ledger.record_trusted(made.digest, by)
        with translated_errors():
            docker_client().images.get(pinned).tag(REPOSITORY, place.recipe)
        names = tool.tag_workloads(place.recipe)
    if as_json:
        output(json.dumps({"digest": digest, "identity": made.identity, "signed_by": by}, indent=2))
    else:
        address = tool.address(place.recipe)
        output(f"{address}: {made.identity}, {signature_told(by)}; also called {', '.join(names)}")


def signature_told(by: str | None) -> str:
    """What a pull says of a signature."""
    return f"signed by {by}" if by else "its signature was not looked at, because no key is trusted here"


def sign(name: str, key: Path, registry: str, tag: str) -> None:
    """Sign a pushed image and its attestations under each of its names, where the registry has what is here.

    Raises SifmarkError.
    """
    place, tool = _place(name, registry, tag), Docker()
    with exclusive_lock(lock_path(place.recipe, tool)):
        for each in place.names:
            require_unchanged(image_under_test(tool, tool.address(each), signed=False))
        image = tool.inspect(tool.address(place.recipe))
        documents = _documents(image, place.recipe)
        with step(f"sign {place.tagged(place.recipe)}, its names and attestations"):
            signable = [_signable(tool, place, each, documents, _announced(image)) for each in place.names]
            signature.sign([reference for references in signable for reference in references], key)
    digest = place.manifest(place.recipe).digest
    output(f"{place.pinned(place.recipe, digest)}: signed, with all its names and attestations")


def _signable(
    tool: Docker, place: _Place, name: str, documents: Mapping[str, Any], annotations: Mapping[str, str]
) -> list[str]:
    """References of an image and its attestations. Raises SifmarkError where the registry has others than are here."""
    manifest = place.manifest(name)
    pinned, again = place.pinned(name, manifest.digest), "push it again: inv push NAME --engine docker"
    if pinned not in tool.inspect(tool.address(name)).references:
        raise SifmarkError(f"{pinned} is not the image that is here", again)
    published = place.attestations(name, manifest.digest)
    ours = attestations.write(documents, manifest.descriptor, annotations)
    if published.digests != {attestation.digest for attestation in ours}:
        raise SifmarkError(f"{pinned}: its attestations there are not those that are here", again)
    return place.signed(name, manifest.digest, published)


def _place(name: str, registry: str, tag: str) -> _Place:
    return _Place(_registry(registry, tag), find_recipe(name))


def _registry(registry: str, tag: str) -> RegistryStore:
    there = open_store(registry, tag)
    if not isinstance(there, RegistryStore):
        raise UsageError("a folder has no room for images of Docker", "name a registry, or carry the SIF: inv convert")
    return there


def _send(tool: Docker, place: _Place, name: str, progress: Step) -> str:
    """Push the image of a name; its digest. The engine asks again where an upload breaks.

    The name in the registry stays here: by it `inv sign` knows what was pushed. What had it before may go.
    """
    target, pushed = place.called(name), False
    before = attributes(place.tagged(name))
    with _told_of(place), translated_errors():
        docker_client().images.get(tool.address(name)).tag(target, place.tag)
        try:
            events = docker_client().api.push(target, tag=place.tag, stream=True, decode=True)
            digest = follow(events, None, progress.detail, wanted="Digest")
            pushed = True
        finally:
            if not pushed:
                docker_client().images.remove(place.tagged(name))
    if before is not None:
        remove_unnamed(before["Id"])
    return digest


@contextmanager
def _told_of(place: _Place) -> Iterator[None]:
    """What the engine says of a registry is of this one."""
    try:
        yield
    except BaseUnavailableError as error:
        remedy = f"does it want a login? docker login {place.there.host}; {REGISTRY_REMEDY}"
        raise RegistryError(f"{place.called(place.recipe)}: {error.cause}", remedy) from error


def _documents(image: DockerInspection, recipe: str) -> dict[str, Any]:
    """Return what is attested of an image that is here. Raises SifmarkError where it is of another, or incomplete."""
    documents = {name: json.loads(content) for name, content in image.papers().items()}
    _require_announced(image, recipe, documents)
    if missing := [name for name in MEDIA_TYPES if name not in documents]:
        raise SifmarkError(
            f"{image.address}: {', '.join(missing)} is missing in {attestation_folder(recipe)}", REBUILD_REMEDY
        )
    return documents


def _announced(image: DockerInspection) -> dict[str, str]:
    """Return the annotations that tell whoever looks at a registry what an image is."""
    return {**public_labels(image.labels), IDENTITY: image.identity()}


def _attest(
    place: _Place, name: str, digest: str, documents: Mapping[str, Any], annotations: Mapping[str, str]
) -> None:
    """Let attestations refer to an image that was pushed."""
    repository, origin = place.repository(name), None if name == place.recipe else place.repository(place.recipe)
    image = fetch_manifest(place.registry, repository, digest)
    manifests = attestations.write(documents, image.descriptor, annotations)
    attestations.push(place.registry, repository, manifests, documents, origin)


def _require_announced(image: DockerInspection, recipe: str, documents: Mapping[str, Any]) -> None:
    """Raise SifmarkError where an image is not the recipe's for this machine, or its attestations are of another."""
    for label, wanted in ((RECIPE, recipe), (PLATFORM, platform_name())):
        if image.labels.get(label) != wanted:
            raise SifmarkError(f"{image.address} has {label} {image.labels.get(label)}, not {wanted}", _STRANGE)
    subject = [{"name": IMAGE, "digest": {"sha256": image.identity().removeprefix("sha256:")}}]
    if documents.get(PROVENANCE, {}).get("subject") != subject:
        raise SifmarkError(f"{image.address} is {image.identity()}: its provenance is of another image", _STRANGE)
