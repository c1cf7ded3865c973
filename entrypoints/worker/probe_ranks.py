"""The correctness check of ranks that train together: on slices of a batch, as one rank that accumulates the slices.

The rest of the check gives every rank the whole batch: the mean of equals proves all but the reduction. Ranks with
parts of one model have no slices, but all micro-batches. Steps are those of stochastic gradient descent, since Adam and
clipping hide gradients that are a whole factor off.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, Mapping, Optional

import numpy as np

from entrypoints.contract.reference import CLIPPED_UPDATE, UPDATE, WEIGHTS
from entrypoints.contract.session import Batch, BatchPartition, OptimizerRule, Session

STEPS = 3  # updates that are compared: PyTorch's buckets are other ones after the first
RATE = 0.01  # the first update over the weights, as L2 norms: small, and large above the rounding of weights
SMALL = 1e-3  # of the norm of an update: what is smaller may be all rounding
Changes = Mapping[str, np.ndarray]
OpenSession = Callable[[OptimizerRule, Optional[BatchPartition], bool], Session]


def quantities(
    open_session: OpenSession, group: Any, batch: Batch, share: Batch, clipped: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the quantities BY_RANKS of a batch, of which this rank trains on its share: a micro-batch, or several.

    `open_session` returns a session by a rule and a partition, alone or with the other ranks. Only the first rank
    trains alone, and only it yields.
    """
    first = group.place.rank == 0
    partition = _divided(batch, share, group.place.world)
    own_partition = partition._replace(accumulation=partition.accumulation * share.samples // batch.samples)

    def alone(rule: OptimizerRule, steps: int) -> list[Changes]:
        return list(changes(open_session(rule, partition, False), batch, steps)) if first else []

    rate, norm = group.agree(_rate_and_norm(open_session, partition, batch) if first else (0.0, 0.0))
    plain = descent(rate, None)
    expected = alone(plain, STEPS)
    session = open_session(plain, own_partition, True)
    own = list(changes(session, share, STEPS, close=False))
    difference = group.largest_difference(session.weights().values())
    session.close()
    if first:
        yield UPDATE, np.array([max(map(deviation, own, expected))])
        yield WEIGHTS, np.array([difference / (size(own[-1]) or 1.0)])
    if clipped:
        halved = descent(rate, norm / 2)
        expected = alone(halved, 1)
        own = list(changes(open_session(halved, own_partition, True), share, 1))
        if first:
            yield CLIPPED_UPDATE, np.array([deviation(own[0], expected[0])])


def _divided(batch: Batch, share: Batch, ranks: int) -> BatchPartition:
    """Return the micro-batches of a batch: a share each, or more than ranks if all of them have the whole batch."""
    parts = batch.samples if share.samples == batch.samples else ranks
    return BatchPartition(batch.samples // parts, accumulation=parts)


def descent(rate: float, gradient_norm: float | None) -> OptimizerRule:
    """Return the rule of stochastic gradient descent and no more."""
    return OptimizerRule("sgd", rate, 0.0, (), gradient_norm, {"momentum": 0.0, "nesterov": False})


def _rate_and_norm(open_session: OpenSession, partition: BatchPartition, batch: Batch) -> tuple[float, float]:
    """Return the learning rate of an update of RATE, and the norm of the gradient."""
    session = open_session(descent(1.0, None), partition, False)
    weights = size({name: np.array(weight) for name, weight in session.weights().items()})
    norm = size(next(changes(session, batch, 1)))
    return RATE * weights / (norm or 1.0), norm


def changes(session: Session, batch: Batch, steps: int, close: bool = True) -> Iterator[Changes]:
    """Yield the change of each weight in each step on a batch. The session is closed after them."""
    before = {name: np.array(weight) for name, weight in session.weights().items()}
    for _ in range(steps):
        report = session.train(batch)
        if report.loss:
            report.loss()
        after = {name: np.array(weight) for name, weight in session.weights().items()}
        yield {name: weight - before[name] for name, weight in after.items()}
        before = after
    if close:
        session.close()


def size(arrays: Changes) -> float:
    """Return the L2 norm over all arrays."""
    return math.sqrt(math.fsum(float(np.square(array, dtype=np.float64).sum()) for array in arrays.values()))


def deviation(own: Changes, expected: Changes) -> float:
    """Return the largest difference of an array from the expected one, relative in the L2 norm.

    Arrays count as SMALL of all at least.
    """
    least = SMALL * size(expected)
    return max(
        size({name: own[name] - array}) / max(size({name: array}), least, np.finfo(np.float32).tiny)
        for name, array in expected.items()
    )
