"""The load on an engine: when each request is due, and how long its prompt and its answer are. All of it is seeded."""

from __future__ import annotations

import random
from array import array
from itertools import accumulate
from typing import NamedTuple, Sequence, Tuple, TypedDict

POISSON, CONSTANT, GAMMA = "poisson", "constant", "gamma"
OPEN = (POISSON, CONSTANT, GAMMA)  # requests are due at times of their own, whatever the engine does
CLOSED, OFFLINE = "closed", "offline"  # a client sends when it has its answer; all requests are due at once
ARRIVALS = (*OPEN, CLOSED, OFFLINE)
TRANSFORMERS, VLLM = "transformers", "vllm"
ENGINES = (TRANSFORMERS, VLLM)

Range = Tuple[int, int]  # from, to, both included


class Serving(TypedDict):
    """What a run of the task `serving` does, as its configuration has it."""

    engine: str  # one of ENGINES
    arrivals: str  # one of ARRIVALS
    rate: float | None  # requests/s of an open loop: the first that is tried if goodput is looked for
    burstiness: float | None  # shape of gamma-distributed gaps; 1 is Poisson, less comes in bursts
    concurrency: int | None  # clients of a closed loop
    prompt_lengths: Sequence[int]  # Range
    answer_lengths: Sequence[int]  # Range
    first_token_limit: float  # s, of the 99th percentile, from the scheduled arrival
    token_limit: float  # s, of the 99th percentile of the mean time per further token of a request
    find_goodput: bool  # whether the largest rate that keeps the limits is looked for first


class Planned(NamedTuple):
    """A request: when it is due, s from the start of the load, and how many tokens it has."""

    at: float
    prompt: int
    new: int


def plan(serving: Serving, count: int, seed: int, part: int = 0, rate: float | None = None) -> list[Planned]:
    """Return `count` requests in the order in which they are due.

    `part` distinguishes the loads of one run, which have different draws; `rate` replaces that of `serving`. Python's
    generator draws, whose values are the same on every machine.
    """
    draws = random.Random(f"{seed}/{part}")  # noqa: S311 - a benchmark
    times = arrivals(serving, count, draws, rate)
    prompt, new = serving["prompt_lengths"], serving["answer_lengths"]
    return [Planned(at, draws.randint(*prompt), draws.randint(*new)) for at in times]


def arrivals(serving: Serving, count: int, draws: random.Random, rate: float | None = None) -> list[float]:
    """Return when requests are due, s from the start of the load; all at 0 without an open loop.

    Gaps are exponential (Poisson), equal, or gamma-distributed with the given shape. Their sum is left as drawn, so
    that the rate of n requests deviates from the one asked for by 1/sqrt(n).
    """
    kind, rate = serving["arrivals"], rate or serving["rate"]
    if kind not in OPEN or rate is None:
        return [0.0] * count
    if kind == CONSTANT:
        return [number / rate for number in range(count)]
    shape = serving["burstiness"] or 1.0
    if kind == POISSON:
        return list(accumulate(draws.expovariate(rate) for _ in range(count)))
    return list(accumulate(draws.gammavariate(shape, 1 / (rate * shape)) for _ in range(count)))


def prompt(vocabulary: int, tokens: int, seed: int, part: int, number: int) -> Sequence[int]:
    """Return the tokens of a prompt. No two share a beginning, so that no engine can reuse what it computed before."""
    draws = random.Random(f"{seed}/{part}/{number}")  # noqa: S311 - a benchmark
    return array("i", draws.choices(range(vocabulary), k=tokens))
