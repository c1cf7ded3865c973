"""What a registry says: whether it answers, and which digests a tag stands for.

By the OCI distribution specification 1.1 and Docker's token authentication, anonymously.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import requests

from sifmark.errors import SifmarkError
from sifmark.files import beside, human_size
from sifmark.plan import is_loopback

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
PLATFORMS = {("linux", "amd64"): "x86_64", ("linux", "arm64"): "aarch64"}  # Go's names and ours
APIS = {"docker.io": "registry-1.docker.io"}  # Docker Hub's API lives beside its name
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PATIENCE = 20  # seconds for one question
MOST = 4 * 1024 * 1024  # bytes of a document, as registries limit manifests
_REMEDY = "is it up, and is the name right? a mirror can be set in sifmark.toml: [mirrors]"


class RegistryError(SifmarkError):
    """A registry that does not answer, or not with what was asked for."""


@dataclass(frozen=True)
class Tagged:
    """What a tag stands for: its own digest, and that of the manifest of each platform."""

    digest: str
    platforms: dict[str, str]


@cache
def unanswered(host: str) -> str | None:
    """None when a registry answers; else why not. Being asked to log in is an answer."""
    try:
        answer = _Registry(host).get("")
    except RegistryError as error:
        return error.cause
    known = answer.status_code == 200 or (
        answer.status_code in (401, 403) and "registry" in str(answer.headers).lower()
    )
    return None if known else f"{host}: answers with {answer.status_code}"


def resolve(address: str, tag: str) -> Tagged:
    """Ask what a tag of `registry/repository` stands for now. Raises RegistryError.

    A digest is computed of the bytes that came, never taken from a header.
    """
    host, _, repository = address.partition("/")
    registry = _Registry(host)
    digest, document = registry.document(f"{repository}/manifests/{tag}", INDEXES + MANIFESTS)
    if "manifests" in document:
        listed = document["manifests"] if isinstance(document["manifests"], list) else []
        return Tagged(digest, {name: found for name, found in map(_listed, listed) if name})
    configuration = document.get("config")
    blob = configuration.get("digest") if isinstance(configuration, dict) else None
    if not isinstance(blob, str) or DIGEST.fullmatch(blob) is None:
        raise RegistryError(f"{address}:{tag}: what came is no manifest of an image", _REMEDY)
    seen, told = registry.document(f"{repository}/blobs/{blob}")
    if seen != blob:
        raise RegistryError(f"{address}:{tag}: its configuration is {seen}, the manifest says {blob}", _REMEDY)
    platform = PLATFORMS.get((str(told.get("os")), str(told.get("architecture"))))
    return Tagged(digest, {platform: digest} if platform else {})


def weigh(address: str, digest: str, platform: str) -> int:
    """Bytes of the packed layers of an image. Raises RegistryError; at once where the registry was silent before."""
    host, _, repository = address.partition("/")
    if why := unanswered(host):
        raise RegistryError(why, _REMEDY)
    manifest = _manifest(_Registry(host), repository, digest, platform)
    return sum(size for _, size in manifest.parts[1:])


def fetch_image(
    address: str, digest: str, platform: str, blobs: Path, tell: Callable[[str], None]
) -> tuple[dict[str, Any], int]:
    """Fetch an image for a platform into a folder, each blob under its hash; what is there is kept.

    `digest` may be of a manifest or of a list of platforms. The manifest's descriptor, and bytes of all. Raises
    RegistryError.
    """
    host, _, repository = address.partition("/")
    registry = _Registry(host)
    manifest = _manifest(registry, repository, digest, platform)
    for number, (name, size) in enumerate(manifest.parts, start=1):
        target = blobs / name.removeprefix("sha256:")
        if not target.is_file():
            tell(f"{number} of {len(manifest.parts)}, {human_size(size)}")
            with beside(target) as draft:
                registry.download(f"{repository}/blobs/{name}", name, draft)
    for name, content in manifest.documents.items():
        with beside(blobs / name.removeprefix("sha256:")) as draft:
            draft.write_bytes(content)
    return manifest.descriptor, sum(size for _, size in manifest.parts)


@dataclass(frozen=True)
class _Manifest:
    """An image's manifest: its descriptor, the documents that lead to it, and its parts, configuration first."""

    descriptor: dict[str, Any]
    documents: dict[str, bytes]  # by digest, as they came
    parts: list[tuple[str, int]]  # digest and bytes


def _manifest(registry: "_Registry", repository: str, digest: str, platform: str) -> _Manifest:
    """Ask for what a digest names, by way of a list of platforms if it names one. Raises RegistryError."""
    where = f"{registry.host}/{repository}@{digest}"
    documents: dict[str, bytes] = {}
    try:
        told, wanted = _named(registry, repository, digest, documents), digest
        if "manifests" in told:
            wanted = dict(_listed(entry) for entry in told["manifests"])[platform]
            told = _named(registry, repository, wanted, documents)
        parts = [(str(part["digest"]), int(part["size"])) for part in (told["config"], *told["layers"])]
    except (ValueError, KeyError, TypeError) as error:
        raise RegistryError(f"{where}: what came is no manifest of an image for {platform}", _REMEDY) from error
    if not all(DIGEST.fullmatch(name) for name, _ in parts):
        raise RegistryError(f"{where}: its manifest names parts that are no digests", _REMEDY)
    media = str(told.get("mediaType", MANIFESTS[0]))
    descriptor = {"mediaType": media, "digest": wanted, "size": len(documents[wanted])}
    return _Manifest(descriptor, documents, parts)


