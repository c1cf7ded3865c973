"""Faults of serving: load, client, verdicts and the search for goodput."""

from __future__ import annotations

from faults import Fault


def _fault(name: str, symbol: str, was: str, becomes: str, *tests: str, side: str = "serving") -> Fault:
    return Fault(name, f"entrypoints/{side}", symbol, was, becomes, tests, "py38")


CLIENT, LOAD = "tests/inside/serving/test_client.py", "tests/inside/serving/test_arrivals.py"
PROOFS, VERDICTS = "tests/inside/serving/test_proofs.py", "tests/inside/results/test_serving.py"
SERVING = (
    _fault(
        *("latency counts from when the client sent the request", "Answered.first"),
        *("self.tokens[0] - self.due", "self.tokens[0] - self.sent", CLIENT, "-k", "late_itself"),
    ),
    _fault(
        *("requests of an open loop are due when they are sent", "Client._open"),
        *(
            "self._request(load, number, start + planned.at, answers)",
            "self._request(load, number, time.monotonic(), answers)",
            CLIENT,
            "-k",
            "was_due",
        ),
    ),
    _fault(
        *("all parts of a run have the same draws", "plan", 'f"{seed}/{part}"', 'f"{seed}"'),
        *(LOAD, "-k", "the_part_decide"),
    ),
    _fault(
        *("bursts are smooth", "arrivals", "draws.gammavariate(shape, 1 / (rate * shape))"),
        *("draws.gammavariate(1 / shape, shape / rate)", LOAD, "-k", "spread"),
    ),
    _fault(
        *(
            "one more may be over the limit",
            "most_over",
            "total > 1 - CONFIDENCE",
            "total - chance > 1 - CONFIDENCE",
        ),
        *(PROOFS, "-k", "mlperf_allows"),
    ),
    _fault(
        *("a rate that failed later still counts as passed", "RateSearch.passed"),
        *("rate < self.failed", "rate <= self.failed", PROOFS, "-k", "only_once"),
    ),
    _fault(
        *("a load at a high rate is over before its queue is long", "enough"),
        *("max(least, math.ceil(rate * limit / WIDTH))", "least", PROOFS, "-k", "last_as_long"),
    ),
    _fault(
        *("all searches try the same rates", "first_rate", "asked * (1 + WIDTH) ** random.SystemRandom().random()"),
        *("asked", PROOFS, "-k", "up_to_a_step"),
    ),
    _fault(
        *("a rise of milliseconds is a queue", "queue_grew", 'rise < RISE * serving["first_token_limit"]', "False"),
        *(VERDICTS, "-k", "small_beside"),
        side="results",
    ),
    _fault(
        *("a queue that grows has percentiles", "percentile_of_served"),
        *("serving.late(requests, load) or serving.queue_grew(requests, load)", "serving.late(requests, load)"),
        *(VERDICTS, "-k", "no_percentile"),
        side="results",
    ),
    _fault(
        *("goodput needs no proof by the timed window", "goodput"),
        *("serving.failing(requests, load)", "None"),
        *(VERDICTS, "-k", "goodput"),
        side="results",
    ),
)
