"""Publishing Docker images: the engine moves them, their attestations refer to them in the registry.

`HOST/PATH/<name>:TAG-docker` is an image; the SIF of the same name has the tag without that ending. A workload's name
adds a variable to the recipe's image: it has a digest of its own, and so attestations and signatures.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sifmark.attestations.provenance import NAME as PROVENANCE
from sifmark.builds import ledger
from sifmark.builds.records import lock_path, update_record, write_image_record
from sifmark.core.console import Step, step
from sifmark.core.environment import platform_name
from sifmark.core.errors import REBUILD_REMEDY, REGISTRY_REMEDY, RegistryError, SifmarkError, UsageError
from sifmark.core.files import human_size, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings
from sifmark.engines import BuiltImage, Engine
from sifmark.engines.docker import signature
from sifmark.engines.docker.attestations import IMAGE, attestation_folder
from sifmark.engines.docker.client import BaseUnavailableError, follow, translated_errors
from sifmark.engines.docker.engine import REPOSITORY, Docker
from sifmark.engines.docker.inspection import DockerInspection
from sifmark.oci.images import fetch_manifest
from sifmark.oci.manifest import Manifest, read_object
from sifmark.publish import attestations
from sifmark.publish.attestations import MEDIA_TYPES
from sifmark.publish.reports import PullReport, PushReport, SigningKey, SignReport
from sifmark.publish.repositories import DockerListing, Repositories, open_registry_store
from sifmark.publish.stores import IDENTITY, StoreListing, public_labels, require_allowed
from sifmark.recipes.labels import PLATFORM, RECIPE
from sifmark.recipes.names import find_recipe, names_of
from sifmark.trust.checks import require_unchanged
from sifmark.trust.image import image_under_test

PULL_COMMAND = "docker pull "
SIGNS_IN_REGISTRY = True
_NOT_ANNOUNCED_REMEDY = "do not run it; ask the publisher"
_PUSH_REMEDY = "push it again: sifmark registry.push NAME --engine docker"


def push(name: str, registry: str, tag: str, engine: Engine, settings: Settings) -> PushReport:
    """Push a recipe's image and its attestations to a registry, under each of its names. Raises SifmarkError."""
    repositories, docker = _repositories(name, registry, tag, settings), _docker(engine)
    recipe = repositories.recipe
    with exclusive_lock(lock_path(recipe, docker)):
        image = docker.inspect(docker.address(recipe))
        require_allowed(repositories.store.host, image.address, image.labels, settings)
        identifiers = _identifiers(docker, repositories, image)
        documents = _documents(docker, image, recipe)
        with step(f"push {image.address}, {human_size(image.size)}, to {repositories.address(recipe)}") as progress:
            sent = {name: _send(docker, repositories, name, each, progress) for name, each in identifiers.items()}
            digests = {name: manifest.digest for name, manifest in sent.items()}
            for each, manifest in sent.items():
                _attest(repositories, each, manifest, documents, _annotations(image))
        reference = repositories.pinned(recipe, digests[recipe])
        update_record(recipe, docker, pushed=reference)
    names = tuple(map(repositories.tagged, repositories.names))
    return PushReport(reference, digests[recipe], image.identity(), names, f"sent, with {len(names) - 1} more names")


def pull(name: str, registry: str, tag: str, engine: Engine, settings: Settings, signed: bool) -> PullReport:
    """Fetch a recipe's image and its attestations, and give it its names when all is verified.

    With `signed` trusted signatures are required. Raises SifmarkError, CheckFailed for a signature.
    """
    repositories, docker = _repositories(name, registry, tag, settings), _docker(engine)
    recipe = repositories.recipe
    digest = repositories.manifest(recipe).digest
    attested = repositories.attestations(recipe, digest)
    documents = attestations.fetch(repositories.registry, repositories.path(recipe), attested)
    signer = None
    if signed:
        references = repositories.signed(recipe, digest, attested)
        signer, *_ = [signature.signer(reference, settings.keys) for reference in references]
    pinned = repositories.pinned(recipe, digest)
    with exclusive_lock(lock_path(recipe, docker)):
        image = _fetch(docker, repositories, pinned, documents)
        for each, content in documents.items():
            write_json(attestation_folder(recipe, settings.cache) / each, content)
        built = BuiltImage(image.size, image.identity(), image.identifier)
        write_image_record(recipe, docker, built, image.labels, pulled=pinned, signed_by=signer)
        if signer:
            ledger.record_trusted(built.digest, settings, signer)
        docker.daemon.tag(image.identifier, REPOSITORY, recipe)
        names = docker.tag_workloads(recipe)
    return PullReport(docker.address(recipe), digest, built.identity, signer, names)


