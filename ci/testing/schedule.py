"""Runs set-ups in order and, in parallel, as many stages as there are jobs, each as soon as its set-ups are done."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from inputs import fingerprint
from records import FOLDER, Record, load
from running import RunningStage
from setups import Setup
from stages import ROOT, Stage

POLL = 0.2  # seconds
HEARTBEAT = 120.0  # seconds between two lines about what is running


class Result(Enum):
    """The result of a stage. Only a stage that ran can pass."""

    PASSED = "passed"
    FAILED = "failed"
    UNCHANGED = "unchanged"  # it passed before with the same inputs
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """A stage's result, its record if it has one, and the reason if it did not run."""

    stage: Stage
    result: Result
    record: Record | None = None
    reason: str = ""


class Schedule:
    """Waiting and running stages, and the set-ups that they wait for."""

    def __init__(self, stages: Sequence[Stage], setups: Sequence[Setup], jobs: int, full: bool, resume: bool) -> None:
        self.jobs, self.full, self.resume = jobs, full, resume
        self._waiting, self._setups = list(stages), list(setups)
        self._running: list[RunningStage] = []
        self._setup: tuple[Setup, subprocess.Popen[bytes]] | None = None
        self._failed: set[str] = set()  # names of set-ups
        self._environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}  # waiting threads should not take a core
        self._announced = time.monotonic()

    def run(self, tell: Callable[[str], None]) -> Generator[Outcome, None, None]:
        """Yield the outcome of each stage as it ends, and report what starts. Stop whatever still runs at the end."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            while self._waiting or self._running:
                self._advance_setups(tell)
                yield from self._start_stages(tell)
                for running in [running for running in self._running if running.ended()]:
                    self._running.remove(running)
                    record = running.record()
                    yield Outcome(running.stage, Result.PASSED if record.passed else Result.FAILED, record)
                self._say_what_runs(tell)
                time.sleep(POLL)
        finally:
            for running in self._running:
                running.stop()
            if self._setup is not None:
                self._setup[1].terminate()
                self._setup[1].wait()

    def _start_stages(self, tell: Callable[[str], None]) -> Iterator[Outcome]:
        for stage in list(self._waiting):
            if len(self._running) == self.jobs or not self._ready(stage):
                continue
            self._waiting.remove(stage)
            outcome, inputs = self._without_a_run(stage)
            if outcome is not None:
                yield outcome
                continue
            workers = 1 if self._waiting else self.jobs - len(self._running)  # the last one gets all that are left
            environment = {**self._environment, **stage.variables}
            self._running.append(RunningStage(stage, inputs, self.full, workers, environment))
            tell(f"{stage.name} started: {stage.title} ({len(self._waiting)} more wait)")
            self._announced = time.monotonic()

    def _without_a_run(self, stage: Stage) -> tuple[Outcome | None, str]:
        """Return the outcome of a stage that need not or cannot run, otherwise None; and the hash of its inputs."""
        if failed := self._failed.intersection(stage.needs):
            return Outcome(stage, Result.FAILED, reason=f"set-up failed: {', '.join(sorted(failed))}"), ""
        if reason := stage.missing():
            return Outcome(stage, Result.NOT_RUN, reason=reason), ""
        inputs, record = fingerprint(stage, self.full), load(stage.name)
        if self.resume and record is not None and record.passed and record.inputs == inputs:
            return Outcome(stage, Result.UNCHANGED, record), inputs
        return None, inputs

    def _ready(self, stage: Stage) -> bool:
        pending = [*self._setups, *([self._setup[0]] if self._setup else [])]
        if any(setup.alone or setup.name in stage.needs for setup in pending):
            return False
        return not stage.exclusive or all(each.stage.exclusive != stage.exclusive for each in self._running)

    def _advance_setups(self, tell: Callable[[str], None]) -> None:
        """Record a set-up that has ended, and start the next."""
        if self._setup is not None:
            setup, process = self._setup
            if process.poll() is None:
                return
            self._setup = None
            self._conclude(setup, process.returncode, tell)
        if self._setups and not (self._setups[0].alone and self._running):
            setup = self._setups.pop(0)
            with (FOLDER / f"{setup.name}.out").open("wb") as output:
                process = subprocess.Popen(setup.argv, cwd=ROOT, env=self._environment, stdout=output)  # sudo may ask
                self._setup = (setup, process)

    def _conclude(self, setup: Setup, code: int, tell: Callable[[str], None]) -> None:
        if setup.exports:
            self._environment.pop(setup.exports, None)
        if code == 0 and setup.exports:
            self._environment[setup.exports] = (FOLDER / f"{setup.name}.out").read_text().strip()
        if code != 0:
            tell(f"set-up {setup.name} failed" + ("; what needs it is skipped" if setup.optional else ""))
            self._failed |= set() if setup.optional else {setup.name}

    def _say_what_runs(self, tell: Callable[[str], None]) -> None:
        if time.monotonic() - self._announced > HEARTBEAT:
            ages = [f"{running.stage.name} for {running.seconds / 60:.0f} min" for running in self._running]
            setup = [f"set-up {self._setup[0].name}"] if self._setup else []
            tell(f"running: {', '.join([*ages, *setup]) or 'nothing'}")
            self._announced = time.monotonic()
