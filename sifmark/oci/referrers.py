"""Referrers: manifests whose `subject` is the image they belong to.

By the OCI distribution specification 1.1. A registry with its API lists them. For other registries clients keep the
list: an index under the tag `sha256-<hex>`, which is read, changed and written. Two concurrent writers may lose an
entry.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import REGISTRY_REMEDY, RegistryError
from sifmark.core.files import compact_json
from sifmark.oci.manifest import INDEX_MEDIA, Descriptor, Manifest, read_descriptor, read_index

if TYPE_CHECKING:
    from sifmark.oci.client import Registry

_MOST_PAGES = 20  # of a list, each of up to 4 MiB


def list_referrers(registry: "Registry", repository: str, digest: str) -> list[Descriptor]:
    """Return the listed referrers of a manifest; the list itself proves nothing. Raises RegistryError."""
    entries = _ask_api(registry, repository, digest)
    if entries is None:
        entries = _read_tag(registry, repository, digest)["manifests"]
    return _descriptors(entries)


def attach(
    registry: "Registry", repository: str, manifests: Sequence[Manifest], supersede: Callable[[Descriptor], bool]
) -> None:
    """Store manifests that refer to one image, and remove those they supersede from its referrers.

    Raises RegistryError.
    """
    (digest,) = {manifest.subject.digest for manifest in manifests if manifest.subject}
    answers = [registry.put_manifest(repository, m.digest, m.content, m.media_type) for m in manifests]
    new = {manifest.digest: manifest.descriptor.document() for manifest in manifests}
    if all("OCI-Subject" in answer for answer in answers):  # the registry keeps the list
        for referrer in list_referrers(registry, repository, digest):
            if referrer.digest not in new and supersede(referrer):
                _delete(registry, repository, referrer.digest)
        return
    index = _read_tag(registry, repository, digest)
    outdated = {entry.digest for entry in _descriptors(index["manifests"]) if entry.digest in new or supersede(entry)}
    entries = [entry for entry in index["manifests"] if entry.get("digest") not in outdated] + list(new.values())
    if entries != index["manifests"]:
        content = compact_json({**index, "manifests": entries})
        registry.put_manifest(repository, _tag(digest), content, INDEX_MEDIA)


def _ask_api(registry: "Registry", repository: str, digest: str) -> list[dict[str, Any]] | None:
    """Return the entries of all pages of a registry's own list; None if it does not have the API."""
    entries: list[dict[str, Any]] = []
    address: str | None = f"{repository}/referrers/{digest}"
    for page in range(_MOST_PAGES):
        answer = registry.request("GET", str(address), headers={"Accept": INDEX_MEDIA})
        if page == 0 and answer.status_code == 404:
            return None
        entries += _read(registry.expect(answer, 200).content, answer.url)["manifests"]
        if (address := registry.next_page(answer)) is None:
            return entries
    cause = f"{registry.host}/{repository}: the list of what refers to {digest} has no end"
    raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid")


def _read_tag(registry: "Registry", repository: str, digest: str) -> dict[str, Any]:
    """Return the list that clients keep; an empty one if there is none."""
    path = f"{repository}/manifests/{_tag(digest)}"
    try:
        return _read(registry.content(path, (INDEX_MEDIA,)), f"{registry.host}/{path}")
    except RegistryError as error:
        if error.status != 404:
            raise
        return {"schemaVersion": 2, "mediaType": INDEX_MEDIA, "manifests": []}


def _read(content: bytes, where: str) -> dict[str, Any]:
    try:
        return read_index(content)
    except ValueError as error:
        cause = f"{where}: the answer is not a list of referrers: {error}"
        raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid") from error


def _descriptors(entries: Iterable[dict[str, Any]]) -> list[Descriptor]:
    """Return each entry once, except those whose digest uses another algorithm: they are not ours."""
    descriptors = {}
    for entry in entries:
        with suppress(ValueError):
            descriptors[entry.get("digest")] = read_descriptor(entry)
    return list(descriptors.values())


def _delete(registry: "Registry", repository: str, digest: str) -> None:
    answer = registry.request("DELETE", f"{repository}/manifests/{digest}")
    if answer.status_code not in (202, 404):  # another attempt may have deleted it
        cause = f"{registry.host}/{repository}@{digest}: an earlier document about the same image was not deleted"
        remedy = "delete it there, or let this login do so: only one of each kind may refer to an image"
        cause += f", the registry answers with {answer.status_code}"
        raise RegistryError(cause, remedy, answer.status_code, code="registry-refused")


def _tag(digest: str) -> str:
    """Return the tag of the list that clients keep."""
    return digest.replace(":", "-")
