"""The connection to a registry: questions, tokens, blobs that are what their digests say, up and down.

By the OCI distribution specification 1.1 and Docker's token authentication. Whoever logged in by `docker login` or
`apptainer registry login` is known; nothing of a password or token is ever told.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from sifmark.core.errors import REGISTRY_REMEDY, RegistryError, SifmarkError
from sifmark.core.files import human_size, sha256_bytes
from sifmark.oci.credentials import Login, login_for
from sifmark.oci.reference import MAX_DOCUMENT_SIZE, is_loopback

APIS = {"docker.io": "registry-1.docker.io"}  # Docker Hub's API lives beside its name
PATIENCE = 20  # seconds for one question
SETTLING = 600  # seconds for what a registry does with a blob after its last byte: some copy it to another store
LONGEST = 120.0  # seconds from the first to the last byte of a document
LONGEST_PAUSE = 60.0  # seconds that a busy registry may ask us to wait
ATTEMPTS = 5  # at what moves an image; a pause of seconds between them, doubled each time
SLOWEST, FOR_SECONDS = 1024, 30.0  # bytes a second on average over so long: less is taken for a dead connection
_BUSY = (429, 500, 502, 503, 504)
# Also what a write may hear while another publisher writes the same: a blob or an upload that is unknown just now.
_UNSETTLED = (400, 404, *_BUSY)
Written = TypeVar("Written")
_MEANINGS = {
    401: ("it asks for another login than there is here", "log in: docker login HOST, or apptainer registry login"),
    403: ("it forbids this", "may this login write there? log in as who may: docker login HOST"),
    404: ("it has no such thing", "is the name right, and was it pushed? inv catalog lists what is there"),
    429: ("it is asked too often", "wait, or log in: registries allow more to those they know"),
    507: ("its disk is full", "free space there, or push elsewhere"),
}


class _UnsettledError(RegistryError):
    """A write that may well succeed when it is begun anew."""


@dataclass(frozen=True)
class RegistryResponse:
    """What a registry said, all of it."""

    url: str
    status_code: int
    headers: Mapping[str, str]
    content: bytes


class _CappedRetry(Retry):
    """Waits as long as a busy registry asks, but not for ever."""

    def get_retry_after(self, response: Any) -> float | None:
        """Seconds."""
        told = super().get_retry_after(response)
        return None if told is None else min(told, LONGEST_PAUSE)


class _Session(requests.Session):
    """Without the logins of ~/.netrc, which would take the place of a registry's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _as_it_is  # with none, ~/.netrc is asked

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """A redirect to another host takes no login along."""
        urls = response.request.url, prepared_request.url
        if self.should_strip_auth(*urls):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


