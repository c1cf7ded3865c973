"""PopTorch's options: how it compiles a model for the IPUs of an instance."""

from __future__ import annotations

from typing import Any

import poptorch
import torch

from entrypoints.contract.session import PREFETCHED, BatchPartition
from entrypoints.devices.pytorch.strategies import ipu_stages
from entrypoints.workloads.pytorch.build import Objective, tied_head

RECOMPUTE_ALL = 4  # popart.RecomputationType.RecomputeAll: everything but what is marked as kept
# Patterns of PopART for a head with the weights of the embedding, as in Graphcore's GPT-2: one layout, one gradient.
TIED = {"TiedGather": True, "TiedGatherAccumulate": True}


def compiler_options(
    model: Objective, partition: BatchPartition, samples: int, training: bool, *, half: bool, instances: int
) -> Any:
    """Return PopTorch's options for a batch of `samples`, in half precision or not."""
    options = instance_options(partition) if instances > 1 else own_options(partition)
    options.randomSeed(torch.initial_seed())  # the run's seed, which built the model; the default is the clock
    options.outputMode(poptorch.OutputMode.All)
    if training:
        options.deviceIterations(partition.device_iterations)
        options.Training.gradientAccumulation(partition.accumulation)
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    else:
        at_once = partition.micro_batch * partition.replicas
        options.deviceIterations(samples // at_once if at_once else 1)
    if half:
        options.Precision.setPartialsType(torch.float16)
        options.Precision.enableStochasticRounding(training)
    if partition.strategy:
        options.setExecutionStrategy(ipu_stages.strategy(model, partition))
        if tied_head(model.network) is not None:
            options._Popart.setPatterns(TIED)
    set_memory(options, partition, training)
    return options


def set_memory(options: Any, partition: BatchPartition, training: bool) -> None:
    """Set how much memory operations get, which tiles exchange data, and what is kept or stored elsewhere."""
    memory = partition.memory
    if memory.proportions:
        ipus = 1 if partition.strategy == "phased" else partition.stages
        shares = memory.proportions if len(memory.proportions) > 1 else [*memory.proportions] * ipus
        options.setAvailableMemoryProportion({f"IPU{number}": share for number, share in enumerate(shares)})
    if memory.io_tiles:
        options.TensorLocations.numIOTiles(memory.io_tiles)
        options._Popart.set("defaultPrefetchBufferingDepth", PREFETCHED)
        if not partition.strategy:  # a pipeline of one stage does not overlap them
            options.setExecutionStrategy(poptorch.ShardedExecution())
    if training and memory.states_off_chip:
        place = poptorch.TensorLocationSettings().useOnChipStorage(False)
        shared = partition.replicas > 1  # each replica then has a share of them
        options.TensorLocations.setOptimizerLocation(place.useReplicatedTensorSharding(shared))
    if training and memory.recomputed and partition.strategy != "pipelined":
        options._Popart.set("explicitRecomputation", True)
        options._Popart.set("autoRecomputation", RECOMPUTE_ALL)


def own_options(partition: BatchPartition) -> Any:
    """Return PopTorch's options of a process that is no instance among others."""
    options = poptorch.Options()
    options.Distributed.disable()  # otherwise mpirun's variables join separate runs into one
    options.replicationFactor(partition.replicas)
    return options


def instance_options(partition: BatchPartition) -> Any:
    """Return PopTorch's options of an instance. Not every SDK has popdist, so it is imported late."""
    from entrypoints.devices.pytorch.strategies import instances

    return instances.options(partition)


def local_replicas() -> int:
    """Return the replicas of this instance."""
    from entrypoints.devices.pytorch.strategies import instances

    return instances.local_replicas()
