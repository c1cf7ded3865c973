"""How long runs will take, by what is planned for them and by how long those before them took."""

from collections.abc import Iterable

from sifmark.studies.study import PlannedRun


class Estimates:
    """Estimates that learn: planned times are scaled by what the finished ones took in relation to their plan."""

    def __init__(self) -> None:
        self._measured = self._planned = self._unplanned = 0.0
        self._unplanned_count = 0

    def learn(self, planned: PlannedRun, seconds: float) -> None:
        """Take a run into account that took `seconds`."""
        if planned.seconds is None:
            self._unplanned += seconds
            self._unplanned_count += 1
        else:
            self._measured += seconds
            self._planned += planned.seconds

    def seconds(self, planned: PlannedRun) -> float | None:
        """Return how long a run will take, or None if nothing is known of such runs yet."""
        if planned.seconds is not None:
            return planned.seconds * (self._measured / self._planned if self._planned else 1.0)
        return self._unplanned / self._unplanned_count if self._unplanned_count else None

    def total(self, runs: Iterable[PlannedRun], side_by_side: int = 1) -> float | None:
        """Return how long runs will take, or None if it is not known of some."""
        each = [self.seconds(planned) for planned in runs]
        return None if None in each else sum(filter(None, each)) / side_by_side
