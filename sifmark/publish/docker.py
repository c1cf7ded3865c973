"""Pushing, pulling and signing Docker images: the engine moves them, their papers go beside them as an OCI artifact.

`HOST/PATH/<name>:TAG-docker` is an image; the SIF of the same name has the tag without that ending. Its papers (lists
of packages and provenance) have the tag `sha256-<digest>.papers` in its repository, beside cosign's signature. A
workload's name adds a variable to the recipe's image: it has a digest of its own, and so papers and a signature.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.attestations.provenance import NAME as PROVENANCE
from sifmark.attestations.sbom import CYCLONEDX, SPDX
from sifmark.build import ledger
from sifmark.build.image import lock_path, update_record, write_image_record
from sifmark.core.console import Step, output, status, step
from sifmark.core.environment import platform_name
from sifmark.core.errors import REGISTRY_REMEDY, RegistryError, SifmarkError, UsageError
from sifmark.core.files import compact_json, human_size, sha256_bytes, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import settings
from sifmark.engines import BuiltImage
from sifmark.engines.docker import signature
from sifmark.engines.docker.attestations import IMAGE, attestation_folder
from sifmark.engines.docker.client import BaseUnavailableError, attributes, docker_client, follow, translated_errors
from sifmark.engines.docker.engine import NAME, REPOSITORY, Docker, remove_unnamed
from sifmark.engines.docker.inspection import DockerInspection
from sifmark.oci.images import connect
from sifmark.oci.reference import DIGEST, MANIFESTS
from sifmark.publish.policy import require_allowed
from sifmark.publish.stores import (
    IDENTITY,
    MANIFEST_MEDIA,
    SIGNED,
    PublishedImage,
    RegistryStore,
    open_store,
    public_labels,
)
from sifmark.recipes.names import find_recipe, names_of
from sifmark.recipes.plan import PLATFORM, RECIPE
from sifmark.trust.checks import require_unchanged
from sifmark.trust.image import image_under_test

_PAPERS = (SPDX, CYCLONEDX, PROVENANCE)
_PAPERS_TYPE = "application/vnd.sifmark.papers.v1"
_PAPER_MEDIA = "application/json"
_EMPTY, _EMPTY_MEDIA = b"{}", "application/vnd.oci.empty.v1+json"  # OCI image specification 1.1, manifest.md
_TITLE = "org.opencontainers.image.title"
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

    def digest(self, name: str) -> str:
        """What a name's tag stands for. Raises RegistryError where there is none."""
        return self._ask(name, self.tag, MANIFESTS)[0]

    def papers(self, name: str, digest: str) -> tuple[str, Mapping[str, Any]]:
        """The manifest of an image's papers. Raises RegistryError where there is none."""
        return self._ask(name, _beside(digest), (MANIFEST_MEDIA,))

    def _ask(self, name: str, tag: str, accepted: tuple[str, ...]) -> tuple[str, Mapping[str, Any]]:
        return connect(self.there.host, retry=True).document(f"{self.repository(name)}/manifests/{tag}", accepted)


