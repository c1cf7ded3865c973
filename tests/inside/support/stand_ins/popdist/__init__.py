"""A stand-in for Graphcore's popdist: the calls of its tutorial in graphcore/examples (3cc8f81), and nothing else.

poprun's variables say where a process is. The links between IPUs are gloo's, once the ranks of a run are joined.
"""

from __future__ import annotations

import os
from typing import Any

STARTED: list[Any] = []  # that a process has become an instance


def isPopdistEnvSet():
    return "POPDIST_LOCAL_INSTANCE_INDEX" in os.environ


def init():
    if STARTED or not isPopdistEnvSet():
        raise RuntimeError("init() was called before, or poprun has not started this process")
    STARTED.append(True)


def getInstanceIndex():
    return _number("OMPI_COMM_WORLD_RANK")


def getNumInstances():
    return _number("OMPI_COMM_WORLD_SIZE")


def getNumLocalReplicas():
    return _number("POPDIST_LOCAL_REPLICAS")


def getNumTotalReplicas():
    return getNumLocalReplicas() * getNumInstances()


def _number(name):
    if not STARTED:
        raise RuntimeError("init() comes first")
    return int(os.environ[name])
