"""Rules about requests: latencies, their parts and percentiles."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.results.metrics.metric import LEAST
from entrypoints.results.quantiles import QUANTILES, quantile
from entrypoints.results.result import MOST_STEPS, PARTS
from entrypoints.rules.facts import ABSOLUTE, Document, Facts, mean_bounds, near
from entrypoints.rules.kinds.serving import unusable
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics

PERCENTILES = {"latency_p50": 0.50, "latency_p90": 0.90, "latency_p95": 0.95, "latency_p99": 0.99, "latency_max": 1.0}
BUSY_SHARE = 0.85  # 2 and 3 clients on a busy host with two processors: 92 %
STALL = 0.05  # s that a busy host keeps a client from a processor: 15 ms were seen, of a window of 17 ms
PARTS_SLACK = 1e-6  # the rest of a request is never negative, so that parts may exceed it by a rounding


@rule(
    "there are `requests` exactly if `configuration.concurrency` is given, or an engine serves, and steps were timed; "
    "each is a timed step",
    "An answered request is a step.",
)
def requests_are_the_timed_steps(facts: Facts) -> Iterator[str]:
    """Compare the requests with the steps."""
    requests = facts.document["requests"]
    expected = facts.timed_count if facts.has_requests else 0
    count = requests.get("count", 0)
    if count != max(expected, 0):
        yield differ("requests.count", count, expected, "the timed steps")
    if count:
        if (requests["latencies"] is None) != (count > MOST_STEPS):
            yield f"requests.latencies: they are listed if there are at most {MOST_STEPS}"
        elif requests["latencies"] is not None and len(requests["latencies"]) != count:
            yield differ("requests.latencies", len(requests["latencies"]), count, "requests.count")


@rule(
    "quantiles of latencies are those of `requests.latencies`; all quantiles rise; no part is longer than the longest "
    "request",
    "They stand for the requests where these are too many to list.",
    ROUNDING,
)
def latencies_have_their_quantiles(facts: Facts) -> Iterator[str]:
    """Compute the quantiles again."""
    requests = facts.document["requests"]
    if "count" not in requests:
        return
    yield from _rising(requests["quantiles"], "requests.quantiles")
    longest = requests["quantiles"]["p100"]
    for name in PARTS:
        part = requests["parts"][name]
        yield from _rising(part, f"requests.parts.{name}")
        if part["p100"] > longest and not near(part["p100"], longest):
            yield differ(f"requests.parts.{name}.p100", part["p100"], longest, "at most the longest request")
    latencies = requests["latencies"]
    if latencies:
        ordered = sorted(latencies)
        for share in QUANTILES:
            value, expected = requests["quantiles"][f"p{share}"], quantile(ordered, share / 100)
            if not near(value, expected):
                yield differ(f"requests.quantiles.p{share}", value, expected, "requests.latencies")


@rule(
    "`latency_p50` to `max` = those of `requests.quantiles`, and none of fewer requests than each needs; "
    "`latency_mean` = the mean of the latencies = the sum of the means of its parts",
    "A percentile of too few requests is little more than the slowest of them.",
    "1e-9 of a number; the sum of the parts 1e-6",
)
def latencies_follow_from_the_requests(facts: Facts) -> Iterator[str]:
    """Compare the metrics of latency with the requests."""
    requests = facts.document["requests"]
    count, quantiles = requests.get("count", 0), requests.get("quantiles")
    for name, share in PERCENTILES.items():
        there = quantiles and count >= LEAST[share] and (share == 1 or not unusable(facts))
        expected = quantiles[f"p{round(100 * share)}"] if there else None
        yield from unequal_metrics(facts, {name: expected}, "requests")
    mean, latencies = facts.metric("latency_mean"), requests.get("latencies")
    if latencies:
        yield from unequal_metrics(facts, {"latency_mean": math.fsum(latencies) / len(latencies)}, "requests")
    elif (mean is None) != (not count):
        yield differ("metrics.latency_mean", mean, None, "requests.count")
    elif mean is not None and quantiles and not quantiles["p0"] <= mean <= quantiles["p100"]:
        yield f"metrics.latency_mean: {mean!r} lies outside of requests.quantiles"
    parts = [facts.metric(f"latency_{name}_mean") for name in PARTS]
    seconds = [part for part in parts if part is not None]
    if mean is not None and len(seconds) == len(parts) and not near(math.fsum(seconds), mean, PARTS_SLACK):
        yield differ("metrics.latency_mean", mean, math.fsum(seconds), "the sum of its parts")


@rule(
    "each part's mean lies where its quantiles allow, and each of its quantiles is at most that of the latencies",
    "A part of a request is no longer than the request.",
    "twice the range of a part / the number of requests; 1e-6 of a quantile",
)
def parts_fit_their_requests(facts: Facts) -> Iterator[str]:
    """Bound the means of the parts, and compare their quantiles with those of the latencies."""
    requests = facts.document["requests"]
    if "count" not in requests:
        return
    whole = requests["quantiles"]
    for name in PARTS:
        part, mean = requests["parts"][name], facts.metric(f"latency_{name}_mean")
        larger = next((key for key, value in part.items() if value > whole[key] * (1 + PARTS_SLACK) + ABSOLUTE), None)
        if larger:
            yield differ(
                f"requests.parts.{name}.{larger}", part[larger], whole[larger], "at most that of the latencies"
            )
        low, high = mean_bounds(part, requests["count"])
        if mean is not None and not (low <= mean <= high or near(mean, low) or near(mean, high)):
            yield f"metrics.latency_{name}_mean: {mean!r} where its quantiles allow {low!r} to {high!r}"


@rule(
    "the latencies together are at most `concurrency` x the window + as many of the longest, and at least "
    "85 % of `concurrency` x (the window - twice the longest), less the share that threads waited for a processor",
    "Each client waits for its answer before it sends again, and sends again when it has one.",
    "a client may take 15 % of its time and 0.05 s to send again, where threads compete for the interpreter, and "
    "programs for processors",
)
def clients_wait_for_their_answers(facts: Facts) -> Iterator[str]:
    """Compare the time that clients waited with the time that there was."""
    requests, window, clients = facts.document["requests"], facts.window, facts.configuration["concurrency"]
    mean = facts.metric("latency_mean")
    if "count" not in requests or window is None or mean is None or not clients:
        return
    longest, count = requests["quantiles"]["p100"], requests["count"]
    across = clients * longest  # begun before the window
    if requests["latencies"] and count > clients:
        across = math.fsum(sorted(requests["latencies"])[-clients:])
    waited, most = mean * count, clients * window + across
    ran = 1 - (facts.counted("run_delay") or 0.0) / 100  # a client that gets no processor sends nothing
    least = ran * BUSY_SHARE * clients * (window - STALL - 2 * longest)
    if waited < least:
        yield differ("requests.latencies", waited, least, f"at least most of the window for each of {clients} clients")
    if waited > most and not near(waited, most):
        yield differ("requests.latencies", waited, most, f"at most the window for each of {clients} clients")


def _rising(quantiles: Document, field: str) -> Iterator[str]:
    values = [quantiles[f"p{share}"] for share in QUANTILES]
    if values != sorted(values) or values[0] < 0:
        yield f"{field}: {values} do not rise"