@dataclass(frozen=True)
class DockerListing:
    """The Docker images of a registry, for its catalog."""

    there: RegistryStore

    def reference(self, name: str) -> str:
        """As its tag names it."""
        return _Place(self.there, name).tagged(name)

    def resolve(self, name: str) -> PublishedImage:
        """A recipe's image, by its manifest and what its papers announce. Raises RegistryError where it has none."""
        place = _Place(self.there, name)
        manifest = connect(self.there.host, retry=True).content(
            f"{place.repository(name)}/manifests/{place.tag}", MANIFESTS
        )
        pinned = place.pinned(name, sha256_bytes(manifest))
        _, papers = place.papers(name, sha256_bytes(manifest))
        try:
            told = json.loads(manifest)
            configuration, size = str(told["config"]["digest"]), sum(int(layer["size"]) for layer in told["layers"])
            announced = {str(key): str(value) for key, value in papers["annotations"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise RegistryError(f"{pinned} is no image with papers: {error!r}", "push it again") from error
        signed = str(signature.signed(pinned)).lower()
        return PublishedImage(manifest, configuration, size, {**announced, SIGNED: signed})


@dataclass(frozen=True)
class _Papers:
    """Papers as a registry keeps them: their manifest, and each by its digest."""

    manifest: bytes
    blobs: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """The manifest's."""
        return sha256_bytes(self.manifest)


def images(registry: str, tag: str) -> DockerListing:
    """The Docker images of a registry. Raises UsageError for a folder."""
    return DockerListing(_registry(registry, tag))


def push(name: str, registry: str, tag: str, as_json: bool) -> None:
    """Put a recipe's image into a registry, under each of its names, and its papers. Raises SifmarkError."""
    place, tool = _place(name, registry, tag), Docker()
    with exclusive_lock(lock_path(place.recipe, tool)):
        image = tool.inspect(tool.address(place.recipe))
        require_allowed(place.there.host, image.address, image.labels)
        for each in map(tool.address, place.names):
            if tool.inspect(each).identity() != image.identity():
                raise SifmarkError(f"{each} is another image than {image.address}", "name them anew: inv build NAME")
        papers = _papers_here(image, place.recipe)
        with step(f"push {image.address}, {human_size(image.size)}, to {place.called(place.recipe)}") as progress:
            digests = {each: _send(tool, place, each, progress) for each in place.names}
            for each, digest in digests.items():
                _put_papers(place, each, digest, papers)
        update_record(place.recipe, tool, pushed=place.pinned(place.recipe, digests[place.recipe]))
    references = list(map(place.tagged, place.names))
    if as_json:
        told = {"digest": digests[place.recipe], "identity": image.identity(), "names": references}
        output(json.dumps(told, indent=2))
    else:
        output(place.pinned(place.recipe, digests[place.recipe]))
        status(f"  as {', '.join(references)}")


def pull(name: str, registry: str, tag: str, as_json: bool, to_be_signed: bool) -> None:
    """Fetch a recipe's image and its papers, and name it when digest, signature, labels and identity hold.

    Raises SifmarkError, Refuted for a signature.
    """
    place, tool = _place(name, registry, tag), Docker()
    digest = place.digest(place.recipe)
    pinned = place.pinned(place.recipe, digest)
    papers, told_by = _fetch_papers(place, digest)
    by = None
    if to_be_signed:
        by, _ = (signature.signer(reference, settings().keys) for reference in (pinned, told_by))
    with exclusive_lock(lock_path(place.recipe, tool)):
        with step(f"pull {place.tagged(place.recipe)}") as progress, _told_of(place):
            follow(docker_client().api.pull(pinned, stream=True, decode=True), None, progress.detail, wanted="")
        try:
            image = tool.inspect(pinned)
            _require_announced(image, place.recipe, papers)
        except SifmarkError:
            with translated_errors():
                docker_client().images.remove(pinned)
            raise
        for each, content in papers.items():
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
    """Sign a pushed image under each of its names, and its papers, where the registry has what is here.

    Raises SifmarkError.
    """
    place, tool = _place(name, registry, tag), Docker()
    with exclusive_lock(lock_path(place.recipe, tool)):
        for each in place.names:
            require_unchanged(image_under_test(tool, tool.address(each), signed=False))
        papers = _papers_here(tool.inspect(tool.address(place.recipe)), place.recipe)
        with step(f"sign {place.tagged(place.recipe)}, its names and papers"):
            signature.sign([told for each in place.names for told in _signable(tool, place, each, papers)], key)
    output(f"{place.pinned(place.recipe, place.digest(place.recipe))}: signed, with all its names and papers")


def _signable(tool: Docker, place: _Place, name: str, papers: _Papers) -> tuple[str, str]:
    """References of an image and its papers. Raises SifmarkError where the registry has others than are here."""
    digest = place.digest(name)
    pinned, again = place.pinned(name, digest), "push it again: inv push NAME --engine docker"
    if pinned not in tool.inspect(tool.address(name)).references:
        raise SifmarkError(f"{pinned} is not the image that is here", again)
    there, _ = place.papers(name, digest)
    if there != papers.digest:
        raise SifmarkError(f"{place.pinned(name, there)}: these papers are not those that are here", again)
    return pinned, place.pinned(name, there)


def _place(name: str, registry: str, tag: str) -> _Place:
    return _Place(_registry(registry, tag), find_recipe(name))


def _registry(registry: str, tag: str) -> RegistryStore:
    there = open_store(registry, tag)
    if not isinstance(there, RegistryStore):
        raise UsageError("a folder has no room for images of Docker", "name a registry, or carry the SIF: inv convert")
    return there


def _beside(digest: str) -> str:
    """The tag of what goes with an image."""
    return f"{digest.replace(':', '-')}.papers"


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


def _papers_here(image: DockerInspection, recipe: str) -> _Papers:
    """The papers of an image that is here. Raises SifmarkError where they are of another."""
    papers = {name: json.loads(content) for name, content in image.papers().items()}
    _require_announced(image, recipe, papers)
    blobs, layers = {sha256_bytes(_EMPTY): _EMPTY}, []
    for name, content in papers.items():
        told = compact_json(content)
        blobs[sha256_bytes(told)] = told
        entry = {"mediaType": _PAPER_MEDIA, "digest": sha256_bytes(told), "size": len(told)}
        layers.append({**entry, "annotations": {_TITLE: name}})
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA,
        "artifactType": _PAPERS_TYPE,
        "config": {"mediaType": _EMPTY_MEDIA, "digest": sha256_bytes(_EMPTY), "size": len(_EMPTY)},
        "layers": layers,
        "annotations": {**public_labels(image.labels), IDENTITY: image.identity()},
    }
    return _Papers(compact_json(document), blobs)


def _put_papers(place: _Place, name: str, digest: str, papers: _Papers) -> None:
    registry, repository = connect(place.there.host, retry=True), place.repository(name)
    origin = None if name == place.recipe else place.repository(place.recipe)
    for blob, content in papers.blobs.items():
        registry.upload(repository, blob, content, origin)
    registry.tag(repository, _beside(digest), papers.manifest, MANIFEST_MEDIA)


def _fetch_papers(place: _Place, digest: str) -> tuple[dict[str, Any], str]:
    """An image's papers by name, and the reference of their manifest. Raises RegistryError where one is missing."""
    told_by, manifest = place.papers(place.recipe, digest)
    reference, repository = place.pinned(place.recipe, told_by), place.repository(place.recipe)
    try:
        listed = {layer["annotations"][_TITLE]: layer["digest"] for layer in manifest["layers"]}
        digests = {name: listed[name] for name in _PAPERS}
        if not all(map(DIGEST.fullmatch, digests.values())):
            raise ValueError("they have no digests")
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryError(f"{reference}: no papers of an image: {error}", "push it again") from error
    registry = connect(place.there.host, retry=True)
    return {name: registry.blob(repository, each) for name, each in digests.items()}, reference


def _require_announced(image: DockerInspection, recipe: str, papers: Mapping[str, Any]) -> None:
    """Raise SifmarkError where an image is not the recipe's for this machine, or the papers are not of it."""
    for label, wanted in ((RECIPE, recipe), (PLATFORM, platform_name())):
        if image.labels.get(label) != wanted:
            raise SifmarkError(f"{image.address} has {label} {image.labels.get(label)}, not {wanted}", _STRANGE)
    subject = [{"name": IMAGE, "digest": {"sha256": image.identity().removeprefix("sha256:")}}]
    if papers.get(PROVENANCE, {}).get("subject") != subject:
        raise SifmarkError(f"{image.address} is {image.identity()}: its papers are of another image", _STRANGE)
