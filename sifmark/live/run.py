"""One image in the foreground: its runs as graphs below what it writes."""

import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult

from sifmark.core.process import exit_code_of, foreground
from sifmark.engines.progress import ProgressPipe
from sifmark.live.drawing import INTERVAL, Drawing, drawn
from sifmark.live.graphs import bar, curve
from sifmark.live.history import GAP, ProgressHistory, cut, title_of

_LABEL = 10  # columns
_WIDEST_GRAPH = 60
_NARROWEST_GRAPH = 6
_WIDEST_BAR = 40
_CHUNK = 1 << 16  # bytes
_LONGEST_LINE = 1 << 16  # bytes; a longer one is written in pieces


class RunView:
    """What is drawn of a run: what it is, how far, and a graph for each quantity that it reports."""

    def __init__(self, history: ProgressHistory) -> None:
        self._history = history

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, as rich calls this for each frame: the terminal may have changed since the last."""
        progress, width, plain = self._history.latest, options.max_width - 1, options.ascii_only
        if progress is None:
            return
        yield cut(title_of(progress), width, plain, "bold")
        phase, remaining = self._history.phase, self._history.remaining
        room = min(_WIDEST_BAR, width - len(phase) - len(remaining) - 2 * len(GAP))
        parts = [phase, bar(progress.share, room, plain) if room >= _NARROWEST_GRAPH else "", remaining]
        yield cut(GAP.join(filter(None, parts)), width, plain)
        for each in self._history.measured():
            room = min(_WIDEST_GRAPH, width - _LABEL - len(each.text) - 2 * len(GAP))
            graph = curve(each.values, room, plain, each.from_zero) if room >= _NARROWEST_GRAPH else ""
            yield cut(GAP.join(filter(None, [f"{each.name:{_LABEL}}", graph, each.text])), width, plain, "cyan")


def run_with_view(argv: Sequence[str], environment: Mapping[str, str], pipe: ProgressPipe) -> int:
    """Run an image that has this process's terminal, and draw its runs. Return its exit code as `run_foreground` does.

    Where standard output is the terminal too, what the image writes there makes the view give way.
    """
    shared = sys.stdout.isatty()
    piped = ("stderr", "stdout") if shared else ("stderr",)
    # An image with a pipe for its output would not know how wide help and its report may be.
    columns = {"COLUMNS": str(shutil.get_terminal_size().columns)}
    history = ProgressHistory()
    with (
        drawn(RunView(history)) as drawing,
        foreground(argv, {**columns, **environment, **pipe.variables}, piped) as process,
    ):
        try:
            _follow(process, pipe, history, drawing)
        except OSError:  # the terminal is gone, and the run goes on without it
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
        process.wait()
    return exit_code_of(process)


def _follow(process: subprocess.Popen[bytes], pipe: ProgressPipe, history: ProgressHistory, drawing: Drawing) -> None:
    """Show what a process writes and reports, until it has ended and nothing is left."""
    lines = LineWriter(drawing.write_line)
    with selectors.DefaultSelector() as selector:
        for stream, write in ((process.stderr, lines.write), (process.stdout, drawing.write_output)):
            if stream is not None:
                selector.register(stream.fileno(), selectors.EVENT_READ, write)
        selector.register(pipe, selectors.EVENT_READ)
        while len(selector.get_map()) > 1:
            ready = selector.select(INTERVAL)
            if not ready and process.poll() is not None:  # what it left behind may have its streams
                break
            for key, _ in ready:
                _take(key, selector)
            for progress in pipe.read():
                history.add(progress)
            if history.latest is not None:
                drawing.refresh()
    lines.end()


def _take(key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
    """Write what a stream has for us; forget one that has ended."""
    if key.data is None:  # the pipe of progress
        return
    if data := os.read(key.fd, _CHUNK):
        key.data(data)
    else:
        selector.unregister(key.fd)


class LineWriter:
    """Bytes as they come, written line by line."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line, self._rest = write_line, b""

    def write(self, data: bytes) -> None:
        """Write the lines that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._write_line(line.decode(errors="replace"))
        if len(self._rest) > _LONGEST_LINE:
            self.end()

    def end(self) -> None:
        """Write what is left."""
        if self._rest:
            self._write_line(self._rest.decode(errors="replace"))
            self._rest = b""
