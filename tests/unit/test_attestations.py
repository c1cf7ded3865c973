"""Attestations of images in a registry: found by other tools, and refused where they are of another image."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from unit.refusals import refused
from unit.registry_double import RegistryDouble, serving

from sifmark.core.errors import RegistryError
from sifmark.core.files import compact_json, sha256_bytes
from sifmark.oci.client import Registry
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import (
    EMPTY,
    EMPTY_MEDIA,
    INDEX_MEDIA,
    MANIFEST_MEDIA,
    Manifest,
    descriptor_of,
    read_manifest,
    write_manifest,
)
from sifmark.oci.referrers import list_referrers
from sifmark.publish.attestations import MEDIA_TYPES, Attestations, fetch, find, push, write
from sifmark.publish.stores import IDENTITY

REPOSITORY = "images/cpu"
DOCUMENTS = {name: {"this is": name} for name in MEDIA_TYPES}
ANNOTATIONS = {IDENTITY: "sha256:1", "org.sifmark.recipe": "cpu"}
SPDX, CYCLONEDX, PROVENANCE = MEDIA_TYPES
PUBLISHED = Path(__file__).with_name(
    "published_0_1_0"
)  # by 0.1.0's inv registry.push; the lists of packages were shortened before


@pytest.fixture(params=[True, False], ids=["API", "tag"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryDouble]:
    with serving(api=request.param) as server:
        yield server


@pytest.fixture
def image(server: RegistryDouble) -> Manifest:
    return put_image(server, b"an image")


def put_image(server: RegistryDouble, config: bytes) -> Manifest:
    server.blobs[sha256_bytes(config)] = config
    manifest = write_manifest(descriptor_of("config", config), [])
    server.put(REPOSITORY, "1.0", manifest.content, MANIFEST_MEDIA)
    return manifest


def attest(server: RegistryDouble, image: Manifest, documents: dict[str, Any] = DOCUMENTS) -> tuple[Manifest, ...]:
    manifests = write(documents, image.descriptor, ANNOTATIONS)
    push(Registry(server.host), REPOSITORY, manifests, documents, origin=None)
    return manifests


def ask(server: RegistryDouble, image: Manifest) -> Attestations:
    return find(Registry(server.host), REPOSITORY, image.digest)


def tag_of(image: Manifest) -> str:
    return image.digest.replace(":", "-")


def relist(server: RegistryDouble, image: Manifest, *manifests: Manifest) -> None:
    """Let these and no others refer to an image, as whoever may write to the registry can."""
    server.manifests = {key: value for key, value in server.manifests.items()
                        if not (value[0] == MANIFEST_MEDIA and read_manifest(value[1]).subject)}  # fmt: skip
    for manifest in manifests:
        server.put(REPOSITORY, manifest.digest, manifest.content, MANIFEST_MEDIA)
    server.listing = [manifest.descriptor.document() for manifest in manifests]
    server.put(REPOSITORY, tag_of(image), compact_json({"schemaVersion": 2, "manifests": server.listing}), INDEX_MEDIA)


def test_what_was_pushed_is_found_and_nothing_is_sent_twice(server: RegistryDouble, image: Manifest) -> None:
    with refused(RegistryError, "attestation-missing") as raised:
        ask(server, image)
    assert raised.value.status == 404
    manifests = attest(server, image)
    attested = ask(server, image)
    assert attested.digests == {manifest.digest for manifest in manifests} and attested.annotations == ANNOTATIONS
    assert fetch(Registry(server.host), REPOSITORY, attested) == DOCUMENTS
    assert ((REPOSITORY, tag_of(image)) in server.tags) is not server.api
    server.requests.clear()
    attest(server, image)
    assert not [
        request for request in server.requests if "POST" in request or (tag_of(image) in request and "PUT" in request)
    ]


def test_another_client_finds_each_document_by_its_media_type(server: RegistryDouble, image: Manifest) -> None:
    """As the specification says, in plain HTTP: the API, else the tag; then manifest and blob by digest."""
    attest(server, image)
    base = f"http://{server.host}/v2/{REPOSITORY}"
    for name, kind in MEDIA_TYPES.items():
        listed, page = [], f"{base}/referrers/{image.digest}"
        answer = requests.get(page, timeout=5)
        if answer.status_code == 404:
            answer = requests.get(f"{base}/manifests/{tag_of(image)}", headers={"Accept": INDEX_MEDIA}, timeout=5)
        listed += answer.json()["manifests"]
        while "next" in answer.links:
            answer = requests.get(f"http://{server.host}{answer.links['next']['url']}", timeout=5)
            listed += answer.json()["manifests"]
        (entry,) = [entry for entry in listed if entry["artifactType"] == kind]
        manifest = requests.get(f"{base}/manifests/{entry['digest']}", timeout=5)
        assert entry["annotations"] == ANNOTATIONS and entry["size"] == len(manifest.content)
        assert manifest.json()["subject"] == descriptor_of(MANIFEST_MEDIA, image.content).document()
        (layer,) = manifest.json()["layers"]
        assert layer["mediaType"] == kind
        assert requests.get(f"{base}/blobs/{layer['digest']}", timeout=5).json() == DOCUMENTS[name]


def test_a_new_document_takes_the_place_of_ours_and_of_nobody_else_s(server: RegistryDouble, image: Manifest) -> None:
    server.blobs[sha256_bytes(EMPTY)] = EMPTY
    kind = MEDIA_TYPES[SPDX]
    config = descriptor_of(EMPTY_MEDIA, EMPTY)
    theirs = write_manifest(config, [config], {"by": "a scanner"}, kind, image.descriptor)
    attest(server, image)
    server.put(REPOSITORY, theirs.digest, theirs.content, MANIFEST_MEDIA)
    strange = {"mediaType": MANIFEST_MEDIA, "digest": "sha512:" + "0" * 128, "size": 1, "of": "theirs"}
    if not server.api:
        index = json.loads(server.manifests[REPOSITORY, server.tags[REPOSITORY, tag_of(image)]][1])
        index["manifests"] += [theirs.descriptor.document()]
        server.put(REPOSITORY, tag_of(image), compact_json({**index, "of": "theirs"}), INDEX_MEDIA)
    newer = attest(server, image, {**DOCUMENTS, SPDX: {"this is": "newer"}})
    attested = ask(server, image)
    assert attested.digests == {manifest.digest for manifest in newer}
    assert fetch(Registry(server.host), REPOSITORY, attested)[SPDX] == {"this is": "newer"}
    listed = {referrer.digest for referrer in list_referrers(Registry(server.host), REPOSITORY, image.digest)}
    assert listed == attested.digests | {theirs.digest}
    if not server.api:
        index = json.loads(server.manifests[REPOSITORY, server.tags[REPOSITORY, tag_of(image)]][1])
        assert index["of"] == "theirs"
        server.put(REPOSITORY, tag_of(image), compact_json({"manifests": [*index["manifests"], strange]}), INDEX_MEDIA)
        assert ask(server, image) == attested


def test_an_earlier_document_that_cannot_be_deleted_is_named() -> None:
    with serving(api=True) as server:
        image = put_image(server, b"an image")
        attest(server, image)
        server.deletes = False
        with refused(RegistryError, "registry-refused", "405") as raised:
            attest(server, image, {**DOCUMENTS, SPDX: {"this is": "newer"}})
        assert "delete it there" in raised.value.remedy
        with refused(RegistryError, "attestation-mismatch", "2 attestations of type application/spdx"):
            ask(server, image)
        server.deletes = True
        attest(server, image, {**DOCUMENTS, SPDX: {"this is": "newer"}})
        ask(server, image)


def forged(manifest: Manifest, **changes: Any) -> Manifest:
    return read_manifest(compact_json({**json.loads(manifest.content), **changes}))


def test_attestations_that_were_swapped_are_refused(server: RegistryDouble, image: Manifest) -> None:
    """Whoever may write to the registry can list what they like; a signature is what they cannot make."""
    other = put_image(server, b"another image")
    of_other = attest(server, other)
    spdx, cyclonedx, provenance = attest(server, image)
    genuine = ask(server, image).digests
    attacks = {
        "one taken away": ((spdx, provenance), "0 attestations of type application/vnd.cyclonedx"),
        "one added": ((forged(spdx, added=1), spdx, cyclonedx, provenance), "2 attestations of type application/spdx"),
        "of another image": ((of_other[0], cyclonedx, provenance), "is about another image"),
        "of no image": ((forged(spdx, subject=None), cyclonedx, provenance), "is about another image"),
        "of another type": (
            (forged(cyclonedx, artifactType=MEDIA_TYPES[SPDX]), cyclonedx, provenance),
            "is not of type application/spdx",
        ),
        "of two documents": (
            (forged(spdx, layers=json.loads(spdx.content)["layers"] * 2), cyclonedx, provenance),
            "is not",
        ),
        "all taken away": ((), "no attestations refer to it"),
    }
    for attack, (manifests, cause) in attacks.items():
        relist(server, image, *manifests)
        with pytest.raises(RegistryError, match=cause):
            pytest.fail(f"{attack}: {ask(server, image)}")
    relist(server, image, forged(spdx, forged=True), cyclonedx, provenance)
    assert ask(server, image).digests != genuine, "so that its signature is asked for, and missing"


def test_bytes_that_are_not_what_their_digest_says_are_refused(server: RegistryDouble, image: Manifest) -> None:
    manifests = attest(server, image)
    attested = ask(server, image)
    digest = attested.documents[CYCLONEDX]
    server.blobs[digest] = b'{"this is": "forged"}'
    with refused(RegistryError, "digest-mismatch"):
        fetch(Registry(server.host), REPOSITORY, attested)
    key = REPOSITORY, manifests[0].digest
    server.manifests[key] = (MANIFEST_MEDIA, forged(manifests[0], forged=True).content)
    with refused(RegistryError, "digest-mismatch"):
        ask(server, image)


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"manifests": 1}', b'{"manifests": ["x"]}'])
def test_a_list_that_is_none_is_an_error(content: bytes) -> None:
    with serving(api=False) as server:
        image = put_image(server, b"an image")
        server.put(REPOSITORY, tag_of(image), content, INDEX_MEDIA)
        with refused(RegistryError, "registry-answer-invalid"):
            ask(server, image)


def test_a_list_without_end_and_one_that_leads_elsewhere_are_given_up() -> None:
    with serving(api=True) as server:
        image = put_image(server, b"an image")
        attest(server, image)
        server.page = 0
        with refused(RegistryError, "registry-answer-invalid"):
            ask(server, image)
        server.page = 2
        server.next_pages = "//x.example"
        with refused(RegistryError, "registry-answer-invalid", "x.example"):
            ask(server, image)


def put_published(server: RegistryDouble) -> Manifest:
    """An image and its attestations as 0.1.0 left them in a registry."""
    layout = Layout(PUBLISHED)
    server.blobs |= {
        sha256_bytes(path.read_bytes()): path.read_bytes() for path in (PUBLISHED / "blobs/sha256").iterdir()
    }
    for name, digest in layout.names().items():
        content = layout.read(digest)
        server.put(REPOSITORY, name.partition(":")[2], content, json.loads(content)["mediaType"])
    return read_manifest(layout.read(layout.names()["cpu:0.1.0-docker"]))


def test_what_0_1_0_published_is_read(server: RegistryDouble) -> None:
    image = put_published(server)
    attested = ask(server, image)
    documents = fetch(Registry(server.host), REPOSITORY, attested)
    assert documents[CYCLONEDX]["bomFormat"] == "CycloneDX" and documents[SPDX]["spdxVersion"] == "SPDX-2.3"
    identity = documents[PROVENANCE]["subject"][0]["digest"]["sha256"]
    assert attested.annotations[IDENTITY] == f"sha256:{identity}"
    tag = Layout(PUBLISHED).names()[f"cpu:{tag_of(image)}.papers"]
    assert attested.digests == {tag}, "which its signature is of"
    manifests = attest(server, image)
    assert ask(server, image).digests == {manifest.digest for manifest in manifests}, (
        "pushed again, it has the new ones"
    )


def test_what_0_1_0_published_and_lost_a_document_is_refused(server: RegistryDouble) -> None:
    image = put_published(server)
    tag = f"{tag_of(image)}.papers"
    papers = json.loads(server.manifests[REPOSITORY, server.tags[REPOSITORY, tag]][1])
    for layers, cause in ((papers["layers"][1:], f"{SPDX} is missing"), (["x"], "not a manifest")):
        server.put(REPOSITORY, tag, compact_json({**papers, "layers": layers}), MANIFEST_MEDIA)
        with pytest.raises(RegistryError, match=cause):
            ask(server, image)
