"""Checks of the run itself: what the correctness check before it, with other networks and sizes, cannot see.

Each returns what it found, as sentences; nothing if all is well, and None if there is nothing to check.
"""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.session import Batch, ChainSample, FirstStep, Session, StepReport

Faults = Optional[List[str]]

# Of two outputs of the same weights for the same batch, in the L2 norm: the same arithmetic, perhaps in another order.
# If another kernel computes the attention, of BERT large they differ by 9e-7 in fp32 and by 9e-3 in bf16; without one
# of its blocks by 0.35.
NEAR = {"fp32": 1e-2}
NEAR_ELSEWHERE = 5e-2
# The smallest fraction of the units of each weight that has a gradient. Features of data that are always 0 have none,
# nor have units that a ReLU silences, in Deep Voice 3 a tenth of those at its entrance, or that a dropout before a
# classifier drops for a single sample: in MobileNet a fifth.
LEAST_USED = {"transformer": 0.98, "decoder": 0.98, "diffusion": 0.98, "lstm": 0.9}
LEAST_USED_ELSEWHERE = 0.7
BY_CHANCE = 1e-5  # that all samples of a batch skip a block
# How far the likeliest token may be above the chosen one, over how far it is above the mean: rounding lets two of them
# change places.
TIES = {"fp32": 1e-3}
TIES_ELSEWHERE = 0.05
DROPPED = 60_000  # numbers, at least, to which a dropout is applied
DEVIATIONS = 6  # standard deviations that the fraction of dropped ones may be off


def gradients(session: Session, card: Card, samples: int) -> Faults:
    """Check that the last training step has a gradient for each weight: a head or block without one is not computed.

    There is nothing to check if a block that skips samples at random may have skipped the whole batch.
    """
    if card.problem["model"].get("stochastic_depth", 0.0) ** samples > BY_CHANCE:
        return None
    used = session.gradients()
    if used is None:
        return None
    least = LEAST_USED.get(card.family, LEAST_USED_ELSEWHERE)
    return [_unused(name, fraction) for name, fraction in used.items() if not fraction >= least]


def _unused(name: str, fraction: float) -> str:
    if math.isnan(fraction):
        return f"the first step had no finite gradient for {name}"
    return f"the first step had a gradient for only {math.floor(100 * fraction)} % of the units of {name}"


def samples(observed: FirstStep, report: StepReport) -> Faults:
    """Check that all samples of the first training step passed through the network."""
    if observed.samples is None:
        return None
    if observed.samples == report.samples:
        return []
    return [f"{observed.samples} of the {report.samples} samples of the first step passed through the network"]


def dropout(observed: FirstStep, card: Card) -> Faults:
    """Check that each dropout of the network is applied, and drops the fraction that the card says."""
    wanted = card.problem["model"].get("dropout")
    if wanted is None or observed.dropped is None:
        return None
    if wanted and not observed.dropped:
        return ["the network has no dropout"]
    near = DEVIATIONS * math.sqrt(wanted * (1 - wanted) / DROPPED)
    return [
        f"{name} drops {100 * fraction:.1f} %, where the card says {100 * wanted:g} %"
        for name, fraction in observed.dropped.items()
        if not abs(fraction - wanted) <= near
    ]


def answers(session: Session, batch: Batch, report: StepReport, precision: str) -> Faults:
    """Check that the output of a batch of inference is that of a request with the same inputs."""
    if report.output is None:
        return None
    from entrypoints.results.numerics import deviation
    from entrypoints.worker.probe import sample_output  # late, since it imports NumPy

    output, answer = (sample_output(each) for each in (report.output(), session.infer_request(batch).output))
    difference = deviation(list(map(float, output)), list(map(float, answer)))
    near = NEAR.get(precision, NEAR_ELSEWHERE)
    return [] if difference <= near else [f"the output differs from that of a request by {difference:.2g}"]


def generation(session: Session, prompts: Batch, tokens: Sequence[Any], precision: str) -> Faults:
    """Check that each new token of the last text is the likeliest after those before it, by the whole network at once.

    `tokens` are the newest ones (N, 1) after each iteration. Ties within rounding are no fault.
    """
    import numpy as np  # late, as in the other checks

    last = prompts._replace(inputs=prompts.inputs[-1:])
    texts, new = session.append_tokens(last, [newest[-1:] for newest in tokens])
    count = len(tokens)
    logits = np.asarray(session.infer_request(texts).output)[0, -count - 1 : -1]  # (K, vocabulary)
    largest, chosen = logits.max(1), logits[np.arange(count), np.asarray(new)[0]]
    likeliest = largest - chosen <= TIES.get(precision, TIES_ELSEWHERE) * (largest - logits.mean(1))
    wrong = count - int(likeliest.sum())
    return [f"{wrong} of {count} new tokens are not the likeliest ones"] if wrong else []


def trajectory(card: Card, last: ChainSample, transitions: int) -> Faults:
    """Check that all transitions together evaluated the gradient once per leapfrog step, and once at their start."""
    wanted = 1 + transitions * card.problem["sampler"]["leapfrog_steps"]
    if last.evaluations == wanted:
        return []
    return [f"{transitions} transitions evaluated the gradient {last.evaluations} times, and not {wanted} times"]
