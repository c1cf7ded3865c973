"""The connection to a Docker Engine, and its failures as ours."""

import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import settings

if TYPE_CHECKING:
    from docker import DockerClient

_PATIENCE = 20  # seconds for the engine's first answer
_SETUP = "start one: ci/setup/docker; or name yours: export DOCKER_HOST=unix:///PATH"


class DockerError(SifmarkError):
    """What Docker refused."""


class EngineUnreachableError(DockerError):
    """No Docker Engine answers."""


class BaseUnavailableError(DockerError):
    """The base could not be fetched."""


class OutOfSpaceError(DockerError):
    """The engine's disk is full."""


# What the engine says when a build fails, and what that means.
_FAULTS: tuple[tuple[str, type[DockerError], str], ...] = (
    (r"no space left on device", OutOfSpaceError, "free space where the engine keeps its images: docker system df"),
    (
        r"manifest unknown|manifest for .* not found|connection refused|no such host|i/o timeout|unauthorized"
        r"|access.* denied",
        BaseUnavailableError,
        "is the base's registry up? `inv doctor` asks it; a mirror can be set in sifmark.toml",
    ),
)


@cache
def docker_client() -> "DockerClient":
    """The connection to the engine that DOCKER_HOST names, or to the usual one. Raises Unreachable."""
    from docker import DockerClient

    with translated_errors():
        made = DockerClient.from_env(timeout=_PATIENCE)
        made.ping()
    made.api.timeout = max(_PATIENCE, int(settings().time_limit))
    return made


def attributes(address: str) -> dict[str, Any] | None:
    """What the engine knows of a local image, or None where there is none. Raises DockerError."""
    from docker.errors import ImageNotFound

    with translated_errors():
        try:
            return dict(docker_client().images.get(address).attrs)
        except ImageNotFound:
            return None


def build(
    dockerfile: str,
    log: Path | None = None,
    watch: Callable[[str], None] | None = None,
    context: Path | None = None,
    tag: str | None = None,
    anew: bool = False,
) -> str:
    """Build and answer with the image's identifier. Raises DockerError of the kind that the engine's words mean."""
    how: dict[str, Any] = {"tag": tag, "rm": True, "forcerm": True, "network_mode": "none", "nocache": anew}
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        if context is None:
            how["fileobj"] = io.BytesIO(dockerfile.encode())
        else:
            path = Path(folder) / "Dockerfile"
            path.write_text(dockerfile)
            how.update(path=str(context), dockerfile=str(path))
        with translated_errors():
            return follow(docker_client().api.build(decode=True, **how), log, watch)


def follow(
    events: Iterable[dict[str, Any]], log: Path | None, watch: Callable[[str], None] | None, wanted: str = "ID"
) -> str:
    """What the engine names at the end, or the last thing it said where nothing is `wanted`.

    A failure is an event among others, not an answer of its own. Raises DockerError.
    """
    identifier, said = "", []
    for event in events:
        if "error" in event:
            raise _fault(str(event["error"]), log)
        identifier = str(event.get("aux", {}).get(wanted, identifier))
        if line := str(event.get("stream") or event.get("status") or "").strip():
            said.append(line)
            if watch:
                watch(line)
            if log:
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a", encoding="utf-8") as sink:
                    sink.write(f"{line}\n")
    if wanted and not identifier:
        raise DockerError(f"Docker ended and named no image: {' '.join(said[-3:])}", "see its own log")
    return identifier


def _fault(message: str, log: Path | None = None) -> DockerError:
    told = f"Docker: {message.strip()}" + (f"\n  log: {log}" if log else "")
    for words, kind, remedy in _FAULTS:
        if re.search(words, message, re.IGNORECASE):
            return kind(told, remedy)
    return DockerError(told, "the words above are the engine's own")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what docker-py raises into our errors; what the host's own files raise is left as it is."""
    from docker.errors import APIError, DockerException
    from requests import RequestException

    host = os.environ.get("DOCKER_HOST", "the usual socket")
    try:
        yield
    except APIError as error:
        raise _fault(str(error.explanation or error)) from error
    except (DockerException, RequestException) as error:
        if "permission denied" in str(error).lower():
            remedy = "let the administrator add you to the group that may use it, mostly `docker`"
            raise EngineUnreachableError(f"this user may not use the Docker Engine at {host}", remedy) from error
        raise EngineUnreachableError(f"no Docker Engine answers at {host}: {str(error)[:200]}", _SETUP) from error


def stream_of(blocks: Iterator[bytes]) -> io.BufferedReader:
    """What comes in blocks as one stream."""
    return io.BufferedReader(_Blocks(blocks))


class _Blocks(io.RawIOBase):
    """A stream over the blocks that come."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = iter(blocks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or next(self._blocks, b"")
        taken, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)
