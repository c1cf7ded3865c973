"""A stand-in for the parent while its child computes, with the sampler of a meter or without; run by meter.py.

Arguments: a meter as for `--meter`, seconds, seconds between two readings. Prints the processor time it took.
"""

import json
import os
import select
import sys
import time

from entrypoints.metering.meter import Absence
from entrypoints.metering.sampling import Sampler
from entrypoints.metering.selection import open_meter
from entrypoints.runs.supervise import TICK


def watch(seconds: float) -> float:
    """Wait for messages that do not come, as the parent does; return the processor time of all threads."""
    silent, _ = os.pipe()
    began, until = time.process_time(), time.monotonic() + seconds
    while time.monotonic() < until:
        select.select([silent], [], [], TICK)
    return time.process_time() - began


choice, seconds, period = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
meter = open_meter(choice, "cpu")
if not isinstance(meter, Absence):
    sampler = Sampler(meter, period)
    with sampler.running():
        spent = watch(seconds)
    recording = sampler.recording()
    print(json.dumps({"cpu_seconds": spent, "readings": len(recording.times), "failures": recording.failures}))
elif choice == "none":
    print(json.dumps({"cpu_seconds": watch(seconds), "readings": 0, "failures": 0}))
else:
    sys.exit(meter.reason)
