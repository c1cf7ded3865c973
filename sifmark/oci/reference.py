"""The terms of registries: media types, platforms, digests and addresses."""

import re

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
PLATFORMS = {("linux", "amd64"): "x86_64", ("linux", "arm64"): "aarch64"}  # from Go's names to those of `uname -m`
MAX_DOCUMENT_SIZE = 4 * 1024 * 1024  # bytes of a document, as registries limit manifests
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def is_loopback(address: str) -> bool:
    """Return whether an address is of this host itself, where plain HTTP is used."""
    return address.partition("/")[0].partition(":")[0] in ("127.0.0.1", "localhost")