def _named(registry: "_Registry", repository: str, digest: str, documents: dict[str, bytes]) -> Any:
    content = registry.content(f"{repository}/manifests/{digest}", INDEXES + MANIFESTS)
    if _digest(content) != digest:
        raise RegistryError(f"{registry.host}/{repository}@{digest}: what came has digest {_digest(content)}", _REMEDY)
    documents[digest] = content
    return json.loads(content)


class _Registry:
    """One registry, asked as nobody; with the token that it hands out to everybody."""

    def __init__(self, host: str) -> None:
        self.host, plain = host, is_loopback(host)
        self.base = f"{'http' if plain else 'https'}://{APIS.get(host, host)}/v2/"
        self.session = requests.Session()
        self.session.trust_env = not plain  # a proxy leads out of this machine, and never to its own loopback address

    def get(self, path: str, **headers: str) -> requests.Response:
        """Raises RegistryError where nothing answers."""
        try:
            return self.session.get(self.base + path, headers=headers, timeout=PATIENCE)
        except requests.RequestException as error:
            raise RegistryError(f"{self.host}: {_short(error)}", _REMEDY) from None

    def download(self, path: str, digest: str, target: Path, again: bool = True) -> None:
        """Write a blob to a file. Raises RegistryError where it is not what its digest says."""
        seen = hashlib.sha256()
        try:
            with self.session.get(self.base + path, stream=True, timeout=PATIENCE) as answer, target.open("wb") as sink:
                if answer.status_code == 401 and again:  # a token lasts minutes, a large image longer
                    self.log_in(answer.headers.get("WWW-Authenticate", ""))
                    self.download(path, digest, target, again=False)
                    return
                if answer.status_code != 200:
                    raise RegistryError(f"{self.host}/{path}: answers with {answer.status_code}", _REMEDY)
                for block in answer.iter_content(1 << 20):
                    seen.update(block)
                    sink.write(block)
        except requests.RequestException as error:
            raise RegistryError(f"{self.host}/{path}: {_short(error)}", _REMEDY) from None
        if f"sha256:{seen.hexdigest()}" != digest:
            raise RegistryError(f"{self.host}/{path}: what came has digest sha256:{seen.hexdigest()}", _REMEDY)

    def content(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> bytes:
        """A document as it came. Raises RegistryError where there is none."""
        answer = self.get(path, Accept=", ".join(accepted))
        if answer.status_code == 401 and "Authorization" not in self.session.headers:
            self.log_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self.get(path, Accept=", ".join(accepted))
        where = f"{self.host}/{path}"
        if answer.status_code != 200:
            raise RegistryError(f"{where}: answers with {answer.status_code}: {answer.text[:200].strip()}", _REMEDY)
        digest = _digest(answer.content)
        stated = answer.headers.get("Docker-Content-Digest", digest)
        if len(answer.content) > MOST or stated != digest:
            size = len(answer.content)
            raise RegistryError(f"{where}: {size} bytes came with digest {digest}, not {stated}", _REMEDY)
        return answer.content

    def document(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> tuple[str, Mapping[str, Any]]:
        """Digest and content of a JSON document. Raises RegistryError where there is none."""
        content = self.content(path, accepted)
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            said = content[:100].decode(errors="replace").strip()
            raise RegistryError(f"{self.host}/{path}: answers with no JSON object: {said!r}", _REMEDY)
        return _digest(content), document

    def log_in(self, challenge: str) -> None:
        """Take the token that is for everybody. Raises RegistryError where there is none."""
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = fields.get("realm", "")
        if not challenge.lower().startswith("bearer ") or not realm.startswith(("https://", self.base[:7])):
            raise RegistryError(f"{self.host}: it asks for a password", "log in is not supported: set a mirror")
        asked = {key: fields[key] for key in ("service", "scope") if key in fields}
        try:
            told = self.session.get(realm, params=asked, timeout=PATIENCE).json()
        except (requests.RequestException, ValueError) as error:
            raise RegistryError(f"{self.host}: no token from {realm}: {_short(error)}", _REMEDY) from None
        token = (told.get("token") or told.get("access_token")) if isinstance(told, dict) else None
        if not isinstance(token, str):
            raise RegistryError(f"{self.host}: {realm} gives no token", _REMEDY)
        self.session.headers["Authorization"] = f"Bearer {token}"


def _listed(entry: Any) -> tuple[str | None, str]:
    """Platform and digest of an entry of an index."""
    told = entry.get("platform") if isinstance(entry, dict) else None
    if not isinstance(told, dict):
        return None, ""
    platform = PLATFORMS.get((str(told.get("os")), str(told.get("architecture"))))
    digest = str(entry.get("digest"))
    return (platform, digest) if DIGEST.fullmatch(digest) else (None, "")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _short(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
