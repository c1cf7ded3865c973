"""Rules about requests to an engine: the load is the seeded one, and all numbers follow from the requests."""

from __future__ import annotations

import math
from typing import Iterator, Mapping, Sequence

from entrypoints.contract.choices import SERVING
from entrypoints.contract.messages import Served, Trial
from entrypoints.results import serving
from entrypoints.results.metrics.metric import LEAST
from entrypoints.results.quantiles import QUANTILES, quantile
from entrypoints.results.serving import GROWTH, MOST_LISTED
from entrypoints.rules.facts import Document, Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics
from entrypoints.serving.load import CLOSED, Planned, Serving, plan
from entrypoints.serving.rate_search import enough

PERCENTILES = {  # metrics, with the times that they are of and their share
    **{f"time_to_first_token_p{number}": ("time_to_first_token", number / 100) for number in (50, 90, 99)},
    **{f"time_per_output_token_p{number}": ("time_per_output_token", number / 100) for number in (50, 90, 99)},
    **{f"time_between_tokens_p{number}": ("time_between_tokens", number / 100) for number in (50, 90, 99)},
}
TIMED = 2  # which part of a run's requests is timed (worker/serving_run.py)
PASSES = "requests prove that the limits hold"


def unusable(facts: Facts) -> bool:
    """Return whether percentiles of an engine's requests say nothing: the client was late, or the queue grew."""
    given, load = facts.document.get("serving"), facts.served
    if given is None or load is None or not given["count"]:
        return False
    slowest = given["quantiles"]["sent_late"]["p99"]
    late = load["arrivals"] != "offline" and slowest > serving.LATE * load["first_token_limit"]
    grew = (given["failing"] or "").startswith(serving.QUEUE_GREW) and (given["queue_growth"]["value"] or 0.0) >= GROWTH
    return bool(late or grew)


def requests_of(facts: Facts) -> list[Served] | None:
    """Return the timed requests, without their times between tokens but with the right sum; None if not listed."""
    given, latencies = facts.document.get("serving"), facts.document["requests"].get("latencies")
    if given is None or given["requests"] is None or (given["count"] and latencies is None):
        return None
    columns = (given["requests"][name] for name in ("due", "sent_late", "prompt_tokens", "time_to_first_token"))
    rows = zip(*columns, given["requests"]["new_tokens"], latencies or ())
    return [
        Served(due, late, int(prompt), first, _even(int(new), latency - first))
        for due, late, prompt, first, new, latency in rows
    ]


def _even(new: int, seconds: float) -> Sequence[float]:
    return [seconds / (new - 1)] * (new - 1) if new > 1 else []


@rule(
    "`serving` and `configuration.serving` are there exactly in the task `serving`, and metrics of an engine are too; "
    "its engine is that of the configuration; `count` is that of the timed steps",
    "Only an engine serves.",
)
def serving_is_that_of_its_task(facts: Facts) -> Iterator[str]:
    """Look for the parts that only this task has."""
    given, load = facts.document.get("serving"), facts.served
    if (facts.task == SERVING) != (load is not None) or (load is None) != (given is None):
        yield f"serving: {facts.task} has {'a' if load else 'no'} load and {'an' if given else 'no'} engine"
        return
    if given is None or load is None:
        return
    if given["engine"] and given["engine"]["name"] != load["engine"]:
        yield differ("serving.engine.name", given["engine"]["name"], load["engine"], "configuration.serving.engine")
    if facts.count and given["engine"] is None:
        yield "serving.engine: nothing answers requests"
    if given["count"] != max(facts.timed_count, 0):
        yield differ("serving.count", given["count"], facts.timed_count, "the timed steps")


