"""The connection to a Docker Engine. Its failures become ours."""

import io
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import SifmarkError

if TYPE_CHECKING:
    from docker import DockerClient

_FIRST_ANSWER_LIMIT = 20  # seconds
_REMOVAL_LIMIT = 20.0  # seconds for a container to go
_SETUP_REMEDY = "start one: ci/setup/docker; or name yours: export DOCKER_HOST=unix:///PATH"


class DockerError(SifmarkError):
    """Docker refused a request."""


class EngineUnreachableError(DockerError):
    """No Docker Engine answers."""


class BaseUnavailableError(DockerError):
    """The base could not be fetched."""


class OutOfSpaceError(DockerError):
    """The engine's disk is full."""


# What the engine says when a build fails: the error that it means, its remedy and its code.
_FAULTS: tuple[tuple[str, type[DockerError], str, str], ...] = (
    (
        r"no space left on device",
        OutOfSpaceError,
        "free space where the engine keeps its images: docker system df",
        "disk-full",
    ),
    (
        r"manifest unknown|manifest for .* not found|connection refused|no such host|i/o timeout|unauthorized"
        r"|access.* denied",
        BaseUnavailableError,
        "is the base's registry up? `sifmark doctor` asks it; a mirror can be set in sifmark.toml",
        "registry-refused",
    ),
)


class DockerDaemon:
    """The Docker Engine that DOCKER_HOST names, or the usual one. The first request connects to it."""

    def __init__(self, time_limit: float) -> None:
        self._time_limit = time_limit

    @cached_property
    def sdk(self) -> "DockerClient":
        """The connection by docker-py. Raises EngineUnreachableError."""
        from docker import DockerClient

        with translated_errors():
            client = DockerClient.from_env(timeout=_FIRST_ANSWER_LIMIT)
            client.ping()
        client.api.timeout = max(_FIRST_ANSWER_LIMIT, int(self._time_limit))
        return client

    def version(self) -> str:
        """Return the engine's version, such as `20.10.24`. Raises DockerError."""
        with translated_errors():
            return str(self.sdk.version()["Version"])

    def attributes(self, address: str) -> dict[str, Any] | None:
        """Return what the engine knows of a local image, or None if there is no such image. Raises DockerError."""
        from docker.errors import ImageNotFound

        with translated_errors():
            try:
                return dict(self.sdk.images.get(address).attrs)
            except ImageNotFound:
                return None

    def build(
        self,
        dockerfile: str,
        log: Path | None = None,
        watch: Callable[[str], None] | None = None,
        context: Path | None = None,
        tag: str | None = None,
        no_cache: bool = False,
    ) -> str:
        """Build an image and return its identifier. Raises DockerError of the kind that the engine's words mean."""
        options: dict[str, Any] = {"tag": tag, "rm": True, "forcerm": True, "network_mode": "none", "nocache": no_cache}
        with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
            if context is None:
                options["fileobj"] = io.BytesIO(dockerfile.encode())
            else:
                path = Path(folder) / "Dockerfile"
                path.write_text(dockerfile)
                options.update(path=str(context), dockerfile=str(path))
            with translated_errors():
                return follow(self.sdk.api.build(decode=True, **options), log, watch)

    def tag(self, address: str, repository: str, tag: str) -> None:
        """Give an image another name. Raises DockerError."""
        with translated_errors():
            self.sdk.images.get(address).tag(repository, tag)

    def remove(self, address: str) -> None:
        """Remove a name, and the image if it has no other. Raises DockerError."""
        with translated_errors():
            self.sdk.images.remove(address)

    def remove_unnamed(self, identifier: str) -> None:
        """Remove an image that has no name any more; one that has a name or a container stays."""
        from docker.errors import APIError

        attributes = self.attributes(identifier)
        if attributes is not None and not attributes.get("RepoTags"):
            with translated_errors():
                try:
                    self.sdk.images.remove(identifier)
                except APIError:  # a container needs it
                    return

    def remove_container(self, name: str) -> None:
        """Kill and remove a container, and wait until its name is free. Raises DockerError if it stays."""
        from docker.errors import APIError, NotFound

        until = time.monotonic() + _REMOVAL_LIMIT
        with translated_errors():
            while True:
                try:
                    self.sdk.containers.get(name).remove(v=True, force=True)
                except NotFound:
                    return
                except APIError:  # the engine is removing it already
                    if time.monotonic() > until:
                        raise
                    time.sleep(_REMOVAL_LIMIT / 100)

    def load(self, archive: Path) -> None:
        """Load images from an archive. Raises DockerError."""
        with translated_errors(), archive.open("rb") as stream:
            self.sdk.images.load(stream)

    def save(self, address: str, target: Path) -> None:
        """Write an image as an archive that other engines read. Raises DockerError."""
        with translated_errors(), target.open("wb") as stream:
            for block in self.sdk.images.get(address).save(named=False):
                stream.write(block)

    @contextmanager
    def container(self, identifier: str) -> Iterator[Any]:
        """Give a container of an image that is never started, to read its files. Raises DockerError."""
        with translated_errors():
            container = self.sdk.containers.create(identifier)
        try:
            yield container
        finally:
            container.remove(v=True, force=True)  # with the volumes that the image declares


