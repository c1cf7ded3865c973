"""Running processes, as tests watch them."""

from __future__ import annotations

import time
from pathlib import Path


def wait_for(process, text):
    """Read standard error until a line holds `text`."""
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"never said {text!r}")


def child_of(process):
    """Process id of the only child."""
    return children_of(process)[0]


def children_of(process):
    """Process ids of all children, in the order in which they were started."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def running(pid):
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid, seconds=float("inf")):
    end = time.monotonic() + seconds
    while running(pid) and time.monotonic() < end:
        time.sleep(0.02)
