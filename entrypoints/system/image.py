"""The build's description of this image, and the digest of the file that ran."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Callable, Mapping, Sequence

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
PATH = os.path.join(_ROOT, "image.json")
OUTSIDE = ("pytorch", "cpu")  # framework and device of a checkout
ABSENT = "not run from an image: there is no image.json beside the entrypoints"
RECORD_VARIABLE = "SIFMARK_IMAGE"  # what `sifmark run` knows of the image before it starts, as JSON
_STARTED = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")  # variables with the path of the image file on the host
_MAGIC, _MAGIC_AT = b"SIF_MAGIC\0", 32
_BLOCK = 1 << 20  # bytes
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def read() -> Mapping[str, Any] | None:
    """Return the build's description of this image, or None in a checkout (`ABSENT` is the reason)."""
    if not os.path.isfile(PATH):
        return None
    with open(PATH, encoding="utf-8") as stream:
        image: Mapping[str, Any] = json.load(stream)
    return image


def other_python(version: Sequence[int] = sys.version_info[:2]) -> tuple[str, str] | None:
    """Return why this is not the Python that the image was built for, and a remedy; None if it is."""
    built = read()
    running = "{}.{}".format(*version)
    if built is None or built["python"] == running:
        return None
    return (
        f"this image is built for Python {built['python']}, and {sys.executable} is {running}",
        f"correct base.python and base.interpreter in recipes/{built['recipe']}.toml, and build again",
    )


def target(image: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return framework and device of an image, or of a checkout."""
    return (image["framework"], image["device"]) if image else OUTSIDE


def file_of(image: Mapping[str, Any], environ: Mapping[str, str], stop: Callable[[], object]) -> dict[str, Any]:
    """Return ID and digest of what ran, its signer, and who checked that: `provenance.image.file` of a result.

    `sifmark run` passes them on. Otherwise the file is read here if the runtime shows it, unless `stop` gives an order.
    """
    if RECORD_VARIABLE in environ:
        return _from_record(environ[RECORD_VARIABLE], image["build_key"])
    paths = [environ[name] for name in _STARTED if name in environ]
    if not paths:
        return _unknown("this runtime does not show where the image is; start it with sifmark run")
    try:
        digest = _digest(paths[0], stop)
    except (OSError, ValueError):
        return _unknown("its file is not visible from inside; start it with sifmark run")
    if digest is None:
        return _unknown("the run was interrupted before its file was read; sifmark run reads it before the start")
    return {**_unknown("the whole file was read, not its contents"), "digest": digest, "seen_by": "entrypoint"}


def binding_hint(path: object, environ: Mapping[str, str] = os.environ) -> str:
    """Return how to show an image's container a path of the host, to follow a remedy; empty outside of images."""
    if not os.path.isfile(PATH):
        return ""
    if any(name in environ for name in _STARTED):
        return f"; if it exists on the host, show it to the container: apptainer run --bind {path} IMAGE"
    if os.path.exists("/.dockerenv"):
        return f"; if it exists on the host, show it to the container: docker run --volume {path}:{path} IMAGE"
    return ""


def folder_outlives_container(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the current folder is the host's: in Docker it is the container's own, unless it is mounted."""
    return not os.path.isfile(PATH) or any(name in environ for name in _STARTED)


def _unknown(reason: str) -> dict[str, Any]:
    return {"identity": None, "digest": None, "signer": None, "seen_by": None, "reason": reason}


def _from_record(text: str, build_key: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
        key, signer = record["build_key"], record["signer"]
        digests = {name: record[name] for name in ("identity", "digest")}
        if not all(map(_DIGEST.fullmatch, digests.values())) or not isinstance(signer, (str, type(None))):
            raise ValueError("not of its form")
    except (ValueError, KeyError, TypeError):
        return _unknown(f"{RECORD_VARIABLE} does not read")
    if key != build_key:
        return _unknown(f"{RECORD_VARIABLE} describes another image")
    facts = {**digests, "signer": signer or None, "seen_by": "sifmark run"}
    return facts if signer else {**facts, "reason": "it bears no signature of a key that the site trusts"}


_digests: dict[str, str] = {}  # of files that this process has read: a series has many runs


def _digest(path: str, stop: Callable[[], object]) -> str | None:
    """Return `sha256:<hex>` of a SIF, None after an order to stop. Raises OSError, and ValueError for other files."""
    if path in _digests:
        return _digests[path]
    import hashlib  # here: listing the workloads should not import OpenSSL

    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        if stream.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] != _MAGIC:
            raise ValueError(f"{path} is no SIF")
        stream.seek(0)
        while not stop():
            block = stream.read(_BLOCK)
            if not block:
                _digests[path] = f"sha256:{digest.hexdigest()}"
                return _digests[path]
            digest.update(block)
    return None
