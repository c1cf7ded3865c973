"""Formulations that GPUs want, against the plain ones, on this CPU.

formulations.py NAME [ROUNDS] [THREADS]

NAME is one of FORMULATIONS. Both sides compute in turn in one process, the next round in reverse order. It prints the
median ratio of their seconds (ours over plain), by the clock and of the processor, and how far each spreads, as JSON.
On a busy machine the processor's say more.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "inside" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from entrypoints.contract import cards
from entrypoints.contract.session import OptimizerRule, SamplerRule

Call = Callable[[], Any]
BERT = "bert_large_pretraining_128"


def lamb() -> tuple[Call, Call]:
    """Return a step of LAMB for bert_large: many tensors at once, and tensor by tensor."""
    from lamb_by_tensor import LambByTensor

    from entrypoints.workloads.pytorch import build, optimizers

    card = cards.load()[BERT]
    rule, network = OptimizerRule.from_problem(card.problem["optimizer"], 4), build.model(card, 0)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    groups = optimizers.parameter_groups(network, rule)
    rated = [{**group, "lr": rule.learning_rate} for group in groups]
    return optimizers.Lamb(groups, rule, False).step, LambByTensor(rated, rule).step


def leapfrog() -> tuple[Call, Call]:
    """Return a transition of mcmc's chains: with compiled leapfrog steps, and with operations from Python."""
    from entrypoints.workloads.pytorch import build, loader, samplers

    card = cards.load()["mcmc"]
    rule, batch = SamplerRule(**card.problem["sampler"]), loader.synthetic_batch(card, 4, 0)

    def transition(optimised: Callable[[Any, int], Any]) -> Call:
        sampler = samplers.sampler(build.model(card, 0).network, rule, optimised)

        states: list[Any] = []

        def call() -> None:
            with torch.no_grad():
                state = (
                    sampler.next_state(states[0]) if states else sampler.first_state(batch.inputs, batch.targets, 0, 4)
                )
                states[:] = [state]

        return call

    compiled = transition(lambda leapfrog, steps: samplers.several(torch.compile(leapfrog), steps))
    return compiled, transition(samplers.several)


FORMULATIONS: Mapping[str, Callable[[], tuple[Call, Call]]] = {"lamb": lamb, "leapfrog": leapfrog}


def main(name: str, rounds: int = 15, threads: int = 1) -> None:
    """Time both sides of a formulation."""
    torch.set_num_threads(threads)
    sides = FORMULATIONS[name]()
    for call in sides:
        call()
    ratios = [ratio(sides, reverse=bool(number % 2)) for number in range(rounds)]
    for name, column in zip(("clock", "processor"), zip(*ratios, strict=True), strict=True):
        summary = {"median": statistics.median(column), "least": min(column), "most": max(column)}
        print(json.dumps({name: {key: round(value, 3) for key, value in summary.items()}}))


def ratio(sides: tuple[Call, Call], reverse: bool) -> Sequence[float]:
    """Return the seconds of the first side over those of the second one, by the clock and of the processor."""
    seconds = {}
    for side in (1, 0) if reverse else (0, 1):
        began = time.perf_counter(), time.process_time()
        sides[side]()
        seconds[side] = time.perf_counter() - began[0], time.process_time() - began[1]
    return [ours / theirs for ours, theirs in zip(seconds[0], seconds[1], strict=True)]


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