@rule(
    "requests are listed up to 1000; each first token is there before the answer's last one, and after the client sent "
    "the request; `requests.latencies` are those of the same requests",
    "A token does not arrive before it was asked for.",
    ROUNDING,
)
def requests_to_an_engine_are_possible(facts: Facts) -> Iterator[str]:
    """Compare the times of each request with each other."""
    given = facts.document.get("serving")
    if given is None:
        return
    rows = given["requests"]
    if (rows is None) != (given["count"] > MOST_LISTED):
        yield f"serving.requests: they are listed if there are at most {MOST_LISTED}"
        return
    for name, column in (rows or {}).items():
        if len(column) != given["count"]:
            yield differ(f"serving.requests.{name}", len(column), given["count"], "serving.count")
            return
    latencies = facts.document["requests"].get("latencies")
    for number, served in enumerate(requests_of(facts) or ()):
        latency = latencies[number] if latencies else 0.0
        if served.late > served.first or (served.first > latency and not near(served.first, latency)):
            times = f"sent {served.late!r} s late, first token {served.first!r}, last {latency!r}"
            yield f"serving.requests of answer {number}: {times}"
            return


@rule(
    "listed requests were due, and had lengths, as the seed says; of a closed loop only the lengths; there are as many "
    "as were asked for, or in a search for goodput as prove its rate",
    "The load is what was asked for: another one is another measurement.",
    "1e-6 s: times are differences of a clock's",
)
def load_is_the_seeded_one(facts: Facts) -> Iterator[str]:
    """Draw the load again. A run that was cut short has answered some of it."""
    load, requests = facts.served, requests_of(facts)
    if load is None or not facts.configuration["steps"]:
        return
    count = facts.configuration["steps"] - facts.configuration["warmup_steps"]
    rate = serving.found_rate(_trials(facts), _typed(load)) if load["find_goodput"] else None
    if rate:
        count = enough(rate, load["first_token_limit"], count)
    if facts.completed and facts.document["serving"]["count"] != count:
        yield differ("serving.count", facts.document["serving"]["count"], count, "the requests of this load")
        return
    if not requests:
        return
    planned = plan(_typed(load), count, facts.configuration["seed"], TIMED, rate)
    expected = sorted(_key(each, load) for each in planned)
    given = sorted(_key(Planned(each.due, each.prompt_tokens, each.new_tokens), load) for each in requests)
    if facts.completed and given != expected:
        yield f"serving.requests: they are not the {count} that the seed gives"
    elif not facts.completed and len(given) > len(expected):
        yield differ("serving.count", len(given), len(expected), "configuration.steps")


def _key(planned: Planned, load: Document) -> tuple[float, int, int]:
    due = 0.0 if load["arrivals"] == CLOSED else round(planned.at, 5)
    return due, planned.prompt, planned.new


@rule(
    "quantiles, counts over the limits, tokens, `failing` and `queue_growth` are those of the requests; percentiles "
    "are there exactly if there are enough of them (11, 64, 662), the client was not late and the queue did not grow",
    "They are the same measurement in other words.",
    "1e-6 of a number",
)
def serving_follows_from_its_requests(facts: Facts) -> Iterator[str]:
    """Compute them again from the listed requests, and the metrics from the quantiles."""
    given, load, requests = facts.document.get("serving"), facts.served, requests_of(facts)
    if given is None or load is None:
        return
    if requests is not None:
        yield from _from_requests(given, requests, _typed(load))
    counts = dict.fromkeys(("time_to_first_token", "time_per_output_token"), given["count"])
    counts["time_between_tokens"] = given["new_tokens"] - given["count"]
    expected: dict[str, float | None] = {}
    for metric, (name, share) in PERCENTILES.items():
        quantiles = given["quantiles"][name]
        enough = quantiles and counts[name] >= LEAST[share] and not unusable(facts)
        expected[metric] = quantiles[f"p{round(100 * share)}"] if enough else None
    if requests is None or all(served.gaps for served in requests):  # answers of one token have no time per token
        yield from unequal_metrics(facts, expected, "serving.quantiles")
    late = given["quantiles"]["sent_late"]
    enough = late and given["count"] >= LEAST[0.99]
    yield from unequal_metrics(facts, {"sent_late_p99": late["p99"] if enough else None}, "serving.quantiles.sent_late")


