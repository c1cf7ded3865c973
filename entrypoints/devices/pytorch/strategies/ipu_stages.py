"""Stages of a model on IPUs: where a model is cut, which IPU has which part, and what is kept for backward.

A head whose weights are those of the embedding is on the embedding's IPU, the first one: the data come back to it from
the last one, as a separate stage. Graphcore's GPT-2 does the same (https://github.com/graphcore/examples at 3cc8f81,
nlp/gpt2/pytorch/train_gpt2.py), which FZJ-JSC/CARAML runs.
"""

from __future__ import annotations

from typing import Any, Sequence

import poptorch
from torch import nn

from entrypoints.contract.session import BatchPartition
from entrypoints.contract.statuses import RunError
from entrypoints.workloads.pytorch.build import Objective, find_blocks, stage_boundaries, tied_head

HEAD = "head"  # the stage that comes back to the first IPU


def divided_blocks(blocks: int, stages: int, first: float, last: float) -> list[int]:
    """Return how many of equal blocks each of several stages has.

    The first and the last stage have other weights besides, as many as so many blocks. The stage with the most weights
    has as few as possible, then the first stage as few blocks as possible; later stages rather have one block more.
    Weights go with the operations of a token and with the optimizer's states. Graphcore's divisions of GPT-2 and of
    BERT for four IPUs, in training, are these.
    """
    if stages == 2:
        splits = [[of_first, blocks - of_first] for of_first in range(blocks + 1)]
    else:
        ends = [(of_first, of_last) for of_first in range(blocks + 1) for of_last in range(blocks + 1 - of_first)]
        splits = [[start, *_evenly(blocks - start - end, stages - 2), end] for start, end in ends]

    def preference(split: list[int]) -> tuple[float, int, list[float], list[int]]:
        loads = sorted([first + split[0], *split[1:-1], last + split[-1]], reverse=True)
        return loads[0], split[0], loads, split

    return min((split for split in splits if all(split[1:-1])), key=preference)


def _evenly(blocks: int, stages: int) -> list[int]:
    each, more = divmod(blocks, stages)
    return [each + (stage >= stages - more) for stage in range(stages)]


def beginnings(network: nn.Module, stages: int) -> list[nn.Module]:
    """Return the layer with which each stage but the first begins.

    Raises RunError (`unsupported`) if the model has too few layers.
    """
    marks = stage_boundaries(network)
    embedding, head = (getattr(network, name, None) for name in ("embedding", "head"))
    if len(marks) < stages:
        raise RunError("unsupported", f"--stages {stages}: this model can be cut into {len(marks)}")
    if embedding is None or head is None:
        return [marks[stage * len(marks) // stages] for stage in range(1, stages)]
    at_end = 0 if tied_head(network) is not None else weights_of(head)
    ends = (round(weights / weights_of(marks[0]), 1) for weights in (weights_of(embedding), at_end))
    sizes = divided_blocks(len(marks), stages, *ends)
    return [[*marks, head][sum(sizes[:stage])] for stage in range(1, stages)]


def weights_of(layer: nn.Module) -> int:
    """Return the number of a layer's weights."""
    return sum(weight.numel() for weight in layer.parameters())


def mark_stages(model: Objective, partition: BatchPartition) -> None:
    """Mark where each stage begins, and its IPU; phases are all on the first.

    Raises RunError (`unsupported`) if the model has too few layers.
    """
    if partition.stages == 1:
        return
    poptorch.BeginBlock(model.network, user_id=stage_name(0), ipu_id=0)
    for stage, layer in enumerate(beginnings(model.network, partition.stages), start=1):
        poptorch.BeginBlock(layer, user_id=stage_name(stage), ipu_id=stage)
    head = tied_head(model.network)
    if head is not None and partition.strategy != "phased":
        poptorch.BeginBlock(head, user_id=HEAD, ipu_id=0)


def stage_name(stage: int) -> str:
    """Return the name of a stage's layers."""
    return f"stage{stage}"


def strategy(model: Objective, partition: BatchPartition) -> Any:
    """Return PopTorch's execution strategy for the stages, in the order in which they run."""
    names = [stage_name(stage) for stage in range(partition.stages)]
    if partition.strategy == "phased":
        stages = [poptorch.Stage(name).ipu(0) for name in names]
        return poptorch.SerialPhasedExecution(*map(poptorch.Phase, stages))
    if tied_head(model.network) is not None:
        names.append(HEAD)
    kinds = {"pipelined": poptorch.PipelinedExecution, "sharded": poptorch.ShardedExecution}
    return kinds[str(partition.strategy)](*map(poptorch.Stage, names))


def keep_outputs(model: Objective) -> None:
    """Keep the outputs of blocks for backward, where everything else is computed again."""
    for block in find_blocks(model.network):
        block.register_forward_hook(_kept)


def _kept(layer: nn.Module, _: Sequence[Any], output: Any) -> Any:
    """Return the output as one that is kept, in training."""
    return poptorch.recomputationCheckpoint(output) if layer.training else output
