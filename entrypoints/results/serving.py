"""What requests to an engine show: whether limits hold, whether the queue grew, and the document's part `serving`."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Callable, Mapping, Sequence

from entrypoints.contract.messages import Served, Trial
from entrypoints.results.json_values import Json, number
from entrypoints.results.measurement import Measurement
from entrypoints.results.quantiles import quantile, quantiles
from entrypoints.results.steadiness import FEWEST_STEPS, Drift, drift
from entrypoints.serving.early_stopping import most_over
from entrypoints.serving.load import OFFLINE, OPEN, Serving
from entrypoints.serving.rate_search import WIDTH, RateSearch

SHARE = 0.99  # of requests that are to keep a limit
LATE = 0.01  # of the limit of the first token, that the 99th percentile of the client's own lateness may take
# Times the mean: by so much the time to the first token rises over a window in which the queue grows. From nothing to
# T it would be 1.6 as `drift` counts it; 0.5 leaves room for the beginning, when the queue is empty.
GROWTH = 0.5
RISE = 0.1  # of the limit of the first token: a smaller rise is no matter, and noise of short times is often larger
CLIENT_LATE, QUEUE_GREW = "the client was late itself", "the queue grew"  # how reasons begin
MOST_LISTED = 1000

Number = Callable[[Served], "float | None"]
TIMES: Mapping[str, Number] = {
    "sent_late": lambda served: served.late,
    "time_to_first_token": lambda served: served.first,
    "time_per_output_token": lambda served: served.per_token,
}


def times(requests: Sequence[Served], name: str) -> list[float]:
    """Return one of TIMES of each request that has it."""
    values = map(TIMES[name], requests)
    return [value for value in values if value is not None]


def over_limits(requests: Sequence[Served], serving: Serving) -> Mapping[str, int]:
    """Return how many requests are over each limit, by the name of the time that it is of."""
    limits = {"time_to_first_token": serving["first_token_limit"], "time_per_output_token": serving["token_limit"]}
    return {name: sum(value > limit for value in times(requests, name)) for name, limit in limits.items()}


def over(requests: Sequence[Served], serving: Serving, count: int) -> str | None:
    """Return which limit cannot be kept any more by `count` requests of which these were answered; None if all can."""
    allowed = most_over(count, SHARE)
    if allowed is None:
        return f"{count} requests prove no 99th percentile"
    for name, beyond in over_limits(requests, serving).items():
        if beyond > allowed:
            return f"{name}: {beyond} of {len(requests)} requests are over the limit, and of {count} {allowed} may be"
    return None


def failing(requests: Sequence[Served], serving: Serving) -> str | None:
    """Return why requests do not prove that an engine keeps its limits at a rate; None if they do."""
    return late(requests, serving) or queue_grew(requests, serving) or over(requests, serving, len(requests))


def late(requests: Sequence[Served], serving: Serving) -> str | None:
    """Return why the client was too slow for the load; None if it was not, and where it does not matter."""
    if serving["arrivals"] == OFFLINE or not requests:
        return None
    slowest, most = quantile(times(requests, "sent_late"), SHARE), LATE * serving["first_token_limit"]
    if slowest <= most:
        return None
    return f"{CLIENT_LATE}: 99 % of the requests were sent within {slowest:.3g} s, and {most:.3g} s are allowed"


def growth(requests: Sequence[Served], serving: Serving) -> Drift | None:
    """Return how the time to the first token changed over the load, from start to end over its mean; None if that is no
    open loop, or too few."""
    if serving["arrivals"] not in OPEN or len(requests) < FEWEST_STEPS:
        return None
    firsts = [served.first for served in sorted(requests, key=lambda served: served.due)]
    return drift(firsts) if min(firsts) > 0 else None


def queue_grew(requests: Sequence[Served], serving: Serving) -> str | None:
    """Return why percentiles of these requests say nothing: the queue grew, and they would be others with more
    requests. None if it did not."""
    change = growth(requests, serving)
    if change is None or change.change < GROWTH or change.low <= 0:
        return None
    rise = change.change * fmean(served.first for served in requests)
    if rise < RISE * serving["first_token_limit"]:
        return None
    return (
        f"{QUEUE_GREW}: time to first token rose by {rise:.2g} s, {change.change:.0%} of its mean, over the window "
        f"({change.low:.0%} to {change.high:.0%}), so that the rate is more than the engine serves"
    )


def found_rate(trials: Sequence[Trial], load: Serving) -> float | None:
    """Return the rate that a search for goodput ended with; None if it found none."""
    search = _search(trials, load)
    for trial in trials:
        if not says_nothing(trial.reason):
            search.tell(trial.rate, not trial.reason)
    return search.found


def _search(trials: Sequence[Trial], load: Serving) -> RateSearch:
    """Return the search that began as trials say."""
    return RateSearch(trials[0].rate if trials else load["rate"] or 1.0)


def says_nothing(reason: str | None) -> bool:
    """Return whether a trial with this reason says nothing of the engine: the client was late."""
    return bool(reason and reason.startswith(CLIENT_LATE))


def first_unasked(trials: Sequence[Trial], load: Serving) -> int | None:
    """Return the number of the first trial with a rate that the search does not ask for; None if it asks for all.

    A trial at the rate that was found, when no other is asked for, was to be the timed window, and failed.
    """
    lowest, search = load["rate"] or 1.0, _search(trials, load)
    if not lowest * (1 - 1e-9) <= search.first <= lowest * (1 + WIDTH) * (1 + 1e-9):
        return 0
    for place, trial in enumerate(trials):
        asked = search.due()
        if asked is None or not math.isclose(asked, trial.rate):
            return place
        if not says_nothing(trial.reason):
            search.tell(trial.rate, not trial.reason)
    return None


def serving(measurement: Measurement) -> Json | None:
    """Return the document's part `serving`; None of another task."""
    load, engine = measurement.serving, measurement.engine
    if load is None:
        return None
    requests = measurement.timed_served
    change = growth(requests, load)
    return {
        "engine": engine and {"name": engine.name, "version": engine.version, "settings": dict(engine.settings)},
        "count": len(requests),
        "prompt_tokens": sum(served.prompt_tokens for served in requests),
        "new_tokens": sum(served.new_tokens for served in requests),
        "over_limits": dict(over_limits(requests, load)),
        "failing": failing(requests, load) if requests else "no request was answered in the timed window",
        "queue_growth": number(change and change.change, "1", None if change else _no_growth(load)),
        "quantiles": {
            **{name: _quantiles(times(requests, name)) for name in TIMES},
            "time_between_tokens": gaps(requests),
        },
        "requests": listed(requests) if len(requests) <= MOST_LISTED else None,
        "trials": [
            {
                "rate": trial.rate,
                "requests": trial.requests,
                "seconds": trial.ended - trial.began,
                "reason": trial.reason,
            }
            for trial in measurement.trials
        ],
    }


def listed(requests: Sequence[Served]) -> Json:
    """Return requests in the order of their answers, as columns."""
    columns = zip(
        *((served.due, served.late, served.first, served.prompt_tokens, served.new_tokens) for served in requests)
    )
    names = ("due", "sent_late", "time_to_first_token", "prompt_tokens", "new_tokens")
    return dict(zip(names, map(list, columns))) or {name: [] for name in names}


def gaps(requests: Sequence[Served]) -> Json | None:
    """Return quantiles of the times between tokens, of all requests together."""
    return _quantiles([gap for served in requests for gap in served.gaps])


def _quantiles(values: Sequence[float]) -> Json | None:
    return quantiles(values) if values else None


def _no_growth(load: Serving) -> str:
    few = f"fewer than {FEWEST_STEPS} requests were answered"
    return few if load["arrivals"] in OPEN else "requests of a closed loop wait for each other, and those at once do so"
