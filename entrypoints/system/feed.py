"""The progress of runs as data: JSON lines for a host that draws them, by a named pipe that it reads."""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
from typing import Any, Iterator, Mapping

VARIABLE = "SIFMARK_PROGRESS"  # the path of the pipe, which `sifmark run` sets
# A longer line would not be written in one piece. schemas/progress-1.0.json has what is in a line.
LONGEST_LINE = select.PIPE_BUF


class Feed:
    """The end of the pipe into which lines are written. A run waits for no reader: what it cannot write is lost."""

    def __init__(self, path: str | None) -> None:
        self._descriptor = _opened(path) if path else None

    @property
    def is_read(self) -> bool:
        """Whether there is a host that draws the progress."""
        return self._descriptor is not None

    def send(self, document: Mapping[str, Any]) -> None:
        """Write a document as one line, unless nobody reads it any more or the pipe is full."""
        line = json.dumps(document, allow_nan=False).encode() + b"\n"
        if self._descriptor is None or len(line) > LONGEST_LINE:
            return
        try:
            os.write(self._descriptor, line)
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the pipe."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def opened_feed(environment: Mapping[str, str]) -> Iterator[Feed]:
    """Open the pipe that a host has named, if there is one, for as long as the context is open."""
    feed = Feed(environment.get(VARIABLE))
    try:
        yield feed
    finally:
        feed.close()


def _opened(path: str) -> int | None:
    """Return the pipe, opened for writing; None if it is none, is not here, or nobody reads it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
