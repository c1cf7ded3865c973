"""Pipelined training: each rank has a stage of the model, and stages compute different micro-batches at a time.

The schedule is one forward, one backward (Narayanan et al., arXiv:2104.04473, section 2.2): a stage goes back as soon
as it can, so that it keeps activations of no more micro-batches than there are stages from it on. It is written here
on sends and receives, which every PyTorch has. Of torch.distributed.pipelining, PyTorch 2.4 sums gradients up that
should be averaged, 2.9 aborts on gloo, and versions before them have none.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from entrypoints.contract.session import Batch
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.tensors import as_tuple
from entrypoints.devices.pytorch.strategies import shards
from entrypoints.devices.pytorch.strategies.strategy import MicroBatches, Strategy, seed_dropout_by_rank
from entrypoints.workloads.pytorch.build import Objective, Tensors, stage_boundaries

FIRST = 0  # the stage with the embedding


class Passthrough(nn.Module):
    """A block or head that another stage has: what comes in goes out."""

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        """Return the first input."""
        return x


class ReceivedActivations(nn.Module):
    """In place of the embedding: what the stage before has sent. A tied head keeps the table of tokens."""

    def __init__(self, tokens: nn.Embedding | None) -> None:
        super().__init__()
        self.tokens = tokens
        self.hidden: torch.Tensor | None = None  # (N, T, width)

    def forward(self, *_: Any) -> torch.Tensor | None:
        """Return what was sent."""
        return self.hidden


class WeightInfo(NamedTuple):
    """A weight of the whole model, and the stage that counts as its owner."""

    name: str
    shape: torch.Size
    stage: int


class Pipeline(Strategy):
    """Stages of a transformer, cut between its blocks."""

    engine = "one forward, one backward"
    evaluating = torch.no_grad  # a receive cannot write into an inference-mode tensor

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Drop the other stages, and return what computes this one: a loss for the last, and else what it sends on.

        Raises RunError (`unsupported`) for a network without blocks.
        """
        seed_dropout_by_rank()
        self.stage, self.stages, self.hardware = dist.get_rank(), dist.get_world_size(), hardware
        self.last = self.stage == self.stages - 1
        self.layout = layout(model.network, self.stages)
        self.width = model.network.embedding.tokens.embedding_dim
        self.tied = is_tied(model.network) and self.stages > 1
        cut(model.network, self.stage, self.stages)
        self.model = super().wrap(model, hardware)
        dist.barrier()  # NCCL wants all ranks in its first call
        return self.compute

    def compute(self, inputs: Tensors, targets: Tensors) -> tuple[None, torch.Tensor]:
        """Return the loss of the last stage, and else what is sent to the next one."""
        output = self.model.network(*as_tuple(inputs))
        return None, self.model.loss_of(output, targets) if self.last else output.float()

    def accumulate(self, parts: Sequence[Batch], computes: MicroBatches) -> Sequence[torch.Tensor]:
        """Add the gradients of the micro-batches of an update, in a pipeline; return their losses to each stage."""
        losses: list[torch.Tensor] = []
        begun: deque[tuple[torch.Tensor | None, torch.Tensor]] = deque()  # input and output of each without gradients

        def forward(part: Batch, hidden: torch.Tensor | None) -> torch.Tensor:
            self.enter(hidden)
            output = computes.training_loss(part)
            if self.last:
                losses.append(output.detach().clone())
                output = computes.scaled(output)
            begun.append((hidden, output))
            return output

        def backward(gradient: torch.Tensor | None) -> torch.Tensor | None:
            hidden, output = begun.popleft()
            torch.autograd.backward(output, gradient)
            return None if hidden is None else hidden.grad

        if not self.last:
            computes.scaled(torch.zeros((), device=self.hardware))  # a scaler begins with the first loss
        ahead = min(self.stages - 1 - self.stage, len(parts))
        for part in parts[:ahead]:
            self.after(forward(part, self.before(None, part)))
        alternating = parts[ahead:]
        hidden = self.before(None, alternating[0]) if alternating else None
        for part, following in zip(alternating, [*alternating[1:], None]):
            output = forward(part, hidden)
            gradient = self.after(output, begun[0][1])
            hidden = self.before(backward(gradient), following)
        for _ in range(ahead):
            self.before(backward(self.after(None, begun[0][1])), None)
        self.add_tied()
        return self.from_last(torch.stack(losses) if losses else torch.zeros(len(parts), device=self.hardware)).unbind()

    def enter(self, hidden: torch.Tensor | None) -> None:
        """Let the stage compute on what was sent to it, if it is not the first one."""
        if self.stage != FIRST:
            self.model.network.embedding.hidden = hidden

    def before(self, gradient: torch.Tensor | None, part: Batch | None) -> torch.Tensor | None:
        """Send a gradient to the stage before, and receive its output for a micro-batch (N, T, width)."""
        shape = (*as_tuple(part.inputs)[0].shape, self.width) if part else None
        received = self.exchange(self.stage - 1, gradient, shape)
        return None if received is None else received.requires_grad_()

    def after(self, output: torch.Tensor | None, oldest: torch.Tensor | None = None) -> torch.Tensor | None:
        """Send an output to the next stage, and receive the gradient of the oldest output."""
        return self.exchange(self.stage + 1, output, None if oldest is None else oldest.shape)

    def exchange(self, stage: int, sent: torch.Tensor | None, shape: Sequence[int] | None) -> torch.Tensor | None:
        """Send to another stage and receive from it at the same time, if there is one: else each would wait."""
        if stage not in range(self.stages):
            return None
        received = None if shape is None else torch.empty(shape, device=self.hardware)
        operations = [] if sent is None else [dist.P2POp(dist.isend, sent.detach().contiguous(), stage)]
        operations += [] if received is None else [dist.P2POp(dist.irecv, received, stage)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return received

    def add_tied(self) -> None:
        """Add up the gradients of a table that embeds tokens in the first stage and decodes them in the last one."""
        if self.tied and (self.stage == FIRST or self.last):
            gradient = self.model.network.embedding.tokens.weight.grad
            other = self.exchange(self.stages - 1 - self.stage, gradient, gradient.shape)
            gradient.add_(other)

    def from_last(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the last stage. All stages give one of its shape."""
        dist.broadcast(tensor, self.stages - 1)
        return tensor

    def clip(self, model: Objective, norm: float) -> None:
        """Scale all gradients, of all stages together, to at most this L2 norm. Tied ones count once."""
        copies = [model.network.embedding.tokens.weight] if self.tied and self.last else []
        own = [weight for weight in model.parameters() if all(weight is not copied for copied in copies)]
        shards.clip(own, norm, self.hardware, copies)

    def scaler(self, scaler: Any) -> Any:
        """Return a scaler whose ranks skip the same steps."""
        return scaler and shards.scaler(scaler)

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:
        """Return copies of all weights by name: a stage's own ones, and those of the others."""
        own, copies = dict(model.network.named_parameters()), {}
        for name, shape, stage in self.layout:
            weight = own.get(name)
            tensor = torch.empty(shape, device=self.hardware) if weight is None else weight.detach().clone()
            dist.broadcast(tensor, stage)
            copies[name] = (tensor if weight is None else weight.detach()).cpu().clone().numpy()
        return copies

    def inference_model(self, model: Objective) -> Any:
        """Return what computes a batch stage by stage, in evaluation mode."""
        model.eval()
        return self.answer

    def answer(self, inputs: Tensors, targets: Tensors | None = None) -> tuple[Tensors, torch.Tensor | None]:
        """Return the output of the last stage to each stage, and the mean loss if targets are given."""
        tokens = as_tuple(inputs)
        self.enter(self.exchange(self.stage - 1, None, (*tokens[0].shape, self.width)))
        outputs = self.model.network(*tokens)
        if not self.last:
            self.after(outputs.float())
        described: list[Any] = [[tuple(each.shape) for each in as_tuple(outputs)], isinstance(outputs, tuple)]
        dist.broadcast_object_list(described, self.stages - 1, device=self.hardware)
        own = as_tuple(outputs) if self.last else [torch.empty(shape, device=self.hardware) for shape in described[0]]
        each = tuple(self.from_last(tensor.float().contiguous()) for tensor in own)
        whole = each if described[1] else each[0]
        return whole, None if targets is None else self.model.loss_of(whole, targets)


def layout(network: nn.Module, stages: int) -> list[WeightInfo]:
    """Return the weights of a network by the stage that owns each.

    Raises RunError (`unsupported`) for a network without blocks between an embedding and a head.
    """
    if not all(hasattr(network, part) for part in ("embedding", "blocks", "head")):
        raise RunError("unsupported", "--strategy pipelined: this network is no row of blocks. Take --strategy fsdp")
    owners = {f"blocks.{block}": stage for stage in range(stages) for block in blocks_of(network, stage, stages)}

    def owner(name: str) -> int:
        part, number, *_ = name.split(".")
        return {"embedding": FIRST, "head": stages - 1}.get(part, owners.get(f"{part}.{number}", FIRST))

    return [WeightInfo(name, weight.shape, owner(name)) for name, weight in network.named_parameters()]


def blocks_of(network: nn.Module, stage: int, stages: int) -> range:
    """Return the numbers of the blocks of a stage: as many in each, but for one."""
    blocks = len(stage_boundaries(network))
    return range(stage * blocks // stages, (stage + 1) * blocks // stages)


def is_tied(network: nn.Module) -> bool:
    """Return whether the head decodes by the table that embeds tokens."""
    decoder = getattr(network.head, "decoder", None)
    return decoder is not None and decoder.weight is network.embedding.tokens.weight


def cut(network: nn.Module, stage: int, stages: int) -> None:
    """Keep only what a stage computes. Weights keep their names."""
    kept = blocks_of(network, stage, stages)
    tokens = network.embedding.tokens if stage == stages - 1 and is_tied(network) else None
    for number in range(len(network.blocks)):
        if number not in kept:
            network.blocks[number] = Passthrough()
    if stage != FIRST:
        network.embedding = ReceivedActivations(tokens)
    if stage != stages - 1:
        network.head = Passthrough()
