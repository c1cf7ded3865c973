"""Manifests, indexes and descriptors, and the terms in them: the only reader and writer of these documents.

By the OCI image specification 1.1: github.com/opencontainers/image-spec, manifest.md, image-index.md, descriptor.md.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sifmark.core.files import compact_json, sha256_bytes

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
PLATFORMS = {("linux", "amd64"): "x86_64", ("linux", "arm64"): "aarch64"}  # from Go's names to those of `uname -m`
MAX_DOCUMENT_SIZE = 4 * 1024 * 1024  # bytes of a document, as registries limit manifests
LARGEST_SIZE = (1 << 63) - 1  # bytes: the specification has 64-bit numbers, JSON any
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MANIFEST_MEDIA, INDEX_MEDIA = MANIFESTS[0], INDEXES[0]
EMPTY, EMPTY_MEDIA = b"{}", "application/vnd.oci.empty.v1+json"  # the configuration of a manifest that is not an image
TITLE = "org.opencontainers.image.title"  # annotation: a file name


def is_loopback(address: str) -> bool:
    """Return whether an address is of this host itself, where plain HTTP is used."""
    return address.partition("/")[0].partition(":")[0] in ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Descriptor:
    """Names content by its digest, with its media type and its size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the descriptor as manifests and indexes hold it."""
        more = {"artifactType": self.artifact_type, "annotations": dict(self.annotations)}
        required = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        return required | {key: value for key, value in more.items() if value}


@dataclass(frozen=True)
class Manifest:
    """A manifest, and its exact bytes."""

    content: bytes
    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    artifact_type: str
    subject: Descriptor | None
    annotations: dict[str, str]

    @property
    def digest(self) -> str:
        """The digest of the manifest, computed from its bytes."""
        return sha256_bytes(self.content)

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of this manifest, with what lists of referrers repeat of it."""
        kind = self.artifact_type or self.config.media_type
        return Descriptor(self.media_type, self.digest, len(self.content), kind, self.annotations)


def descriptor_of(media_type: str, content: bytes, annotations: Mapping[str, str] | None = None) -> Descriptor:
    """Return the descriptor of some content."""
    return Descriptor(media_type, sha256_bytes(content), len(content), annotations=annotations or {})


def write_manifest(
    config: Descriptor,
    layers: Sequence[Descriptor],
    annotations: Mapping[str, str] | None = None,
    artifact_type: str = "",
    subject: Descriptor | None = None,
) -> Manifest:
    """Return a manifest of these parts: the same parts, the same bytes."""
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA,
        "config": config.document(),
        "layers": [layer.document() for layer in layers],
    }
    if annotations is not None:
        document["annotations"] = dict(annotations)
    if artifact_type:
        document["artifactType"] = artifact_type
    if subject is not None:
        document["subject"] = Descriptor(subject.media_type, subject.digest, subject.size).document()
    return read_manifest(compact_json(document))


def read_manifest(content: bytes) -> Manifest:
    """Return the parsed manifest. Raises ValueError if it is not one."""
    document = read_object(content)
    subject = document.get("subject")
    layers = document.get("layers")
    if not isinstance(layers, list):
        raise ValueError("it has no list of layers")
    return Manifest(
        content,
        _text(document, "mediaType", MANIFEST_MEDIA),
        read_descriptor(document.get("config")),
        tuple(map(read_descriptor, layers)),
        _text(document, "artifactType"),
        None if subject is None else read_descriptor(subject),
        _annotations(document),
    )


def read_index(content: bytes) -> dict[str, Any]:
    """Return an index unchanged, including what others wrote there. Raises ValueError if it is not one."""
    document = read_object(content)
    entries = document.get("manifests")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("it has no list of manifests")
    return document


def read_descriptor(document: Any) -> Descriptor:
    """Return a parsed descriptor. Raises ValueError if it is not one."""
    if not isinstance(document, dict):
        raise ValueError("what should be a descriptor is none")
    digest, size = _text(document, "digest"), document.get("size")
    if DIGEST.fullmatch(digest) is None:
        raise ValueError(f"{digest!r:.100} is no digest")
    if type(size) is not int or not 0 <= size <= LARGEST_SIZE:
        raise ValueError(f"the size of {digest} is none")
    return Descriptor(
        _text(document, "mediaType"), digest, size, _text(document, "artifactType"), _annotations(document)
    )


def read_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError for anything else."""
    try:
        document = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _annotations(document: Mapping[str, Any]) -> dict[str, str]:
    annotations = document.get("annotations") or {}
    if not isinstance(annotations, dict):
        raise ValueError("its annotations are no JSON object")
    "".join(annotations).encode()
    return {key: _text(annotations, key) for key in annotations}


def _text(document: Mapping[str, Any], key: str, absent: str = "") -> str:
    """Return the text of a field. Raises ValueError if it is something else, or has halves of characters."""
    value = document.get(key, absent)
    if not isinstance(value, str):
        raise ValueError(f"its {key!r:.100} is no text")
    value.encode()
    return value
