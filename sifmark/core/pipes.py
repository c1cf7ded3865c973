"""A pipe that is read to its end while its command runs."""

import threading
from collections.abc import Callable
from typing import IO

LineHandler = Callable[[str], None]


class PipeReader(threading.Thread):
    """Reads one pipe of a command to its end, so that a command with much output never blocks on a full pipe.

    Each line goes to `lines` and to the handlers. `failure` is the first error of a handler, such as a log on a full
    disk; after it the pipe is still read to its end.
    """

    def __init__(self, pipe: IO[str] | None, *handlers: LineHandler | None) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self.failure: OSError | None = None
        self._pipe = pipe
        self._handlers = [handler for handler in handlers if handler is not None]
        self.start()

    def run(self) -> None:
        """Read the pipe; the thread calls this."""
        if self._pipe is None:
            return
        with self._pipe:
            for line in self._pipe:
                self.lines.append(line.rstrip("\n"))
                self._handle(self.lines[-1])

    def _handle(self, line: str) -> None:
        if self.failure is not None:
            return
        try:
            for handler in self._handlers:
                handler(line)
        except OSError as error:
            self.failure = error
