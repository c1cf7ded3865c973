"""Replicas of IPUs in several processes, which Graphcore's poprun starts and calls instances.

IPUs average the gradients of all replicas by themselves, over their own links. Calls are those of the tutorial for
popdist in https://github.com/graphcore/examples (3cc8f81); this has not yet been run on an IPU.
"""

from __future__ import annotations

from typing import Any

from entrypoints.contract.group import Place
from entrypoints.contract.session import BatchPartition
from entrypoints.contract.statuses import RunError

try:
    import popdist
    import popdist.poptorch
except ImportError as absent:
    raise RunError("unsupported", f"--replicas under poprun: popdist cannot be imported: {absent}") from absent


def begin(place: Place) -> None:
    """Become an instance, before the process has anything to do with an IPU.

    Raises RunError (`unsupported`) if poprun has numbered the instances otherwise than their launch.
    """
    if not popdist.isPopdistEnvSet():
        raise RunError("unsupported", "--replicas under poprun: its variables are missing here. Pass on POPDIST_*")
    popdist.init()
    own = (popdist.getInstanceIndex(), popdist.getNumInstances())
    if own != (place.rank, place.world):
        by_launcher = f"Open MPI as {place.rank} of {place.world}"
        raise RunError("unsupported", f"poprun counts this process as {own[0]} of {own[1]}, {by_launcher}")


def options(partition: BatchPartition) -> Any:
    """Return PopTorch's options of an instance, which have its replicas already."""
    return popdist.poptorch.Options(ipus_per_replica=partition.devices // partition.replicas)


def local_replicas() -> int:
    """Return the replicas of this instance."""
    return int(popdist.getNumLocalReplicas())
