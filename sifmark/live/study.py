"""The runs of a study side by side: two lines for each that is in progress, below how far the whole study is."""

from collections.abc import Iterator, Mapping, Set
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult

from sifmark.core.console import printable
from sifmark.engines.progress import ProgressPipe, new_pipe, progress_folder
from sifmark.live.drawing import Drawing
from sifmark.live.graphs import bar, curve
from sifmark.live.history import GAP, ProgressHistory, cut, fitting
from sifmark.studies.study import PlannedRun

_WIDE = 130  # columns from which quantities have their names
_GRAPHS = 70  # columns from which they have graphs
_BAR = 20  # columns
_CURVE = 12
_REST = 4  # lines of a terminal that are left to others


class StudyView:
    """What is drawn of a study; it has the pipes by which the runs report."""

    def __init__(self, title: str, folder: Path | None) -> None:
        """Make the pipes in a folder, if there is one."""
        self._title, self._folder, self._drawing = title, folder, Drawing(self)
        self._pipes: dict[str, ProgressPipe] = {}  # by the key of a run
        self._histories: dict[str, ProgressHistory] = {}
        self._headline, self._labels = "", dict[str, str]()
        self._done = self._total = 0

    def pipe_for(self, planned: PlannedRun) -> ProgressPipe | None:
        """Return a new pipe for a run that is about to start; None where none can be made."""
        pipe = new_pipe(self._folder, planned.key)
        if pipe is not None:
            self._pipes[planned.key] = pipe
            self._histories[planned.key] = ProgressHistory()
        return pipe

    def show(self, headline: str, done: int, total: int, labels: Mapping[str, str]) -> None:
        """Draw how far the study is, in words and by the number of runs, and the runs in progress by their keys."""
        self._headline, self._done, self._total = printable(f"{self._title}: {headline}"), done, total
        self._labels = {key: printable(label) for key, label in labels.items()}
        self._forget(set(self._pipes) - set(labels))
        for key, pipe in self._pipes.items():
            for progress in pipe.read():
                self._histories[key].add(progress)
        self._drawing.refresh()

    def close(self) -> None:
        """Take the view away, and remove the pipes."""
        self._drawing.clear()
        self._forget(set(self._pipes))

    def _forget(self, keys: Set[str]) -> None:
        for key in keys:
            self._pipes.pop(key).close()
            del self._histories[key]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, as rich calls this for each frame: the terminal may have changed since the last."""
        width, plain = options.max_width - 1, options.ascii_only
        yield cut(fitting((self._headline, bar(self._share(), _BAR, plain)), width), width, plain, "bold")
        most = max(1, (console.size.height - _REST) // 2)  # runs
        for key, label in list(self._labels.items())[:most]:
            yield cut(label, width, plain)
            yield cut(GAP + fitting(list(self._words(key, width, plain)), width - len(GAP)), width, plain, "cyan")
        if len(self._labels) > most:
            yield cut("this terminal is too low for the others", width, plain, "dim")

    def _share(self) -> float:
        """Return which part of the study is done, with what is done of the runs in progress."""
        begun = sum(history.latest.share for history in self._histories.values() if history.latest)
        return (self._done + begun) / self._total if self._total else 0.0

    def _words(self, key: str, width: int, plain: bool) -> Iterator[str]:
        """Yield what a run does and measures, the most important first: as much as fits is drawn."""
        history = self._histories.get(key)
        yield history.phase if history else "running"  # without a pipe
        if history:
            yield history.remaining
            for each in history.measured():
                graph = curve(each.values, _CURVE, plain, each.from_zero) if width >= _GRAPHS else ""
                yield " ".join(filter(None, [each.name if width >= _WIDE else "", graph, each.text]))


@contextmanager
def drawn_study(title: str) -> Iterator[StudyView]:
    """Draw a study for as long as the context is open."""
    with progress_folder() as folder, closing(StudyView(title, folder)) as view:
        yield view
