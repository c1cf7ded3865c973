"""HTTP for registries: a session, logins, whole answers within limits, causes of failures."""

import os
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from sifmark.core.errors import RegistryError
from sifmark.core.files import human_size
from sifmark.oci.manifest import MAX_DOCUMENT_SIZE, is_loopback

# Apptainer's files of logins, in the format of Docker's configuration. It uses the second one in a folder that
# APPTAINER_CONFIGDIR names (seen with 1.4.5, which otherwise writes to Docker's own file).
_APPTAINER_FILES = ("docker-config.json", "config.json")
Result = TypeVar("Result")
LONGEST_PAUSE = 60.0  # seconds that a busy registry may ask us to wait


@dataclass(frozen=True)
class Login:
    """The login for one registry, if there is one."""

    # user and password, or an identity token in their place; None for anonymous access
    secret: tuple[str, str] | str | None = field(default=None, repr=False)
    unread: str = ""  # why a file of logins could not be used


def login_for(host: str) -> Login:
    """Return Docker's login for a host, or else Apptainer's. A file that cannot be read counts as empty.

    Logins are never shown.
    """
    from docker.auth import load_config
    from docker.errors import DockerException

    unread = ""
    for path in (None, *_apptainer_files()):  # None: Docker's own
        try:
            with warnings.catch_warnings(action="ignore"):  # of a missing helper, which `unread` reports
                entry = load_config(config_path=path).resolve_authconfig(host) or {}
        except (DockerException, ValueError) as error:
            unread = str(error)[:200] or type(error).__name__
            continue
        fields = {key.lower(): value for key, value in entry.items()}  # credential helpers use capitals
        if fields.get("username") and fields.get("password"):
            return Login((fields["username"], fields["password"]), unread)
        if fields.get("identitytoken"):
            return Login(str(fields["identitytoken"]), unread)
    return Login(None, unread)


class TransientError(RegistryError):
    """An error that another attempt may not meet; `pause` is in seconds, if the registry names one."""

    pause: float | None = None


@dataclass(frozen=True)
class RegistryResponse:
    """A complete answer of a registry."""

    url: str
    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Session(requests.Session):
    """A session without the logins of ~/.netrc, which would replace a registry's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _without_login  # without one, ~/.netrc is read

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Drop the login on a redirect to another host. Raises InvalidURL for one that anybody on the way can read."""
        urls = response.request.url, prepared_request.url
        if not is_protected(str(urls[1]), urlsplit(str(urls[0])).netloc):
            raise requests.exceptions.InvalidURL(f"it leads to {urlsplit(str(urls[1])).netloc} without encryption")
        if self.should_strip_auth(*urls):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


def read_document(response: requests.Response) -> bytes:
    """Return the content of an answer, and close it. Raises RequestException or HTTPError if it is too large, or broken
    off."""
    content = bytearray()
    with response:
        while block := response.raw.read1(1 << 16, decode_content=True):
            content += block
            if len(content) > MAX_DOCUMENT_SIZE:
                raise requests.RequestException(f"more than {human_size(MAX_DOCUMENT_SIZE)} came for a document")
    return bytes(content)


def requested_pause(answer: requests.Response) -> float | None:
    """Return the seconds that a busy registry asks for, up to a limit; None if it names none or an unreadable one."""
    header = answer.headers.get("Retry-After")
    with suppress(HTTPError, ValueError, OverflowError):
        return None if header is None else min(Retry().parse_retry_after(header), LONGEST_PAUSE)
    return None


def is_protected(address: str, host: str) -> bool:
    """Return whether a host may name an address to go to: encrypted, or from this machine to this machine."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback(host) and is_loopback(str(parts.hostname))
    )


def within(seconds: float, action: Callable[[], Result]) -> Result:
    """Return what an action returns. Raises Timeout if it takes longer: the timeout of a socket is for each byte.

    The action then goes on in a thread that ends with this process.
    """
    outcome = Future[Result]()

    def act() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=act, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        raise requests.Timeout(f"no end of an answer came in {seconds:.0f} s") from None


def _without_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def cause_of(error: Exception) -> str:
    """Return an error's message without the addresses that requests and urllib3 wrap around it."""
    inner = error.args[0] if error.args else None
    cause = getattr(inner, "reason", inner)
    shown = cause if isinstance(cause, Exception) else error
    return str(shown)[:200] or type(shown).__name__


def excerpt_of(content: bytes, length: int) -> str:
    """Return the first bytes of an answer as text."""
    return content[:length].decode(errors="replace").strip()


def _apptainer_files() -> list[str]:
    folder = Path(os.environ.get("APPTAINER_CONFIGDIR", "~/.apptainer")).expanduser()
    return [str(folder / name) for name in _APPTAINER_FILES if (folder / name).is_file()]
