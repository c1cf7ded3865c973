"""The program, with limits and graces that a test ends: their clock stands still until SIGUSR1.

At that signal an hour is over, and from then on the clock runs, DOUBLE_SPEED times as fast as others.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from main import arrange_path

arrange_path(worker=False)

from entrypoints.cli.command import main  # noqa: E402
from entrypoints.runs import supervise  # noqa: E402


class Clock:
    """What `supervise` uses of the module `time`."""

    sleep = staticmethod(time.sleep)

    def __init__(self):
        self.woken_at = None
        self.speed = float(os.environ.get("DOUBLE_SPEED", "1"))

    def wake(self, *_):
        self.woken_at = time.monotonic()

    def monotonic(self):
        return 0.0 if self.woken_at is None else 3600.0 + self.speed * (time.monotonic() - self.woken_at)


if __name__ == "__main__":
    clock: Any = Clock()  # in place of a module
    supervise.time = clock
    signal.signal(signal.SIGUSR1, clock.wake)
    sys.exit(main(sys.argv[1:]))
