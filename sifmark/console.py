"""What a person sees while the host side works: timed steps on stderr, tables on stdout."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

# In a pipe a table is as wide as its words; on a terminal rich folds it to fit.
out = Console(width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True, soft_wrap=True, highlight=False, width=None if sys.stderr.isatty() else 200)

HEARTBEAT = 10.0  # seconds between two lines about the same step where there is no terminal


class Step:
    """One piece of work in progress."""

    def __init__(self, title: str, status: Status | None) -> None:
        self.title = title
        self.started = self._spoke = time.monotonic()
        self._status = status

    def detail(self, line: str) -> None:
        """Say where the step stands: at once on a terminal, now and then in a log."""
        text = line.strip()[:100]
        if not text:
            return
        if self._status is not None:
            self._status.update(f"{_plain(self.title)} [dim]{_plain(text)}[/dim]")
        elif time.monotonic() - self._spoke >= HEARTBEAT:
            self._spoke = time.monotonic()
            say(f"  {self.title}: {self.seconds:.0f} s, {text}")

    @property
    def seconds(self) -> float:
        """Time since the step began, in seconds."""
        return time.monotonic() - self.started


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Announce a piece of work, and say how long it took; a failure is left to its error."""
    if err.is_terminal:
        with err.status(_plain(title)) as status:
            current = Step(title, status)
            yield current
    else:
        say(f"- {title} ...")
        current = Step(title, None)
        yield current
    say(f"- {title}: {current.seconds:.1f} s")


def say(text: str) -> None:
    """A line for people, on stderr, taken literally."""
    err.print(text, markup=False)


def show(text: str) -> None:
    """A line of the answer itself, on stdout, taken literally and never wrapped."""
    sys.stdout.write(f"{text}\n")


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
