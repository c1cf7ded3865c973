"""The connection to a registry: requests, tokens, and verified blobs, down and up.

By the OCI distribution specification 1.1 and Docker's token authentication. Logins are those of `docker login` and
`apptainer registry login`; a password or token is never printed.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit

import requests
from requests.utils import parse_header_links
from urllib3.exceptions import HTTPError

from sifmark.core.errors import REGISTRY_REMEDY, RegistryError, SifmarkError
from sifmark.core.files import human_size, read_once, sha256_bytes
from sifmark.oci.manifest import is_loopback, read_object
from sifmark.oci.transport import (
    Login,
    RegistryResponse,
    Result,
    Session,
    TransientError,
    cause_of,
    excerpt_of,
    is_protected,
    login_for,
    read_document,
    requested_pause,
    within,
)

APIS = {"docker.io": "registry-1.docker.io"}  # Docker Hub's API has another host
PATIENCE = 20  # seconds for one request
SETTLING = 600  # seconds for what a registry does with a blob after its last byte: some copy it to another store
ATTEMPTS = 5  # at transfers of images; a pause of seconds between them, doubled each time
SLOWEST, FOR_SECONDS = 16 * 1024, 30.0  # bytes a second on average over so long: a slower connection counts as dead
LONGEST = 120.0  # seconds until an answer begins, and then until a document ends
_BUSY = (429, 500, 502, 503, 504)
# Also the answers to a write while another publisher writes the same: a blob or an upload is unknown for a moment.
_UNSETTLED = (400, 404, *_BUSY)
_MEANINGS = {
    401: ("it asks for another login than there is here", "log in: docker login HOST, or apptainer registry login"),
    403: ("it forbids this", "may this login write there? log in as who may: docker login HOST"),
    404: ("it has no such image", "check name and tag; list the images: sifmark registry.list --registry HOST/PATH"),
    429: ("it is asked too often", "wait, or log in: registries allow more to those they know"),
    507: ("its disk is full", "free space there, or push elsewhere"),
}


def ignore(_size: int) -> None:
    """Report nothing."""


class Registry:
    """One registry. With more `attempts`, requests are repeated if it is busy or the connection breaks."""

    def __init__(self, host: str, attempts: int = 1) -> None:
        self.host, self.attempts, plain = host, attempts, is_loopback(host)
        self.base = f"{'http' if plain else 'https'}://{APIS.get(host, host)}/v2/"
        self._granting: dict[str, str] = {}  # by scope the first challenge that led to a token
        self._scope = ""  # of the last token
        self.session = Session()
        self.session.trust_env = not plain  # a proxy leads out of this machine, never to a loopback address

    def request(self, method: str, path: str, authenticate: bool = True, **options: Any) -> RegistryResponse:
        """Send a request, logged in if required, and return the answer. Raises RegistryError if no document comes."""
        return self.read_all(self.send(method, path, authenticate, **options))

    def read_all(self, response: requests.Response) -> RegistryResponse:
        """Return a complete answer, and close it. Raises RegistryError if it is larger than a document, breaks off, or
        is too slow."""
        try:
            content = within(LONGEST, partial(read_document, response))
        except (requests.RequestException, HTTPError) as error:
            raise RegistryError(
                f"{self.host}: {cause_of(error)}", REGISTRY_REMEDY, code="registry-unreachable"
            ) from None
        return RegistryResponse(response.url, response.status_code, response.headers, content)

    def send(self, method: str, path: str, authenticate: bool = True, **options: Any) -> requests.Response:
        """Send a request and return the answer with its content still to be read, of any size."""
        settled = {"timeout": PATIENCE, **options, "stream": True}
        attempt = partial(self._attempt, method, urljoin(self.base, path), settled)
        # A PUT ends its upload, even without an answer, so it is not repeated here: the caller starts a new upload.
        answer = attempt(True) if method == "PUT" else self._retry(attempt)
        if answer.status_code == 401 and authenticate and self._is_own(answer):
            answer.close()
            self.log_in(answer.headers.get("WWW-Authenticate", ""))
            _rewind(options.get("data"))
            return self.send(method, path, authenticate=False, **options)
        return answer

    def _is_own(self, answer: requests.Response) -> bool:
        """Return whether the registry itself answered: the challenge of a host that it redirects to is not its own."""
        return not answer.history and urlsplit(answer.url)[:2] == urlsplit(self.base)[:2]

    def _retry(self, action: Callable[[bool], Result]) -> Result:
        """Return what an action returns; after a TransientError repeat it, with a pause that doubles.

        The action's argument is whether this is the last attempt, after which its error becomes a RegistryError.
        """
        for attempt in range(1, self.attempts):
            try:
                return action(False)
            except TransientError as error:
                time.sleep(0.5 * 2.0 ** (attempt - 1) if error.pause is None else error.pause)
        try:
            return action(True)
        except TransientError as error:
            raise RegistryError(error.cause, error.remedy, error.status, code=error.code) from None

    def _attempt(self, method: str, address: str, options: Mapping[str, Any], last: bool) -> requests.Response:
        """Send a request once. A busy registry's answer counts only at the last attempt."""
        try:
            ask = partial(self.session.request, method, address, **options)
            answer = ask() if method == "PUT" else within(LONGEST, ask)  # an upload takes its time
        except (requests.RequestException, ValueError) as error:  # ValueError for invalid addresses and dates
            kind = TransientError if isinstance(error, requests.ConnectionError | requests.Timeout) else RegistryError
            raise kind(f"{self.host}: {cause_of(error)}", REGISTRY_REMEDY, code="registry-unreachable") from None
        if last or answer.status_code not in _BUSY:
            return answer
        answer.close()
        cause = f"{self.host}: answers with {answer.status_code}"
        busy = TransientError(cause, REGISTRY_REMEDY, code="registry-refused")
        busy.pause = requested_pause(answer)
        raise busy

    def get(self, path: str, **headers: str) -> RegistryResponse:
        """Send a GET without logging in. Raises RegistryError if nothing answers."""
        return self.request("GET", path, authenticate=False, headers=headers)

    def download(
        self, path: str, digest: str, size: int, target: Path, tell: Callable[[int], None] | None = None
    ) -> None:
        """Write a blob of `size` bytes to a file; a file that an interrupted download left is continued.

        Raises RegistryError for any other bytes, and at once for more; SifmarkError if they cannot be written. A file
        of other bytes is emptied.
        """
        arrival = _Download(self, path, size, tell or ignore)
        try:
            with target.open("a+b") as sink:
                left = arrival.resume(sink)
                if left < size:
                    self._retry(lambda _last: arrival.receive(sink))
        except OSError as error:  # such as a full disk; the error does not name the path
            cause = f"{target.parent}: {error.strerror}, with {human_size(arrival.size)} of {human_size(size)} written"
            remedy = "free space there (sifmark clean), or name another folder: cache, dist, or TMPDIR"
            raise SifmarkError(cause, remedy, code="disk-full") from error
        if arrival.digest == digest:
            return
        os.truncate(target, 0)
        if left:  # what was left was damaged, for example by a loss of power
            self.download(path, digest, size, target, tell)
            return
        cause = f"{self.host}/{path}: the answer has digest {arrival.digest}"
        raise RegistryError(cause, REGISTRY_REMEDY, code="digest-mismatch")

    def content(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> bytes:
        """Return a document as received. Raises RegistryError if there is none."""
        answer = self.expect(self.request("GET", path, headers={"Accept": ", ".join(accepted)}), 200)
        where, digest = f"{self.host}/{path}", sha256_bytes(answer.content)
        stated = answer.headers.get("Docker-Content-Digest", digest)
        if stated != digest:
            cause = f"{where}: {len(answer.content)} bytes came with digest {digest}, not {stated}"
            raise RegistryError(cause, REGISTRY_REMEDY, code="digest-mismatch")
        return answer.content

    def document(self, path: str, accepted: tuple[str, ...] = ("*/*",)) -> tuple[str, Mapping[str, Any]]:
        """Return digest and content of a JSON document. Raises RegistryError if there is none."""
        content = self.content(path, accepted)
        try:
            return sha256_bytes(content), read_object(content)
        except ValueError:
            cause = f"{self.host}/{path}: answers with no JSON object: {excerpt_of(content, 100)!r}"
            raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid") from None

    def blob(self, repository: str, digest: str) -> Mapping[str, Any]:
        """Return a JSON document by its digest. Raises RegistryError if the digest differs."""
        actual, document = self.document(f"{repository}/blobs/{digest}")
        if actual != digest:
            cause = f"{self.host}/{repository}: {digest} was asked for, {actual} came"
            raise RegistryError(cause, REGISTRY_REMEDY, code="digest-mismatch")
        return document

    def upload(
        self,
        repository: str,
        digest: str,
        content: bytes | Path,
        origin: str | None = None,
        report: Callable[[int], None] = ignore,
    ) -> bool:
        """Upload a blob to a repository unless it is there, and report the bytes sent; return whether there were any.

        If `origin` is a repository of this registry that has it, it is only linked. Raises RegistryError.
        """
        return self._retry(lambda _last: self._upload(repository, digest, content, origin, report))

    def put_manifest(self, repository: str, reference: str, manifest: bytes, media: str) -> Mapping[str, str]:
        """Store a manifest under a tag or its own digest; return the headers of the answer. Raises RegistryError."""
        location, headers = f"{repository}/manifests/{reference}", {"Content-Type": media}
        return self._retry(lambda _last: self._put(location, data=manifest, headers=headers)).headers

    def own_address(self, what: str, location: str) -> str:
        """Return the address that an answer names. Raises RegistryError if it is another host's.

        Our token is only for this registry.
        """
        try:
            address = urljoin(self.base, location)
            target = urlsplit(address)
        except ValueError as error:
            cause = f"{self.host}: it wants {what} to go to what is no address: {error}"
            raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid") from None
        if target[:2] != urlsplit(self.base)[:2]:
            cause = f"{self.host}: it wants {what} to go to {target.netloc}"
            raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid")
        return address

    def next_page(self, answer: RegistryResponse) -> str | None:
        """Return the address of a list's next page; None at its end. Raises RegistryError for another host's."""
        links = parse_header_links(answer.headers.get("Link", ""))
        pages = [link["url"] for link in links if link.get("rel") == "next"]
        return self.own_address("the request for the next page", pages[0]) if pages else None

    def _upload(
        self, repository: str, digest: str, content: bytes | Path, origin: str | None, report: Callable[[int], None]
    ) -> bool:
        if self.request("HEAD", f"{repository}/blobs/{digest}").status_code == 200:
            return False
        asked = {"mount": digest, "from": origin} if origin else {}
        started = self.request("POST", f"{repository}/blobs/uploads/", params=asked)
        if started.status_code == 201:
            return False
        location = self.own_address("the upload", self.expect(started, 202).headers.get("Location", ""))
        headers = {"Content-Type": "application/octet-stream"}
        with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
            data = _Upload(stream, report)
            self._put(location, params={"digest": digest}, data=data, headers=headers, timeout=(PATIENCE, SETTLING))
        return True

    def _put(self, location: str, **options: Any) -> RegistryResponse:
        """Write once. Raises TransientError if starting again may help."""
        answer = None
        try:
            answer = self.request("PUT", location, **options)
            return self.expect(answer, 201)
        except RegistryError as error:
            if answer is None or answer.status_code in _UNSETTLED:
                raise TransientError(error.cause, error.remedy, error.status, code=error.code) from None
            raise

    def expect(self, answer: RegistryResponse, status: int) -> RegistryResponse:
        """Return the answer if it has this status. Raises RegistryError, with the meaning of its status, otherwise."""
        if answer.status_code == status:
            return answer
        meaning, remedy = _MEANINGS.get(answer.status_code, ("", REGISTRY_REMEDY))
        location = answer.url.partition("?")[0]
        where = f"{self.host}/{location.removeprefix(self.base)}" if location.startswith(self.base) else location
        cause = f"{where}: answers with {answer.status_code}{f', {meaning}' if meaning else ''}"
        if excerpt := excerpt_of(answer.content, 200):
            cause += f": {excerpt}"
        remedy = remedy.replace("HOST", self.host)
        raise RegistryError(cause, remedy, answer.status_code, code="registry-refused")

    def log_in(self, challenge: str) -> None:
        """Get a token, as the logged-in user or anonymously, or use a password. Raises RegistryError.

        When a token expires, the challenge that led to it is answered again: nvcr.io then names another token server,
        which has no token for anonymous users (NVIDIA/nvidia-container-toolkit#1945).
        """
        scope = _parameters(challenge).get("scope", self._scope)
        challenge = self._granting.get(scope, challenge)
        fields, kind = _parameters(challenge), challenge.lower().partition(" ")[0]
        realm = fields.get("realm", "")
        login, remedy = self._login.secret, _MEANINGS[401][1].replace("HOST", self.host)
        remedy += f". One did not read: {self._login.unread}" if self._login.unread else ""
        if kind == "basic" and isinstance(login, tuple):
            self.session.auth = login
            return
        if kind != "bearer" or not is_protected(realm, self.host):
            raise RegistryError(f"{self.host}: it asks for a password", remedy, 401, code="registry-refused")
        asked: dict[str, str] = {key: fields[key] for key in ("service", "scope") if key in fields}
        asking: dict[str, Any] = {"method": "GET", "params": asked, "auth": login}
        if isinstance(login, str):
            form = {"grant_type": "refresh_token", "client_id": "sifmark", "refresh_token": login, **asked}
            asking = {"method": "POST", "data": form}
        granted = self._ask_for_token(realm, allow_redirects=not login, **asking)
        token = granted.get("token") or granted.get("access_token")
        if not isinstance(token, str):
            raise RegistryError(f"{self.host}: {realm} gives no token", remedy, 401, code="registry-refused")
        self._scope, self._granting[scope] = scope, challenge
        self.session.headers["Authorization"] = f"Bearer {token}"

    def _ask_for_token(self, realm: str, **options: Any) -> Mapping[str, Any]:
        """Return the answer of a token server. Raises RegistryError if there is none."""
        try:
            # An older token goes only to the registry.
            answer = self.request(path=realm, authenticate=False, headers={"Authorization": None}, **options)
            if answer.status_code in _BUSY:
                self.expect(answer, 200)
            return read_object(answer.content)
        except RegistryError as error:
            cause = f"no token from {realm}: {error.cause}"
            raise RegistryError(cause, error.remedy, error.status, code=error.code) from None
        except ValueError as error:
            cause = f"{self.host}: no token from {realm}: {error}"
            raise RegistryError(cause, REGISTRY_REMEDY, code="registry-answer-invalid") from None

    @cached_property
    def _login(self) -> Login:
        return login_for(self.host)


class _Download:
    """A blob being downloaded: the bytes received so far, and their hash."""

    def __init__(self, registry: Registry, path: str, most: int, tell: Callable[[int], None]) -> None:
        self._registry, self._path, self._most, self._tell = registry, path, most, tell
        self._hash, self.size = hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the bytes received."""
        return f"sha256:{self._hash.hexdigest()}"

    def resume(self, sink: BinaryIO) -> int:
        """Take what a file holds as received. Return its bytes."""
        sink.seek(0)
        read_once(sink, self._hash.update)
        self.size = sink.tell()
        return self.size

    def receive(self, sink: BinaryIO) -> None:
        """Request the rest, and write it. Raises TransientError if it does not come.

        Raises RegistryError if more comes.
        """
        try:
            self._receive(sink)
        except (requests.RequestException, HTTPError, ValueError) as error:
            broke = f"the connection broke {self._registry.attempts} times, last after {self.size} bytes"
            cause = f"{self._registry.host}/{self._path}: {broke}: {cause_of(error)}"
            raise TransientError(cause, REGISTRY_REMEDY, code="registry-unreachable") from None

    def _receive(self, sink: BinaryIO) -> None:
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={self.size}-"} if self.size else {})}
        answer = self._registry.send("GET", self._path, headers=headers)
        if answer.status_code not in (200, 206):
            self._registry.expect(self._registry.read_all(answer), 200)
        with answer:
            if answer.status_code != 206:
                self._hash, self.size = hashlib.sha256(), 0
                sink.seek(0)
                sink.truncate()
            began, expected = self.size, answer.headers.get("Content-Length")
            since, size_then = time.monotonic(), self.size
            while block := answer.raw.read1(1 << 20):
                self.size += len(block)
                if self.size > self._most:
                    cause = f"{self._registry.host}/{self._path}: more came than the {self._most} bytes announced"
                    raise RegistryError(cause, REGISTRY_REMEDY, code="digest-mismatch")
                self._hash.update(block)
                sink.write(block)
                self._tell(self.size)
                if (now := time.monotonic()) - since >= FOR_SECONDS:
                    if self.size - size_then < SLOWEST * (now - since):
                        raise requests.Timeout(f"less than {SLOWEST} bytes a second came for {now - since:.0f} s")
                    since, size_then = now, self.size
            if expected is not None and self.size - began < int(expected):
                raise requests.ConnectionError(f"the connection ended {int(expected) - self.size + began} bytes early")


class _Upload:
    """A file that is sent: reports how far it has been read. Everything else is the file's own, as requests asks."""

    def __init__(self, file: BinaryIO, report: Callable[[int], None]) -> None:
        self._file, self._report = file, report

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        block = self._file.read(size)
        self._report(self._file.tell())
        return block

    def __iter__(self) -> Iterator[bytes]:  # by which requests recognises a stream
        return iter(partial(self.read, 1 << 16), b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _parameters(challenge: str) -> dict[str, str]:
    pairs: list[tuple[str, str]] = re.findall(r'\b(\w+)="([^"]*)"', challenge)
    return dict(pairs)


def _rewind(data: Any) -> None:
    if hasattr(data, "seek"):
        data.seek(0)
