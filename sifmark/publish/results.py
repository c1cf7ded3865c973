"""Signed results in a registry: each file, with its envelope, is an artifact that refers to the image that ran.

Other tools read and write them too: `oras attach --artifact-type application/vnd.sifmark.result`, with both files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.core.errors import RegistryError, SifmarkError, UsageError
from sifmark.core.files import read_bounded, sha256_bytes
from sifmark.core.settings import Settings
from sifmark.oci.images import connect, fetch_manifest
from sifmark.oci.manifest import EMPTY, EMPTY_MEDIA, TITLE, Descriptor, Manifest, descriptor_of, write_manifest
from sifmark.oci.referrers import attach, list_referrers
from sifmark.publish.stores import IDENTITY, RegistryStore, open_store
from sifmark.results.archive import LARGEST_MEMBER
from sifmark.results.envelope import SUFFIX, envelope_path, require_unchanged
from sifmark.results.load import SUFFIXES, load_file

if TYPE_CHECKING:
    from sifmark.oci.client import Registry

ADDRESS = "oras://"
ARTIFACT = "application/vnd.sifmark.result"
_JSON, _ENVELOPE = "application/json", "application/vnd.dsse.envelope.v1+json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_REFERENCE = re.compile(r"oras://([A-Za-z0-9.-]+(?::[0-9]+)?)/([a-z0-9._/-]+)(?::([\w.-]+)|@(sha256:[0-9a-f]{64}))")


@dataclass(frozen=True)
class PushedResult:
    """A file of results that refers to its image now."""

    file: str
    reference: str  # of the artifact, with its digest
    image: str  # of the image, with its digest


def push_results(files: Sequence[str], registry: str, tag: str, settings: Settings) -> Iterator[PushedResult]:
    """Attach signed files of results to the images in a registry that they are of, and yield each.

    Raises SifmarkError for a file that is not signed, was changed since, or is not of an image that is there.
    """
    store = open_store(registry, tag, settings)
    if not isinstance(store, RegistryStore):
        raise UsageError(f"{registry} is no registry", "name it: --registry HOST/PATH", code="invalid-option")
    client = connect(store.host, retry=True)
    for file in files:
        recipe, identity = _image_of(file)
        repository = f"{store.path}/{recipe}"
        image = fetch_manifest(client, repository, store.tag)
        if image.annotations.get(IDENTITY) != identity:
            cause = f"{file} is of the image {identity}, {store.reference(recipe)} is {image.annotations.get(IDENTITY)}"
            raise SifmarkError(cause, "push that image first, or name its tag: --tag", code="digest-mismatch")
        manifest = _push(client, repository, image, Path(file))
        address = f"{store.host}/{repository}"
        yield PushedResult(file, f"{address}@{manifest.digest}", f"{address}@{image.digest}")


def fetch_results(references: Sequence[str], folder: Path) -> list[str]:
    """Fetch what refers to images, each into folders of its own, and return what could not be fetched, and why.

    Signatures are not looked at. Raises UsageError for a reference that is none, SifmarkError if a registry does not
    answer.
    """
    problems: list[str] = []
    for reference in references:
        host, repository, tag, digest = _parts(reference)
        client = connect(host, retry=True)
        image = digest or fetch_manifest(client, repository, tag).digest
        for referrer in list_referrers(client, repository, image):
            if referrer.artifact_type != ARTIFACT:
                continue
            name = f"{host.replace(':', '_')}/{repository}/{referrer.digest.partition(':')[2][:16]}"
            try:
                _fetch(client, repository, image, referrer, folder / name)
            except (RegistryError, ValueError) as error:
                problems.append(f"{name}: {getattr(error, 'cause', error)}")
    return problems


def _image_of(file: str) -> tuple[str, str]:
    """Return recipe and identity of the image that made the results of a file. Raises SifmarkError."""
    loaded = list(load_file(file))
    if problem := next((each.problems[0] for each in loaded if each.problems), None):
        raise SifmarkError(f"{file} is not pushed: {problem}", "push valid results only", code="result-invalid")
    if _NAME.fullmatch(Path(file).name) is None:
        remedy = "rename it, and sign it again: letters, digits, points, dashes and underscores"
        raise UsageError(f"{file} has no name that others could keep", remedy, code="invalid-option")
    if not envelope_path(Path(file)).is_file():
        remedy = "sign it: sifmark results.sign FILE --key FILE.pem"
        raise SifmarkError(f"{file} is not signed", remedy, code="signature-missing")
    try:
        require_unchanged(Path(file))
    except SifmarkError as error:
        raise SifmarkError(f"{file} is not pushed: {error.cause}", error.remedy, code=error.code) from None
    images = [each.document["provenance"]["image"] for each in loaded]
    made_by = {(image["recipe"], str(image["file"]["identity"])) for image in images if image}
    if len(made_by) != 1 or None in images:
        cause = f"{file} is not of one image, but of {len(made_by) or 'none'}"
        raise SifmarkError(cause, "push files with results of one image each", code="results-incomparable")
    return made_by.pop()


def _push(client: "Registry", repository: str, image: Manifest, file: Path) -> Manifest:
    """Store a file and its envelope, and let them refer to an image. The same files give the same artifact."""
    try:
        parts = {each: read_bounded(each, LARGEST_MEMBER) for each in (file, envelope_path(file))}
    except (OSError, ValueError) as error:
        raise SifmarkError(f"{file} does not read: {error}", "make it readable", code="file-unreadable") from error
    kinds = dict(zip(parts, (_JSON, _ENVELOPE), strict=True))
    layers = [descriptor_of(kinds[path], content, {TITLE: path.name}) for path, content in parts.items()]
    for content in (EMPTY, *parts.values()):
        client.upload(repository, sha256_bytes(content), content, None)
    manifest = write_manifest(descriptor_of(EMPTY_MEDIA, EMPTY), layers, None, ARTIFACT, image.descriptor)
    attach(client, repository, (manifest,), lambda _: False)
    return manifest


def _fetch(client: "Registry", repository: str, image: str, referrer: Descriptor, folder: Path) -> None:
    """Fetch an artifact of results. Raises RegistryError, or ValueError if it is none about an image."""
    manifest = fetch_manifest(client, repository, referrer.digest)
    if manifest.artifact_type != ARTIFACT or manifest.subject is None or manifest.subject.digest != image:
        raise ValueError("it refers to another image, or is no artifact of results")
    titles = {layer.annotations.get(TITLE, ""): layer for layer in manifest.layers}
    results = [name for name in titles if name.endswith(SUFFIXES) and _NAME.fullmatch(name)]
    if len(results) != 1 or set(titles) - {results[0], results[0] + SUFFIX}:
        raise ValueError("it has other files than one of results and its envelope")
    if too_large := [name for name, layer in titles.items() if layer.size > LARGEST_MEMBER]:
        raise ValueError(f"{too_large[0]} has more than {LARGEST_MEMBER >> 20} MiB")
    folder.mkdir(parents=True, exist_ok=True)
    for name, layer in titles.items():
        client.download(f"{repository}/blobs/{layer.digest}", layer.digest, layer.size, folder / name)


def _parts(reference: str) -> tuple[str, str, str, str]:
    """Return host, repository, and tag or digest of a reference to an image. Raises UsageError."""
    match = _REFERENCE.fullmatch(reference)
    if match is None or ".." in reference:
        remedy = "name an image, for example oras://registry.site.example/sifmark/cpu:0.2.0"
        raise UsageError(f"no reference {reference!r}", remedy, code="invalid-option")
    host, repository, tag, digest = match.groups()
    return host, repository.strip("/"), tag or "", digest or ""
