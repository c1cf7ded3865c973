"""Progress of a study: a line for each run that has ended, and what is running."""

import time
from collections.abc import Callable, Mapping

from sifmark.core.console import status
from sifmark.results.numbers import format_quantity, format_seconds
from sifmark.studies.overview import Labels
from sifmark.studies.running.budget import Estimates
from sifmark.studies.running.runner import Ended, Progress

Show = Callable[[str, int, int, Mapping[str, str]], None]  # in words, runs done, of how many, those in progress by key


class StudyDisplay:
    """Shows the progress of the whole study."""

    def __init__(self, labels: Labels, total: int, side_by_side: int, estimates: Estimates, show: Show) -> None:
        self.count = 0  # of runs that have ended
        self._labels, self._total, self._side_by_side = labels, total, side_by_side
        self._estimates, self._show = estimates, show
        self._changed = time.monotonic()

    def report(self, ended: Ended, progress: Progress) -> None:
        """Write a line about a run that has ended."""
        self.count += 1
        self._changed = time.monotonic()
        outcome = ended.outcome
        words = [outcome.reason or "completed"]
        if ended.elsewhere:
            words.append("done by another process")
        else:
            metric = outcome.document.get("metrics", {}).get("throughput", {})
            if metric.get("value") is not None:
                words.append(format_quantity(metric["value"], metric["unit"]))
            words.append(format_seconds(ended.seconds))
        number = f"[{self.count:>{len(str(self._total))}}/{self._total}]"
        status(f"{number} {self._labels.of(ended.planned)}: {', '.join(words)}{self._left(progress)}")

    def watch(self, progress: Progress) -> None:
        """Show what is in progress."""
        if not progress.active:
            self._changed = time.monotonic()  # nothing comes nearer to its end
        waiting = "" if progress.active else f"; waiting {progress.reason.value}"
        headline = f"{self.count} of {self._total} done{self._left(progress)}{waiting}"
        labels = {key: self._labels.of(planned) for key, planned in progress.active.items()}
        self._show(headline, self.count, self._total, labels)

    def _left(self, progress: Progress) -> str:
        if not progress.remaining:
            return ""
        seconds = self._estimates.total(progress.remaining, self._side_by_side)
        begun = self._estimates.total(progress.active.values(), self._side_by_side)
        if seconds is None or begun is None:
            return ""
        left = seconds - min(begun, time.monotonic() - self._changed)  # a run that takes longer is still to end
        return f"; about {format_seconds(left)} left" if left >= 1 else ""
