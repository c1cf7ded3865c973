"""Whether the requests of a run prove that a percentile is within its limit."""

from __future__ import annotations

from functools import lru_cache

REQUESTS = 700  # timed by default, and in a trial of a rate: 662 prove a 99th percentile with one over the limit
FEWEST = 459  # that prove a 99th percentile, with none over the limit
CONFIDENCE = 0.99  # that the percentile of all requests to come is within the limit


@lru_cache(maxsize=4096)
def most_over(count: int, share: float) -> int | None:
    """Return how many of `count` requests may be over a limit if `share` of all are to be within it; None if `count`
    are too few.

    MLPerf Inference's early stopping (inference_rules): with one more over the limit than the returned number, a system
    that just misses the percentile would be called fit in more than one run of a hundred. Of 99 %, 459 requests may
    have none and 662 one.
    """
    chance, most = share**count, None  # of so few over the limit, where exactly 1 - share of all are
    total = chance
    for over in range(count):
        if total > 1 - CONFIDENCE:
            break
        most = over
        chance *= (count - over) / (over + 1) * (1 - share) / share
        total += chance
    return most
