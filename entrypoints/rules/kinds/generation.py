"""Rules about texts that were generated: times of tokens are parts of the times of steps."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.contract.cards import generates
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.results.metrics.by_workload import (
    OF_CHAINS,
    OF_GENERATION,
    OF_POINTS,
    OF_SERVING,
    TOKEN_TIMES,
    impossible_metrics,
)
from entrypoints.results.metrics.metric import LEAST
from entrypoints.rules.energy import JOULES_PER_WATT_HOUR, WINDOWS
from entrypoints.rules.facts import FIRST_VERSION, Facts, near
from entrypoints.rules.identity import card_of
from entrypoints.rules.rule import ROUNDING, differ, rule

PERCENTILES = {
    "time_to_first_token": {50: 0.5, 99: 0.99},
    "time_between_tokens": {50: 0.5, 90: 0.9, 99: 0.99},
}
# Between texts a device waits for data, and then only for the host.
HOST_SHARE, HOST_SECONDS = 0.05, 0.005  # of the window; s of each step
# A stall may take most of a run, but tokens in between show how long they take.
LONGEST_STALL = 50.0  # times the rest of a run


@rule(
    "metrics of tokens, generated texts, Markov chains and micro-benchmarks are there only for workloads that can "
    "have them",
    "Images have no tokens.",
)
def metrics_fit_the_workload(facts: Facts) -> Iterator[str]:
    """Look for metrics that the card and the task rule out."""
    card = card_of(facts)
    if card is not None:
        impossible = impossible_metrics(card.problem, facts.task, facts.ranks)
    else:
        impossible = frozenset() if facts.task == "sampling" else OF_CHAINS
        impossible |= frozenset() if facts.task == "inference" else OF_GENERATION
        impossible |= frozenset() if facts.task == MICROBENCHMARK else OF_POINTS
        impossible = impossible - TOKEN_TIMES if facts.served else impossible | OF_SERVING
    named = facts.document["schema_version"] != FIRST_VERSION
    for name in impossible & facts.metrics.keys():
        if named or facts.metric(name) is not None:
            yield f"metrics.{name}: {facts.document['workload']['name']} {facts.task} cannot have it"


@rule(
    "of texts that were generated, prompts, further tokens and waits for data fill the timed window; there is no "
    "padding",
    "A text is its prompt and then token by token.",
    "5 % of the window and 5 ms a step, in which the host works",
)
def generation_fills_the_window(facts: Facts) -> Iterator[str]:
    """Add up the seconds of prompts, tokens and waits."""
    window, lengths = facts.window, _lengths(facts)
    if lengths is None or not window or facts.timed_count <= 0:
        return
    prompt, new = lengths
    if facts.metric("padding_fraction"):
        yield differ("metrics.padding_fraction", facts.metric("padding_fraction"), 0.0, "prompts of one length")
    prefill, decode = facts.metric("prefill_throughput"), facts.metric("decode_throughput")
    if prefill is None or (decode is None and new > 1):
        yield f"metrics.decode_throughput: {decode!r} of {facts.timed_units} texts, and prompts at {prefill!r}"
        return
    waited = _waited(facts)
    if waited is None or not prefill:
        return
    seconds = facts.timed_units * (prompt / prefill + ((new - 1) / decode if decode else 0.0))
    if seconds + waited < (1 - HOST_SHARE) * window - HOST_SECONDS * facts.timed_count:
        yield differ("metrics.decode_throughput", seconds, window - waited, "the timed window less waits for data")


def _waited(facts: Facts) -> float | None:
    waits, share = facts.steps["data_wait_seconds"], facts.metric("data_wait_fraction")
    if waits is not None:
        return math.fsum(waits[facts.untimed :])
    return None if share is None or facts.window is None else share * facts.window


def _lengths(facts: Facts) -> tuple[int, int] | None:
    """Return the tokens of a prompt and the new ones of a text, by the card; None if it generates none."""
    card = card_of(facts)
    if card is None or not generates(card.problem, facts.task):
        return None
    return card.problem["generation"]["prompt"], card.problem["generation"]["new"]


@rule(
    "percentiles of the times of tokens are there exactly if there are enough of them (11, 64, 662), and rise; none is "
    "longer than the longest step, or than their sum allows; the 90th is at least a fiftieth of the mean",
    "They are parts of steps, and their sum is that of the throughputs.",
    ROUNDING,
)
def token_times_fit_the_throughput(facts: Facts) -> Iterator[str]:
    """Compare percentiles with number and sum of the times."""
    lengths, quantiles = _lengths(facts), facts.steps["quantiles"]
    if lengths is None or quantiles is None or facts.timed_count <= 0:
        return
    prompt, new = lengths
    prefill, decode = facts.metric("prefill_throughput"), facts.metric("decode_throughput")
    sums = {
        "time_to_first_token": (facts.timed_count, facts.timed_units * prompt / prefill if prefill else None),
        "time_between_tokens": (
            facts.timed_count * (new - 1),
            facts.timed_units * (new - 1) / decode if decode else None,
        ),
    }
    for name, shares in PERCENTILES.items():
        before, (count, total) = 0.0, sums[name]
        for number, share in shares.items():
            value, field = facts.metric(f"{name}_p{number}"), f"metrics.{name}_p{number}"
            if (value is not None) != (count >= LEAST[share] and total is not None):
                yield f"{field}: {value!r} of {count} times, where {LEAST[share]} are needed"
            elif value is not None and total is not None:
                most = min(quantiles["p100"], total / (count - _place_above(count, share)))
                least = max(before, total / count / LONGEST_STALL if number == 90 else 0.0)
                if not (least <= value <= most or near(value, least) or near(value, most)):
                    yield f"{field}: {value!r} where {count} times of {total!r} s together allow {least!r} to {most!r}"
                before = value


def _place_above(count: int, share: float) -> int:
    """Return the place, from 0, from which on values are at least a quantile."""
    return min(math.floor(share * (count - 1)) + 1, count - 1)


@rule(
    "`decode_tokens_per_watt_hour` is there only with `energy` and `decode_throughput`; the energy of its tokens is at "
    "most `energy`",
    "Texts are continued in a part of the timed window.",
    "1e-6 of the energy, which is interpolated at the edges",
)
def energy_of_decoding_is_part_of_it(facts: Facts) -> Iterator[str]:
    """Compare the energy of the tokens with that of the whole window."""
    rate, joules, lengths = facts.metric("decode_tokens_per_watt_hour"), facts.metric("energy"), _lengths(facts)
    if rate is None:
        return
    if joules is None or not facts.metric("decode_throughput") or rate <= 0:
        yield differ("metrics.decode_tokens_per_watt_hour", rate, None, "energy and decode_throughput")
    elif lengths is not None:
        used = JOULES_PER_WATT_HOUR * facts.timed_units * (lengths[1] - 1) / rate
        if used > joules * (1 + WINDOWS):
            yield differ("metrics.decode_tokens_per_watt_hour: its energy", used, joules, "at most metrics.energy")
