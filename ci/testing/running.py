"""Programs that run in parallel: a stage with its log, and how to end everything that a program started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping

from records import FOLDER, Record, count, now
from stages import ROOT, Stage

GRACE = 10.0  # seconds between SIGTERM and SIGKILL


class RunningStage:
    """A stage whose commands run one after the other, also after a failure, into its log."""

    def __init__(self, stage: Stage, inputs: str, full: bool, workers: int, environment: Mapping[str, str]) -> None:
        self.stage, self.inputs, self.environment = stage, inputs, environment
        self.log, self.report = FOLDER / f"{stage.name}.log", FOLDER / f"{stage.name}.xml"
        self.log.unlink(missing_ok=True)
        self.report.unlink(missing_ok=True)
        self._commands = stage.commands(full, workers, self.report)
        self._codes: list[int] = []
        self._began = time.monotonic()
        self._process = self._start()

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def ended(self) -> bool:
        """Start the next command if one has ended. Return whether all have."""
        code = self._process.poll()
        if code is None:
            return False
        self._codes.append(code)
        if len(self._codes) < len(self._commands):
            self._process = self._start()
            return False
        return True

    def record(self) -> Record:
        """Return the record of the finished stage."""
        succeeded = self._codes.count(0)
        checks = (succeeded, 0, len(self._codes) - succeeded)
        tests, skipped, failed = count(self.report) if self.stage.tests else checks
        passed = succeeded == len(self._commands)
        return Record(self.stage.name, self.inputs, passed, round(self.seconds, 1), tests, skipped, failed, now())

    def stop(self) -> None:
        """Stop the running command."""
        stop(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the next command in its own session, so that everything it starts can be stopped with it."""
        argv, nothing = self._commands[len(self._codes)], subprocess.DEVNULL
        with self.log.open("ab") as log:
            return subprocess.Popen(
                argv, cwd=ROOT, env=self.environment, stdin=nothing, stdout=log, stderr=log, start_new_session=True
            )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a program that has its own session, with everything it started; SIGTERM first."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