def sign(name: str, key: SigningKey, registry: str, tag: str, engine: Engine, settings: Settings) -> SignReport:
    """Sign a pushed image and its attestations under each of its names, if the registry has what is here.

    Raises SifmarkError.
    """
    if key.file is None:
        cause = "images of Docker are signed by a key in PEM form"
        raise UsageError(cause, "name one: --key FILE.pem", code="invalid-option")
    repositories, docker = _repositories(name, registry, tag, settings), _docker(engine)
    recipe = repositories.recipe
    with exclusive_lock(lock_path(recipe, docker)):
        images: dict[str, DockerInspection] = {}
        for each in repositories.names:
            tested = image_under_test(docker, docker.pinned(docker.address(each)), settings)
            require_unchanged(tested)
            images[each] = docker.inspect(tested.address)
        documents, annotations = _documents(docker, images[recipe], recipe), _annotations(images[recipe])
        with step(f"sign {repositories.tagged(recipe)}, its names and attestations"):
            signable = [_signable(each, repositories, name, documents, annotations) for name, each in images.items()]
            signature.sign([reference for references in signable for reference in references], key.file)
    reference = repositories.pinned(recipe, repositories.manifest(recipe).digest)
    return SignReport(reference, published=True, summary=f"{reference}: signed, with all its names and attestations")


def listing(registry: str, tag: str, settings: Settings) -> StoreListing:
    """Return the Docker images of a registry. Raises UsageError for a folder."""
    return DockerListing(open_registry_store(registry, tag, settings))


def _docker(engine: Engine) -> Docker:
    if not isinstance(engine, Docker):
        raise TypeError(f"{engine.name} has no images of Docker")
    return engine


def _repositories(name: str, registry: str, tag: str, settings: Settings) -> Repositories:
    return Repositories(open_registry_store(registry, tag, settings), find_recipe(name))


def _identifiers(docker: Docker, repositories: Repositories, image: DockerInspection) -> dict[str, str]:
    """Return by name what a push sends. Raises SifmarkError unless all names of a recipe refer to the same image."""
    identifiers = {repositories.recipe: image.identifier}
    for name in names_of(repositories.recipe):
        named = docker.inspect(docker.address(name))
        if named.identity() != image.identity():
            cause = f"{named.address} is another image than {image.address}"
            raise SifmarkError(cause, "set the names again: sifmark build NAME", code="names-stale")
        identifiers[name] = named.identifier
    return identifiers