class Registry:
    """One registry. Questions are asked once; with more `attempts` a busy or broken one is asked again."""

    def __init__(self, host: str, attempts: int = 1) -> None:
        self.host, self.attempts, plain = host, attempts, is_loopback(host)
        self.base = f"{'http' if plain else 'https'}://{APIS.get(host, host)}/v2/"
        self.session = _Session()
        self.session.trust_env = not plain  # a proxy leads out of this machine, and never to its own loopback address
        again = _CappedRetry(
            total=attempts - 1,
            backoff_factor=0.5,
            status_forcelist=_BUSY,
            allowed_methods=("GET", "HEAD", "POST"),  # a PUT ends its upload, also where no answer comes
            raise_on_status=False,
            respect_retry_after_header=True,
        )
        for scheme in ("http://", "https://"):  # those that a redirect leads to, and who gives tokens, are busy too
            self.session.mount(scheme, HTTPAdapter(max_retries=again))

    def ask(self, method: str, path: str, again: bool = True, **options: Any) -> RegistryResponse:
        """Ask, as whoever is logged in where that is wanted. Raises RegistryError where no document answers."""
        with self.send(method, path, again, **options) as response:
            return self.whole(response)

    def whole(self, response: requests.Response) -> RegistryResponse:
        """All of an answer. Raises RegistryError where that is more than a document, or breaks, or comes too slowly."""
        try:
            content = _document(response)
        except (requests.RequestException, HTTPError) as error:
            raise RegistryError(f"{self.host}: {_short(error)}", REGISTRY_REMEDY) from None
        return RegistryResponse(response.url, response.status_code, response.headers, content)

    def send(self, method: str, path: str, again: bool = True, **options: Any) -> requests.Response:
        """The same, with the content still to come, however much it is."""
        settled = {"timeout": PATIENCE, **options, "stream": True}
        try:
            answer = self.session.request(method, urljoin(self.base, path), **settled)
        except (requests.RequestException, ValueError) as error:  # the latter for addresses and dates that are none
            raise RegistryError(f"{self.host}: {_short(error)}", REGISTRY_REMEDY) from None
        if answer.status_code == 401 and again:
            answer.close()
            self.log_in(answer.headers.get("WWW-Authenticate", ""))
            _rewind(options.get("data"))
            return self.send(method, path, again=False, **options)
        return answer

    def get(self, path: str, **headers: str) -> RegistryResponse:
        """Ask without logging in. Raises RegistryError where nothing answers."""
        return self.ask("GET", path, again=False, headers=headers)

    def download(
        self, path: str, digest: str, size: int, target: Path, tell: Callable[[int], None] | None = None
    ) -> None:
        """Write a blob of so many bytes to a file; after a cut it goes on where it stood.

        Raises RegistryError for any other bytes, and at once for more; SifmarkError where they cannot be written.
        """
        arrival = _Download(self, path, size, tell or _ignore)
        try:
            with target.open("wb") as sink:
                self._receive(arrival, sink, path)
        except OSError as error:  # a full disk and the like, which does not say where
            told = f"{target.parent}: {error.strerror}, with {human_size(arrival.size)} of {human_size(size)} written"
            raise SifmarkError(told, "free space there (inv clean), or name another folder: dist, or TMPDIR") from error
        if arrival.digest != digest:
            raise RegistryError(f"{self.host}/{path}: what came has digest {arrival.digest}", REGISTRY_REMEDY)

    def _receive(self, arrival: "_Download", sink: BinaryIO, path: str) -> None:
        for attempt in range(1, self.attempts + 1):
            try:
                arrival.receive(sink)
                break
            except (requests.RequestException, HTTPError, ValueError) as error:
                if attempt == self.attempts:
                    told = f"the connection broke {attempt} times, last after {arrival.size} bytes: {_short(error)}"
                    raise RegistryError(f"{self.host}/{path}: {told}", REGISTRY_REMEDY) from None
                time.sleep(_pause(attempt))

    def content(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> bytes:
        """A document as it came. Raises RegistryError where there is none."""
        answer = self.expect(self.ask("GET", path, headers={"Accept": ", ".join(accepted)}), 200)
        where, digest = f"{self.host}/{path}", sha256_bytes(answer.content)
        stated = answer.headers.get("Docker-Content-Digest", digest)
        if stated != digest:
            size = len(answer.content)
            raise RegistryError(f"{where}: {size} bytes came with digest {digest}, not {stated}", REGISTRY_REMEDY)
        return answer.content

    def document(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> tuple[str, Mapping[str, Any]]:
        """Digest and content of a JSON document. Raises RegistryError where there is none."""
        content = self.content(path, accepted)
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            said = content[:100].decode(errors="replace").strip()
            raise RegistryError(f"{self.host}/{path}: answers with no JSON object: {said!r}", REGISTRY_REMEDY)
        return sha256_bytes(content), document

    def blob(self, repository: str, digest: str) -> Mapping[str, Any]:
        """A JSON document by its digest. Raises RegistryError where it is another."""
        seen, told = self.document(f"{repository}/blobs/{digest}")
        if seen != digest:
            raise RegistryError(f"{self.host}/{repository}: {digest} was asked for, {seen} came", REGISTRY_REMEDY)
        return told

    def upload(self, repository: str, digest: str, content: bytes | Path, origin: str | None = None) -> bool:
        """Put a blob into a repository, unless it is there; whether anything was sent.

        Where `origin` is a repository of this registry that has it, it is only linked. Raises RegistryError.
        """
        return self._anew(lambda: self._upload(repository, digest, content, origin))

    def tag(self, repository: str, tag: str, manifest: bytes, media: str) -> None:
        """Let a tag stand for a manifest. Raises RegistryError where it does not afterwards."""
        place, headers = f"{repository}/manifests/{tag}", {"Content-Type": media}
        self._anew(lambda: self._put(place, data=manifest, headers=headers))

    def _anew(self, write: Callable[[], Written]) -> Written:
        """What a write gives; one that came to nothing is begun anew from its first request."""
        for attempt in range(1, self.attempts):
            with suppress(_UnsettledError):
                return write()
            time.sleep(_pause(attempt))
        return write()

    def _upload(self, repository: str, digest: str, content: bytes | Path, origin: str | None) -> bool:
        if self.ask("HEAD", f"{repository}/blobs/{digest}").status_code == 200:
            return False
        asked = {"mount": digest, "from": origin} if origin else {}
        started = self.ask("POST", f"{repository}/blobs/uploads/", params=asked)
        if started.status_code == 201:
            return False
        place = urljoin(self.base, self.expect(started, 202).headers.get("Location", ""))
        if urlsplit(place)[:2] != urlsplit(self.base)[:2]:  # our token is for this registry alone
            raise RegistryError(f"{self.host}: it wants the upload to go to {urlsplit(place).netloc}", REGISTRY_REMEDY)
        headers = {"Content-Type": "application/octet-stream"}
        with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
            self._put(place, params={"digest": digest}, data=stream, headers=headers, timeout=(PATIENCE, SETTLING))
        return True

    def _put(self, place: str, **options: Any) -> None:
        try:
            answer = self.ask("PUT", place, **options)
        except RegistryError as error:
            raise _UnsettledError(error.cause, error.remedy) from None
        try:
            self.expect(answer, 201)
        except RegistryError as error:
            unsettled = answer.status_code in _UNSETTLED
            raise _UnsettledError(error.cause, error.remedy) if unsettled else error from None

    def expect(self, answer: RegistryResponse, status: int) -> RegistryResponse:
        """The answer, where its status is as it should be. Raises RegistryError that says what another one means."""
        if answer.status_code == status:
            return answer
        meaning, remedy = _MEANINGS.get(answer.status_code, ("", REGISTRY_REMEDY))
        place = answer.url.partition("?")[0]
        where = f"{self.host}/{place.removeprefix(self.base)}" if place.startswith(self.base) else place
        told = f"{where}: answers with {answer.status_code}{f', {meaning}' if meaning else ''}"
        said = answer.content[:200].decode(errors="replace").strip()
        raise RegistryError(f"{told}: {said}" if said else told, remedy.replace("HOST", self.host), answer.status_code)

    def log_in(self, challenge: str) -> None:
        """Take a token, as whoever is logged in or as everybody, or use a password. Raises RegistryError."""
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm, kind = fields.get("realm", ""), challenge.lower().partition(" ")[0]
        login, remedy = self._login.secret, _MEANINGS[401][1].replace("HOST", self.host)
        remedy += f". One did not read: {self._login.unread}" if self._login.unread else ""
        if kind == "basic" and isinstance(login, tuple):
            self.session.auth = login
            return
        if kind != "bearer" or not realm.startswith(("https://", self.base[:7])):
            raise RegistryError(f"{self.host}: it asks for a password", remedy, 401)
        asked = {key: fields[key] for key in ("service", "scope") if key in fields}
        if isinstance(login, str):
            granted = {"grant_type": "refresh_token", "client_id": "sifmark", "refresh_token": login, **asked}
            asking: dict[str, Any] = {"method": "POST", "data": granted}
        else:
            asking = {"method": "GET", "params": asked, "auth": login}
        # An older token goes to the registry alone.
        headers = {"Authorization": None}
        try:
            with self.session.request(url=realm, headers=headers, timeout=PATIENCE, stream=True, **asking) as response:
                answer = self.whole(response)
            if answer.status_code in _BUSY:
                self.expect(answer, 200)
            told = json.loads(answer.content)
        except (requests.RequestException, ValueError, RecursionError) as error:
            raise RegistryError(f"{self.host}: no token from {realm}: {_short(error)}", REGISTRY_REMEDY) from None
        token = (told.get("token") or told.get("access_token")) if isinstance(told, dict) else None
        if not isinstance(token, str):
            raise RegistryError(f"{self.host}: {realm} gives no token", remedy, 401)
        self.session.headers["Authorization"] = f"Bearer {token}"

    @cached_property
    def _login(self) -> Login:
        return login_for(self.host)


class _Download:
    """A blob on its way: what came so far, and the hash of it."""

    def __init__(self, registry: Registry, path: str, most: int, tell: Callable[[int], None]) -> None:
        self._registry, self._path, self._most, self._tell = registry, path, most, tell
        self._hash, self.size = hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of what came."""
        return f"sha256:{self._hash.hexdigest()}"

    def receive(self, sink: BinaryIO) -> None:
        """Ask for the rest, and write it. Raises RequestException or HTTPError where it does not come.

        Raises RegistryError where more comes.
        """
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={self.size}-"} if self.size else {})}
        with self._registry.send("GET", self._path, headers=headers) as answer:
            if answer.status_code != 206:
                if answer.status_code != 200:
                    self._registry.expect(self._registry.whole(answer), 200)
                self._hash, self.size = hashlib.sha256(), 0
                sink.seek(0)
                sink.truncate()
            began, expected = self.size, answer.headers.get("Content-Length")
            since, size_then = time.monotonic(), self.size
            while block := answer.raw.read1(1 << 20):
                self.size += len(block)
                if self.size > self._most:
                    where = f"{self._registry.host}/{self._path}"
                    raise RegistryError(f"{where}: more came than the {self._most} bytes announced", REGISTRY_REMEDY)
                self._hash.update(block)
                sink.write(block)
                self._tell(self.size)
                if (now := time.monotonic()) - since >= FOR_SECONDS:
                    if self.size - size_then < SLOWEST * (now - since):
                        raise requests.Timeout(f"less than {SLOWEST} bytes a second came for {now - since:.0f} s")
                    since, size_then = now, self.size
            if expected is not None and self.size - began < int(expected):
                raise requests.ConnectionError(f"the connection ended {int(expected) - self.size + began} bytes early")


def _document(response: requests.Response) -> bytes:
    """The content of an answer. Raises RequestException or HTTPError for too much, too slow, or broken off."""
    began, content = time.monotonic(), bytearray()
    while block := response.raw.read1(1 << 16, decode_content=True):
        content += block
        if len(content) > MAX_DOCUMENT_SIZE:
            raise requests.RequestException(f"more than {human_size(MAX_DOCUMENT_SIZE)} came for a document")
        if time.monotonic() - began > LONGEST:
            raise requests.Timeout(f"{len(content)} bytes of a document came in {LONGEST:.0f} s, and no end")
    return bytes(content)


def _pause(attempt: int) -> float:
    return 0.5 * 2.0 ** (attempt - 1)  # seconds


def _rewind(data: Any) -> None:
    if hasattr(data, "seek"):
        data.seek(0)


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _ignore(_size: int) -> None:
    pass


def _short(error: Exception) -> str:
    """What happened, without the addresses that requests and urllib3 wrap around it."""
    inner = error.args[0] if error.args else None
    cause = getattr(inner, "reason", inner)
    told = cause if isinstance(cause, Exception) else error
    return str(told)[:200] or type(told).__name__
