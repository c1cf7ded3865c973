"""What the client of registries has of HTTP: a session, whole answers within limits, causes of failures."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import requests
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from sifmark.core.errors import RegistryError
from sifmark.core.files import human_size
from sifmark.oci.reference import MAX_DOCUMENT_SIZE

LONGEST = 120.0  # seconds from the first to the last byte of a document
LONGEST_PAUSE = 60.0  # seconds that a busy registry may ask us to wait


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
        """Drop the login on a redirect to another host."""
        urls = response.request.url, prepared_request.url
        if self.should_strip_auth(*urls):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


def read_document(response: requests.Response) -> bytes:
    """Return the content of an answer. Raises RequestException or HTTPError if it is too large, too slow, or broken
    off."""
    began, content = time.monotonic(), bytearray()
    while block := response.raw.read1(1 << 16, decode_content=True):
        content += block
        if len(content) > MAX_DOCUMENT_SIZE:
            raise requests.RequestException(f"more than {human_size(MAX_DOCUMENT_SIZE)} came for a document")
        if time.monotonic() - began > LONGEST:
            raise requests.Timeout(f"{len(content)} bytes of a document came in {LONGEST:.0f} s, and no end")
    return bytes(content)


def requested_pause(answer: requests.Response) -> float | None:
    """Return the seconds that a busy registry asks for, up to a limit; None if it names none or an unreadable one."""
    header = answer.headers.get("Retry-After")
    with suppress(HTTPError, ValueError, OverflowError):
        return None if header is None else min(Retry().parse_retry_after(header), LONGEST_PAUSE)
    return None


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