def follow(
    events: Iterable[dict[str, Any]], log: Path | None, watch: Callable[[str], None] | None, wanted: str = "ID"
) -> str:
    """Read events to their end, and return the `wanted` field that the engine sends last; any if `wanted` is empty.

    A failure is an event among others, not an answer. Raises DockerError for it, and if nothing that was wanted came.
    """
    identifier, lines = "", []
    for event in events:
        if "error" in event:
            raise _fault(str(event["error"]), log)
        identifier = str(event.get("aux", {}).get(wanted, identifier))
        if line := str(event.get("stream") or event.get("status") or "").strip():
            lines.append(line)
            _report(line, log, watch)
    if wanted and not identifier:
        cause = f"Docker ended and named no image: {' '.join(lines[-3:])}"
        raise DockerError(cause, "see its own log", code="engine-answer-unknown")
    return identifier


def _report(line: str, log: Path | None, watch: Callable[[str], None] | None) -> None:
    if watch:
        watch(line)
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as sink:
            sink.write(f"{line}\n")


def _fault(message: str, log: Path | None = None) -> DockerError:
    cause = f"Docker: {message.strip()}" + (f"\n  log: {log}" if log else "")
    for words, kind, remedy, code in _FAULTS:
        if re.search(words, message, re.IGNORECASE):
            return kind(cause, remedy, code=code)
    return DockerError(cause, "the words above are the engine's own", code="engine-refused")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what docker-py raises into our errors; errors of the host's own files pass through."""
    from docker.errors import APIError, DockerException
    from requests import RequestException

    host = os.environ.get("DOCKER_HOST", "the usual socket")
    try:
        yield
    except APIError as error:
        raise _fault(str(error.explanation or error)) from error
    except (DockerException, RequestException) as error:
        if "permission denied" in str(error).lower():
            cause = f"this user may not use the Docker Engine at {host}"
            remedy = "let the administrator add you to the group that may use it, mostly `docker`"
            raise EngineUnreachableError(cause, remedy, code="engine-unreachable") from error
        cause = f"no Docker Engine answers at {host}: {_reason(error)}"
        raise EngineUnreachableError(cause, _SETUP_REMEDY, code="engine-unreachable") from error


def _reason(error: BaseException) -> str:
    """Return what the operating system said, which docker-py and requests wrap in errors of theirs, or their words."""
    inner, visited = [error], set[int]()
    while inner:
        each = inner.pop()
        if isinstance(each, OSError) and each.errno:
            return each.strerror or str(each)
        visited.add(id(each))
        more = (each.__cause__, each.__context__, *each.args)
        inner += [other for other in more if isinstance(other, BaseException) and id(other) not in visited]
    return str(error)[:200]


def stream_of(blocks: Iterator[bytes]) -> io.BufferedReader:
    """Return blocks of bytes as one stream."""
    return io.BufferedReader(_BlockReader(blocks))


class _BlockReader(io.RawIOBase):
    """A stream over blocks of bytes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = iter(blocks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._blocks, b"")
        content, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(content)] = content
        return len(content)
