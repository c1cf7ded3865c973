"""The part of a terminal in which a view is drawn again and again, below all that is written meanwhile."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from sifmark.core.console import printable
from sifmark.core.terminal import terminal

INTERVAL = 1.0  # seconds between two frames: the processors are for the runs


class Drawing:
    """Draws a view from its first `refresh` on."""

    def __init__(self, view: RenderableType) -> None:
        self._console, self._view = terminal(), view
        self._live: Live | None = None
        self._drawn_at = 0.0

    def refresh(self) -> None:
        """Draw the current view, at limited intervals."""
        if time.monotonic() - self._drawn_at < INTERVAL:
            return
        self._drawn_at = time.monotonic()
        if self._live is None:
            self._live = self._new_live()
            self._live.start()
        self._live.refresh()

    def write_line(self, line: str) -> None:
        """Write a line of another program above the view, in its own colours."""
        try:
            text = Text.from_ansi(line)
        except ValueError:  # a colour's number with more digits than Python reads
            text = Text(printable(line))
        self._console.print(text, highlight=False, soft_wrap=True)

    def write_output(self, data: bytes) -> None:
        """Write another program's standard output to ours, byte for byte; the view makes room for it."""
        self.clear()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def clear(self) -> None:
        """Take the view away until it is drawn again, and show the cursor."""
        if self._live is not None:
            self._live.stop()
        self._live = None  # a stopped one would erase once more what is no longer there

    def _new_live(self) -> Live:
        return Live(
            self._view,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )


@contextmanager
def drawn(view: RenderableType) -> Iterator[Drawing]:
    """Draw a view for as long as the context is open; nothing of it remains, whatever ends it."""
    drawing = Drawing(view)
    try:
        yield drawing
    finally:
        with suppress(OSError):  # a terminal that is gone
            drawing.clear()
