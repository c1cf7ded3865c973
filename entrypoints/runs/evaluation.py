"""Messages that keep the protocol and still cannot be evaluated, such as those of steps without any length."""

from __future__ import annotations

import traceback
from typing import Callable, TypeVar

from entrypoints.results.outcome import Outcome, inconsistent

# What numbers raise that no run can have. Other errors are of this host, as OSError, or defects of ours.
IMPOSSIBLE = (ArithmeticError, LookupError, TypeError, ValueError)
T = TypeVar("T")


def evaluated(evaluate: Callable[[], T], discard: Callable[[Outcome], T]) -> T:
    """Return what `evaluate` makes of a child's messages. If it cannot, return what `discard` makes of the reason."""
    try:
        return evaluate()
    except IMPOSSIBLE as error:
        function = traceback.extract_tb(error.__traceback__)[-1].name
        cause = f"what was reported cannot be evaluated: {type(error).__name__} in {function}: {error}"
    return discard(inconsistent([cause]))
