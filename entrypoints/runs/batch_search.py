"""The largest batch that fits into memory: doubling until one does not fit, then bisection."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

from entrypoints.contract.cards import Card
from entrypoints.planning.bracket import Bracket, limit_of_trials
from entrypoints.planning.compilation import GRAPH_WARMUP
from entrypoints.planning.configuration import Configuration
from entrypoints.planning.plan import most_batch
from entrypoints.results.json_values import Json
from entrypoints.runs.execute import ExecutedRun, execute
from entrypoints.runs.supervise import Orders
from entrypoints.system import memory
from entrypoints.system.console import status

STEPS = 3  # of a trial, since frameworks use more in the second than in the first
# Settings of a trial, for any run.
TRIAL: dict[str, Any] = {
    "duration_seconds": None,
    "samples_per_epoch": None,
    "steps_per_epoch": None,
    "meter": "none",
    "idle_seconds": 0.0,
    "repeat": {"index": 1, "of": 1},
}


class Trial(NamedTuple):
    """A child that ran a few steps at one size: its end and its memory."""

    batch_size: int
    state: str
    message: str
    peak_process_mib: float | None
    seconds: float


class Search(NamedTuple):
    """A finished search. If it found no size to run at, `last` has the reason."""

    limit: int | None  # of memory, MiB, for the run; trials have a lower one
    trial_limit: int | None
    largest: int | None
    trials: tuple[Trial, ...]
    last: ExecutedRun

    @property
    def succeeded(self) -> bool:
        """Whether there is a size to run at, and only memory prevented larger ones."""
        return self.largest is not None and self.last.outcome.state in ("completed", "out_of_memory")

    def as_json(self) -> Json:
        """Return the part `search` of the document."""
        trials = [trial._asdict() for trial in self.trials]
        return {"memory_limit_mib": self.trial_limit, "largest": self.largest, "trials": trials}


def trial_line(number: int, trial: Trial) -> str:
    """Return a row about a trial, for people."""
    verdict = {"completed": "fits", "out_of_memory": "does not fit"}.get(trial.state, f"{trial.state}: {trial.message}")
    memory_text = "-" if trial.peak_process_mib is None else f"{trial.peak_process_mib:,.0f} MiB"
    return f"  trial {number:>2}  batch {trial.batch_size:>6}  {memory_text:>12}  {trial.seconds:>6.1f} s  {verdict}"


def search(card: Card, start: Configuration, orders: Orders) -> Search:
    """Search from the batch of `start` on, until the answer is known or a trial ends for another reason than memory."""
    limit, most = start.memory_limit_mib or memory.default_limit(start.device), most_batch(start)
    trial_limit = limit_of_trials(limit) if limit else None
    within = f"{trial_limit} MiB" if trial_limit else "the memory of the device"
    status(f"searching for the largest batch up to {most} within {within}")
    # The first request runs alone. Two more rounds of N streams have all of them at work.
    steps = 1 + 2 * start.concurrency if start.concurrency else STEPS
    warmup = GRAPH_WARMUP if start.replayed else 1
    settings = {**TRIAL, "steps": steps + warmup - 1, "warmup_steps": warmup}
    trials, bracket = [], Bracket()
    size: int | None = start.batch_size
    while size is not None:
        begun = time.monotonic()
        trial = dataclasses.replace(start.of_size(size, trial_limit), **settings)
        last = execute(card, trial, orders)
        state, _, message = last.outcome
        trials.append(Trial(size, state, message, last.measurement.peak_process_mib, time.monotonic() - begun))
        status(trial_line(len(trials), trials[-1]))
        if state not in ("completed", "out_of_memory"):
            break
        bracket = bracket.after(size, fits=state == "completed")
        size = bracket.next(start.batch_size, most)
    result = Search(limit, trial_limit, bracket.fits or None, tuple(trials), last)
    status(f"after {len(trials)} trials, the largest batch that fits is {result.largest or 'none'}")
    return result
