"""Checks of the run itself: what the correctness check before it, with other sizes, cannot see."""

from __future__ import annotations

from entrypoints.contract.session import Batch, Session, StepReport

# Of two outputs of the same weights for the same batch, in the L2 norm: the same arithmetic, perhaps in another order.
NEAR = 1e-2


def gradients(session: Session) -> tuple[str, list[str]] | None:
    """Return which weights had no gradient in the last training step; None if the device does not show them.

    A block, a head or a unit that is not computed has none. Nor has a weight whose gradient is not finite.
    """
    reached = session.gradients()
    if reached is None:
        return None
    return "gradients", [name for name, has_one in reached.items() if not has_one]


def answers(session: Session, batch: Batch, report: StepReport) -> tuple[str, list[str]] | None:
    """Return how the output of a batch of inference differs from the answer to it as a request; None if it has none."""
    if report.output is None:
        return None
    from entrypoints.results.numerics import deviation
    from entrypoints.worker.probe import sample_output  # late, since it imports NumPy

    output, answer = (sample_output(each) for each in (report.output(), session.infer_request(batch).output))
    difference = deviation(list(map(float, output)), list(map(float, answer)))
    return "answers", [] if difference <= NEAR else [f"the output differs from that of a request by {difference:.2g}"]
