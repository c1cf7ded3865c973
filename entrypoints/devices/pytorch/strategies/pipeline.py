"""Pipelined training by torch.distributed.pipelining: each rank has a row of blocks, or several rows.

The schedule is one forward, one backward (Narayanan et al., arXiv:2104.04473, section 2.2): a stage goes back as soon
as it can, so that it keeps activations of few micro-batches. With several stages of each rank it is interleaved.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from typing import Any, Callable, ClassVar, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from entrypoints.contract.session import Batch
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.tensors import as_tuple
from entrypoints.devices.pytorch.strategies import tensor
from entrypoints.workloads.pytorch import roles
from entrypoints.workloads.pytorch.build import Objective, Tensors, stage_boundaries

FIRST = 0  # the stage with the embedding
INPUT, TARGET = "input", "target"  # prefixes of a stage's arguments
Scaled = Callable[[torch.Tensor], torch.Tensor]


class Passthrough(nn.Module):
    """A block or head that another stage has: what comes in goes out."""

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        """Return the first input."""
        return x


class ReceivedActivations(nn.Module):
    """In place of the embedding: what the stage before has sent. A tied head keeps the table of tokens."""

    roles: ClassVar[Mapping[str, str]] = {"tokens": roles.VOCABULARY}
    hidden: torch.Tensor | None = None  # (N, T, width)

    def __init__(self, tokens: nn.Embedding | None) -> None:
        super().__init__()
        self.tokens = tokens

    def forward(self, *_: Any) -> torch.Tensor | None:
        """Return what was sent."""
        return self.hidden


class Stage(nn.Module):
    """A stage: from tokens or activations to activations, and the last one to the loss."""

    def __init__(self, part: nn.Module, model: Objective, number: int, stages: int, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.part, self.loss_of = part, model.loss_of
        self.number, self.is_last = number, number == stages - 1
        self.dtype = dtype or torch.float32  # of what is sent
        self.autocast: Callable[[], Any] = functools.partial(torch.autocast, "cpu", enabled=False)
        self.scaled: Scaled = lambda loss: loss
        self.losses: list[torch.Tensor] = []

    def forward(self, *received: torch.Tensor, **batch: torch.Tensor) -> Any:
        """Return the activations (N, T, width), or the scaled loss; without targets the output of the model."""
        with self.autocast():
            if self.number != FIRST:
                self.part.embedding.hidden = received[0]  # type: ignore[union-attr, assignment, unused-ignore]
            output = self.part(*of_batch(batch, INPUT))
            if not self.is_last:
                return output.to(self.dtype)
            targets = of_batch(batch, TARGET)
            if not targets:
                return output
            loss = tensor.whole(self.loss_of(output, untupled(targets)))
        self.losses.append(loss.detach())
        return self.scaled(loss)


def of_batch(batch: Mapping[str, torch.Tensor], kind: str) -> tuple[torch.Tensor, ...]:
    """Return a stage's arguments of a kind, in order."""
    return tuple(batch[name] for name in sorted(batch) if name.startswith(kind))


def arguments(batch: Batch) -> dict[str, torch.Tensor]:
    """Return a batch as a stage's arguments."""
    by_kind = {INPUT: as_tuple(batch.inputs), TARGET: () if batch.targets is None else as_tuple(batch.targets)}
    return {f"{kind}{number}": each for kind, tensors in by_kind.items() for number, each in enumerate(tensors)}


def untupled(tensors: tuple[torch.Tensor, ...]) -> Tensors:
    """Return a tuple, or the only tensor in it."""
    return tensors[0] if len(tensors) == 1 else tensors


class WeightInfo(NamedTuple):
    """A weight of the whole model, and the stage that counts as its owner."""

    name: str
    shape: torch.Size
    stage: int


def layout(network: nn.Module, stages: int) -> list[WeightInfo]:
    """Return the weights of a network by the stage that owns each.

    Raises RunError (`unsupported`) for a network without blocks between an embedding and a head.
    """
    if not all(hasattr(network, part) for part in ("embedding", "blocks", "head")):
        raise RunError("unsupported", "--stages: this network is no row of blocks. Take --strategy fsdp")
    owners = {f"blocks.{block}": stage for stage in range(stages) for block in blocks_of(network, stage, stages)}

    def owner(name: str) -> int:
        part, number, *_ = name.split(".")
        return {"embedding": FIRST, "head": stages - 1}.get(part, owners.get(f"{part}.{number}", FIRST))

    return [WeightInfo(name, weight.shape, owner(name)) for name, weight in network.named_parameters()]


def blocks_of(network: nn.Module, stage: int, stages: int) -> range:
    """Return the numbers of the blocks of a stage: as many in each, but for one."""
    blocks = len(stage_boundaries(network))
    return range(stage * blocks // stages, (stage + 1) * blocks // stages)


def is_tied(network: Any) -> bool:
    """Return whether the head decodes by the table that embeds tokens."""
    decoder = getattr(network.head, "decoder", None)
    return decoder is not None and decoder.weight is network.embedding.tokens.weight


def parts_of(network: Any, rank: int, ranks: int, stages: int) -> tuple[Any, list[Any]]:
    """Return what a rank keeps of a network, and the part of each of its stages: the same modules by the same names."""
    numbers = range(rank, stages, ranks)
    kept = part_of(network, numbers, stages)
    if len(numbers) == 1:
        return kept, [kept]
    parts = [part_of(network, [number], stages) for number in numbers]
    parts[0]._forward_hooks = kept._forward_hooks  # what is observed of a network is observed once
    return kept, parts


def part_of(network: Any, numbers: Sequence[int], stages: int) -> Any:
    """Return a network with the blocks of some stages."""
    part = copy.copy(network)
    part._modules, part._forward_hooks = dict(network._modules), OrderedDict()
    own = {block for number in numbers for block in blocks_of(network, number, stages)}
    part.blocks = nn.ModuleList(
        block if number in own else Passthrough() for number, block in enumerate(network.blocks)
    )
    last = stages - 1 in numbers
    if FIRST not in numbers:
        part.embedding = ReceivedActivations(network.embedding.tokens if last and is_tied(network) else None)
    if not last:
        part.head = Passthrough()
    return part


def share_switches(network: Any, part: Any) -> None:
    """Let a part of a network mask padding if the network does."""
    if hasattr(network, "padded"):
        part.padded = network.padded


def schedule(
    stages: Sequence[Stage],
    wrapped: Sequence[nn.Module],
    total: int,
    group: dist.ProcessGroup,
    hardware: torch.device,
    micro_batches: int,
    shape: Sequence[int],
) -> Any:
    """Return the schedule of this rank's stages out of `total`, whose activations have a shape (N, T, width)."""

    def hidden(stage: Stage) -> torch.Tensor:
        return torch.empty(shape, dtype=stage.dtype, device="meta", requires_grad=True)

    made = [
        PipelineStage(
            module,
            stage.number,
            total,
            hardware,
            input_args=() if stage.number == FIRST else (hidden(stage),),
            output_args=(torch.empty((), device="meta", requires_grad=True) if stage.is_last else hidden(stage),),
            group=group,
        )
        for stage, module in zip(stages, wrapped)
    ]
    how: dict[str, Any] = {"loss_fn": lambda loss, _: loss, "scale_grads": False}
    if len(made) == 1:
        kind = Schedule1F1B if micro_batches >= total else ScheduleGPipe  # so few fill no pipeline, as in the check
        return kind(made[0], micro_batches, **how)
    return ScheduleInterleaved1F1B(made, micro_batches, **how)  # type: ignore[arg-type, unused-ignore]