def _signable(
    image: DockerInspection,
    repositories: Repositories,
    name: str,
    documents: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> list[str]:
    """Return the references of an image and its attestations. Raises SifmarkError if the registry has others."""
    manifest = repositories.manifest(name)
    pinned = repositories.pinned(name, manifest.digest)
    if pinned not in image.references:
        raise SifmarkError(f"{pinned} is not the image that is here", _PUSH_REMEDY, code="digest-mismatch")
    published = repositories.attestations(name, manifest.digest)
    ours = attestations.write(documents, manifest.descriptor, annotations)
    if published.digests != {attestation.digest for attestation in ours}:
        cause = f"{pinned}: its attestations there are not those that are here"
        raise SifmarkError(cause, _PUSH_REMEDY, code="digest-mismatch")
    return repositories.signed(name, manifest.digest, published)


def _fetch(docker: Docker, repositories: Repositories, pinned: str, documents: Mapping[str, Any]) -> DockerInspection:
    """Let the engine fetch an image, and remove it again unless it is what was announced. Raises SifmarkError."""
    with step(f"pull {repositories.tagged(repositories.recipe)}") as progress, _registry_errors(repositories):
        events = docker.daemon.sdk.api.pull(pinned, stream=True, decode=True)
        follow(events, None, progress.detail, wanted="")
    try:
        image = docker.inspect(pinned)
        _require_announced(image, repositories.recipe, documents)
    except SifmarkError:
        docker.daemon.remove(pinned)
        raise
    return image


def _send(docker: Docker, repositories: Repositories, name: str, identifier: str, progress: Step) -> Manifest:
    """Push the image of a name, and return its manifest. The engine tries again if an upload breaks.

    The image keeps its name in the registry here: `sifmark image.sign` knows by it what was pushed. The image that
    had the name before may be removed. The engine pushes names alone: raises SifmarkError if the name meant another
    image by then.
    """
    target, pushed = repositories.address(name), False
    former = docker.daemon.attributes(repositories.tagged(name))
    with _registry_errors(repositories), translated_errors():
        docker.daemon.tag(identifier, target, repositories.tag)
        try:
            events = docker.daemon.sdk.api.push(target, tag=repositories.tag, stream=True, decode=True)
            digest = follow(events, None, progress.detail, wanted="Digest")
            pushed = True
        finally:
            if not pushed:
                docker.daemon.remove(repositories.tagged(name))
    if former is not None:
        docker.daemon.remove_unnamed(former["Id"])
    manifest = fetch_manifest(repositories.registry, repositories.path(name), digest)
    if identifier not in (manifest.config.digest, digest):  # of an engine that keeps images as containerd does
        cause = f"{repositories.pinned(name, digest)} is not the image that was looked at"
        raise SifmarkError(cause, _PUSH_REMEDY, code="digest-mismatch")
    return manifest


@contextmanager
def _registry_errors(repositories: Repositories) -> Iterator[None]:
    """Attribute what the engine says of an unnamed registry to this one."""
    try:
        yield
    except BaseUnavailableError as error:
        remedy = f"does it want a login? docker login {repositories.store.host}; {REGISTRY_REMEDY}"
        cause = f"{repositories.address(repositories.recipe)}: {error.cause}"
        raise RegistryError(cause, remedy, code="registry-refused") from error


def _documents(docker: Docker, image: DockerInspection, recipe: str) -> dict[str, Any]:
    """Return what is attested of an image that is here. Raises SifmarkError if it is of another, or incomplete."""
    try:
        documents = {name: read_object(content) for name, content in image.attestations().items()}
    except ValueError as error:
        cause = f"an attestation in {attestation_folder(recipe, docker.settings.cache)} does not read: {error}"
        raise SifmarkError(cause, REBUILD_REMEDY, code="document-invalid") from error
    _require_announced(image, recipe, documents)
    if missing := [name for name in MEDIA_TYPES if name not in documents]:
        folder = attestation_folder(recipe, docker.settings.cache)
        cause = f"{image.address}: {', '.join(missing)} is missing in {folder}"
        raise SifmarkError(cause, REBUILD_REMEDY, code="attestation-missing")
    return documents


def _annotations(image: DockerInspection) -> dict[str, str]:
    return {**public_labels(image.labels), IDENTITY: image.identity()}


def _attest(
    repositories: Repositories,
    name: str,
    image: Manifest,
    documents: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> None:
    """Let attestations refer to an image that was pushed."""
    path = repositories.path(name)
    origin = None if name == repositories.recipe else repositories.path(repositories.recipe)
    manifests = attestations.write(documents, image.descriptor, annotations)
    attestations.push(repositories.registry, path, manifests, documents, origin)


def _require_announced(image: DockerInspection, recipe: str, documents: Mapping[str, Any]) -> None:
    """Raise SifmarkError if an image is not the recipe's for this machine, or its provenance is of another."""
    for label, wanted in ((RECIPE, recipe), (PLATFORM, platform_name())):
        if image.labels.get(label) != wanted:
            cause = f"{image.address} has {label} {image.labels.get(label)!r:.100}, not {wanted}"
            raise SifmarkError(cause, _NOT_ANNOUNCED_REMEDY, code="not-as-announced")
    subject = [{"name": IMAGE, "digest": {"sha256": image.identity().removeprefix("sha256:")}}]
    if documents.get(PROVENANCE, {}).get("subject") != subject:
        cause = f"{image.address} is {image.identity()}: its provenance is of another image"
        raise SifmarkError(cause, _NOT_ANNOUNCED_REMEDY, code="provenance-mismatch")