def _from_requests(given: Document, requests: Sequence[Served], load: Serving) -> Iterator[str]:
    totals = {
        "prompt_tokens": sum(served.prompt_tokens for served in requests),
        "new_tokens": sum(served.new_tokens for served in requests),
    }
    for name, value in totals.items():
        if given[name] != value:
            yield differ(f"serving.{name}", given[name], value, "serving.requests")
    for name in serving.TIMES:
        values, quantiles = serving.times(requests, name), given["quantiles"][name]
        if bool(values) != bool(quantiles):
            yield f"serving.quantiles.{name}: there are some where there are requests"
        for share in QUANTILES if values and quantiles else ():
            expected = quantile(values, share / 100)
            if not math.isclose(quantiles[f"p{share}"], expected, rel_tol=1e-6, abs_tol=1e-9):
                yield differ(f"serving.quantiles.{name}.p{share}", quantiles[f"p{share}"], expected, "serving.requests")
                break
    change = serving.growth(requests, load)
    said = given["queue_growth"]["value"]
    if (said is None) != (change is None) or (
        change and not math.isclose(said, change.change, rel_tol=1e-4, abs_tol=1e-6)
    ):
        yield differ("serving.queue_growth", said, change and change.change, "serving.requests")
    if requests:
        yield from _judged(given, requests, load)


def _judged(given: Document, requests: Sequence[Served], load: Serving) -> Iterator[str]:
    """Judge the limits again, but where a request lies on one of them."""
    over: Mapping[str, int] = serving.over_limits(requests, load)
    for name, count in over.items():
        limit = load["first_token_limit"] if name == "time_to_first_token" else load["token_limit"]
        on_it = sum(math.isclose(value, limit, rel_tol=1e-6) for value in serving.times(requests, name))
        if abs(given["over_limits"][name] - count) > on_it:
            yield differ(f"serving.over_limits.{name}", given["over_limits"][name], count, "serving.requests")
            return
    failing = serving.failing(requests, load)
    if (given["failing"] is None) != (failing is None) and dict(given["over_limits"]) == dict(over):
        yield differ("serving.failing", given["failing"], failing or PASSES, "serving.requests")


@rule(
    "`input_token_throughput` and `output_token_throughput` = tokens / window, `_per_device` = that / "
    "`accelerator.count`; `energy_per_output_token` = `energy` / new tokens",
    "They are the same measurement in other words.",
    ROUNDING,
)
def token_rates_follow_from_the_requests(facts: Facts) -> Iterator[str]:
    """Divide tokens by the window again."""
    given, window, joules = facts.document.get("serving"), facts.window, facts.metric("energy")
    if given is None:
        return
    new = given["new_tokens"]
    rate = new / window if window and given["count"] else None
    devices = facts.document["accelerator"].get("count")
    expected = {
        "input_token_throughput": given["prompt_tokens"] / window if window and given["count"] else None,
        "output_token_throughput": rate,
        "output_token_throughput_per_device": rate / devices if rate is not None and devices else None,
        "energy_per_output_token": joules / new if joules is not None and new else None,
    }
    yield from unequal_metrics(facts, expected, "serving")


@rule(
    "trials are there only with `find_goodput`, each with the rate that the search asks for next; `goodput` is the "
    "rate that the search found, if the timed requests prove it, and there is none otherwise",
    "Goodput is proved twice: by trials, and by what is timed.",
    ROUNDING,
)
def goodput_follows_from_the_trials(facts: Facts) -> Iterator[str]:
    """Search again, with the answers that trials gave."""
    given, load = facts.document.get("serving"), facts.served
    if given is None or load is None:
        return
    trials = _trials(facts)
    if trials and not load["find_goodput"]:
        yield differ("serving.trials", len(trials), 0, "configuration.serving.find_goodput")
        return
    wrong = serving.first_unasked(trials, _typed(load))
    if wrong is not None:
        yield f"serving.trials.{wrong}.rate: the search does not ask for {trials[wrong].rate!r}"
        return
    found = serving.found_rate(trials, _typed(load)) if load["find_goodput"] else None
    expected = found if given["count"] and given["failing"] is None else None
    yield from unequal_metrics(facts, {"goodput": expected}, "serving.trials")


def _trials(facts: Facts) -> list[Trial]:
    trials = facts.document["serving"]["trials"]
    return [Trial(0.0, each["seconds"], each["rate"], int(each["requests"]), each["reason"]) for each in trials]


def _typed(load: Document) -> Serving:
    made: Serving = dict(load)  # type: ignore[assignment]
    return made
