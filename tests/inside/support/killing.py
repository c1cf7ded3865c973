"""What becomes of a run of two ranks when one of them is killed."""

from __future__ import annotations

import os
import signal

from processes import children_of, wait_for, wait_until_gone
from program import checked


def check_killed(process, rank):
    """Kill a rank in the timed window: the document names it, keeps the steps until then, and no process is left."""
    wait_for(process, "measuring")
    ranks = children_of(process)
    os.kill(ranks[rank], signal.SIGKILL)
    document = checked(process.communicate()[0])
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("crashed", 4)
    assert document["status"]["message"].startswith(f"rank {rank} of 2: the workload's process died of SIGKILL")
    assert document["steps"]["count"] > 0
    for pid in ranks:
        wait_until_gone(pid)
