"""The connection to a registry: questions, tokens, blobs that are what their digests say.

By the OCI distribution specification 1.1 and Docker's token authentication.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from sifmark.errors import ASK_AGAIN, RegistryError
from sifmark.files import sha256_bytes
from sifmark.plan import is_loopback

APIS = {"docker.io": "registry-1.docker.io"}  # Docker Hub's API lives beside its name
PATIENCE = 20  # seconds for one question
MOST = 4 * 1024 * 1024  # bytes of a document, as registries limit manifests


class Registry:
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
            raise RegistryError(f"{self.host}: {_short(error)}", ASK_AGAIN) from None

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
                    raise RegistryError(f"{self.host}/{path}: answers with {answer.status_code}", ASK_AGAIN)
                for block in answer.iter_content(1 << 20):
                    seen.update(block)
                    sink.write(block)
        except requests.RequestException as error:
            raise RegistryError(f"{self.host}/{path}: {_short(error)}", ASK_AGAIN) from None
        if f"sha256:{seen.hexdigest()}" != digest:
            raise RegistryError(f"{self.host}/{path}: what came has digest sha256:{seen.hexdigest()}", ASK_AGAIN)

    def content(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> bytes:
        """A document as it came. Raises RegistryError where there is none."""
        answer = self.get(path, Accept=", ".join(accepted))
        if answer.status_code == 401 and "Authorization" not in self.session.headers:
            self.log_in(answer.headers.get("WWW-Authenticate", ""))
            answer = self.get(path, Accept=", ".join(accepted))
        where = f"{self.host}/{path}"
        if answer.status_code != 200:
            raise RegistryError(f"{where}: answers with {answer.status_code}: {answer.text[:200].strip()}", ASK_AGAIN)
        digest = sha256_bytes(answer.content)
        stated = answer.headers.get("Docker-Content-Digest", digest)
        if len(answer.content) > MOST or stated != digest:
            size = len(answer.content)
            raise RegistryError(f"{where}: {size} bytes came with digest {digest}, not {stated}", ASK_AGAIN)
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
            raise RegistryError(f"{self.host}/{path}: answers with no JSON object: {said!r}", ASK_AGAIN)
        return sha256_bytes(content), document

    def blob(self, repository: str, digest: str) -> Mapping[str, Any]:
        """A JSON document by its digest. Raises RegistryError where it is another."""
        seen, told = self.document(f"{repository}/blobs/{digest}")
        if seen != digest:
            raise RegistryError(f"{self.host}/{repository}: {digest} was asked for, {seen} came", ASK_AGAIN)
        return told

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
            raise RegistryError(f"{self.host}: no token from {realm}: {_short(error)}", ASK_AGAIN) from None
        token = (told.get("token") or told.get("access_token")) if isinstance(told, dict) else None
        if not isinstance(token, str):
            raise RegistryError(f"{self.host}: {realm} gives no token", ASK_AGAIN)
        self.session.headers["Authorization"] = f"Bearer {token}"


def _short(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
