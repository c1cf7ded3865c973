"""The sampling loop: Markov chains over one batch of observations. A step is a transition of all chains."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Callable, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.messages import MOST_DRAWS, MOST_NUMBERS, Diagnosed, Message, Step
from entrypoints.contract.session import Batch, ChainSample, Session
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.worker import run_checks
from entrypoints.worker.phases import PhasedRun


class SamplingLoop(PhasedRun):
    """Transitions over one session. Each gives a sample of every chain, which is on the host before the next begins.

    Step sizes adapt during the warm-up; later draws are diagnosed.
    """

    def __init__(
        self, session: Session, batch: Batch, chains: int, card: Card, send: Callable[[Message], None]
    ) -> None:
        super().__init__(send)
        self.session, self.batch, self.chains, self.card = session, batch, chains, card
        self.adapting = 0
        self.state: Any = None
        most = min(MOST_DRAWS, MOST_NUMBERS // (chains * card.problem["parameters"]))
        self.kept: deque[tuple[float, ChainSample]] = deque(maxlen=most)  # of this phase, each with its seconds
        self.last = session.mark()

    def run(self, configuration: Configuration) -> None:
        """Run all phases, check that every trajectory was whole, and report how well the chains mixed."""
        self.adapting = configuration.warmup_steps
        super().run(configuration)
        last = self.session.chain_sample(self.state)
        self.check("trajectory", lambda: run_checks.trajectory(self.card, last, self.steps))
        self.send(diagnose(self.kept))

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Step until `over`."""
        self.kept.clear()
        super().phase(name, over)

    def advance(self) -> None:
        """Do one transition. Raises RunError (`non_finite`) if the log density of a chain is not finite."""
        if self.state is None:
            self.state = self.session.begin(self.batch, self.adapting, self.chains)
        else:
            self.state = self.session.next_state(self.state)
        draw = self.session.chain_sample(self.state)
        began, self.last = self.last, self.session.mark()
        self.session.synchronise()
        seconds = self.session.seconds_between(began, self.last) or 0.0
        self.steps += 1
        self.seconds += seconds
        self.kept.append((seconds, draw))
        self.send(Step(seconds, 0.0, self.chains, 0, None, accepted=sum(map(bool, draw.accepted))))
        if not all(map(math.isfinite, draw.log_density)):
            raise RunError("non_finite", "the log density of a chain is not finite")

    def settle(self) -> None:
        """Do nothing: every transition was reported when it was done."""


def diagnose(kept: Sequence[tuple[float, ChainSample]]) -> Diagnosed:
    """Return the diagnosis of the draws of all chains, without numbers if no proposal was accepted."""
    from entrypoints.workloads import diagnostics  # late, since it imports NumPy

    seconds, draws = math.fsum(duration for duration, _ in kept), [draw for _, draw in kept]
    if not any(any(draw.accepted) for draw in draws):
        return Diagnosed(len(draws), seconds, None, None)
    effective, r_hat = diagnostics.worst([draw.position for draw in draws])
    return Diagnosed(len(draws), seconds, effective, r_hat)
