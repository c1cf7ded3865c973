"""Training on a mesh of ranks (torch.distributed.device_mesh), which divides a model along several dimensions."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any, Callable, ContextManager, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from entrypoints.contract.choices import SHARDED
from entrypoints.contract.group import Mesh, Parallelism
from entrypoints.contract.session import Batch, OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.observation import used_fraction
from entrypoints.devices.pytorch.shared.tensors import as_tuple
from entrypoints.devices.pytorch.strategies import ddp, fsdp, pipeline, shards, tensor
from entrypoints.devices.pytorch.strategies.group import FIRST_TIMEOUT, set_timeout
from entrypoints.devices.pytorch.strategies.strategy import MicroBatches, Strategy, seed_dropout_by_rank
from entrypoints.workloads.pytorch.build import Objective, Tensors, find_blocks, loaded_for_inference, units
from entrypoints.workloads.pytorch.optimizers import RULES, Lamb, local, parameter_groups

ROUNDING = 1e-5  # of the squared norm of a weight, by which ranks that compute the same may differ


class Shard(NamedTuple):
    """A parameter, what this rank has of it as a parameter of its own, and how many ranks have the same."""

    whole: nn.Parameter
    own: nn.Parameter
    copies: int


class Meshed(Strategy):
    """A model that ranks divide: each weight (fsdp), each block's matrices (tensor parallel), or into stages."""

    evaluating = torch.no_grad  # shards would keep inference-mode tensors, which autograd rejects
    model: Objective
    hardware: torch.device
    device_mesh: DeviceMesh

    def __init__(self, dtype: torch.dtype | None, mesh: Mesh, how: Parallelism) -> None:
        super().__init__(dtype)
        self.mesh, self.how = mesh, how
        self.sharded = how.strategy in SHARDED
        self.engine = ", ".join(self.engines())
        self.chunked_loss = mesh.tensor == 1  # otherwise no rank has the whole head
        self.packed: set[str] = set()  # names of weights whose rows are in another order
        self.stages: list[pipeline.Stage] = []  # of this rank, if there are several
        self.shards: list[Shard] = []  # that the optimizer updates

    def engines(self) -> Iterator[str]:
        """Yield what divides the model."""
        if self.sharded:
            yield "fully_shard"
        if self.mesh.tensor > 1:
            yield "parallelize_module"
        if self.mesh.pipeline > 1:
            yield (
                "interleaved one forward, one backward" if self.how.virtual_stages > 1 else "one forward, one backward"
            )

    def join_mesh(self, network: nn.Module, hardware: torch.device) -> None:
        """Form the mesh of all ranks.

        The network of the correctness check may have fewer heads than there are ranks to divide them: then groups of
        ranks do the same.
        """
        self.hardware = hardware
        self.tensor = math.gcd(self.mesh.tensor, getattr(network, "divisible", self.mesh.tensor))
        sizes = {**self.mesh._asdict(), "same": self.mesh.tensor // self.tensor, "tensor": self.tensor}
        names = ("pipeline", "replicate", "shard", "same", "tensor")
        # PyTorch's own timeout of groups other than the first is 10 minutes.
        self.device_mesh = init_device_mesh(hardware.type, tuple(sizes[name] for name in names), mesh_dim_names=names)
        of_a_stage = self.mesh.ranks // self.mesh.pipeline
        groups = [dist.new_group(range(first, first + of_a_stage)) for first in range(0, self.mesh.ranks, of_a_stage)]
        self.group_of_a_stage = groups[self.coordinate("pipeline")]
        set_timeout(FIRST_TIMEOUT)

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Keep this rank's part of a model, and return what computes it."""
        seed_dropout_by_rank()
        self.join_mesh(model.network, hardware)
        self.model, self.blocks = model, find_blocks(model.network)
        if self.mesh.pipeline > 1:
            self.cut()
        if self.mesh.tensor > 1:
            self.packed = tensor.divide(model, self.device_mesh["tensor"], hardware, self.dtype, trained=True)
        if self.sharded:
            self.shard()
        else:
            super().wrap(model, hardware)
        if self.stages:
            self.wrapped = [self.replicated(stage) for stage in self.stages]
        return self.compute

    def compiled(self, wrapped: Any, compiler: Callable[[Any], Any]) -> Any:
        """Compile each block and the loss: what gathers weights and sends activations stays outside of them."""
        own = set(self.model.network.modules())
        while self.blocks:  # once: what answers is what trains
            block: Any = self.blocks.pop()
            if block in own:
                block.forward = compiler(block.forward)
        return wrapped

    def cut(self) -> None:
        """Keep this rank's stages of the model."""
        network: Any = self.model.network
        self.total = self.mesh.pipeline * self.how.virtual_stages
        self.layout = pipeline.layout(network, self.total)
        self.width, self.tied = network.embedding.tokens.embedding_dim, pipeline.is_tied(network)
        self.model.network, parts = pipeline.parts_of(
            network, self.coordinate("pipeline"), self.mesh.pipeline, self.total
        )
        numbers = range(self.coordinate("pipeline"), self.total, self.mesh.pipeline)
        self.stages = [
            pipeline.Stage(part, self.model, number, self.total, self.dtype) for number, part in zip(numbers, parts)
        ]

    def shard(self) -> None:
        """Shard the model, or each stage of it."""
        mesh = self.device_mesh["replicate", "shard"] if self.mesh.replicate > 1 else self.device_mesh["shard"]
        for root in self.stages or [self.model]:
            own = set(root.modules())
            blocks = [block for block in self.blocks if block in own]
            # In a pipeline, weights would be gathered again for each micro-batch.
            again = self.how.strategy != "zero2" and not self.stages
            fsdp.shard(self.model, root, blocks, mesh, self.hardware, self.dtype, self.how.offload, again)
        self.model.deferred = None

    def coordinate(self, dimension: str) -> int:
        """Return where this rank is along a dimension."""
        return self.device_mesh.get_local_rank(dimension)

    def replicated(self, stage: pipeline.Stage) -> nn.Module:
        """Return a stage whose gradients are averaged, if ranks have copies of it."""
        if self.sharded or self.mesh.replicate == 1 or next(stage.parameters(), None) is None:
            return stage
        return ddp.replicated(stage, self.hardware, self.device_mesh["replicate"].get_group())

    def compute(self, inputs: Tensors, targets: Tensors | None = None) -> tuple[Any, torch.Tensor | None]:
        """Return the output, and the loss if targets are given."""
        output, loss = self.model(inputs, targets)
        return output, loss if loss is None else tensor.whole(loss)

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer of this rank's shards. It knows nothing of other ranks, so that it can be fused."""
        groups = parameter_groups(model, rule)
        embedding: Any = getattr(model.network, "embedding", None)
        self.table = getattr(embedding.tokens, "weight", None) if self.stages and self.tied else None
        for group in groups:
            of_group = [Shard(each, nn.Parameter(local(each).detach()), self.copies(each)) for each in group["params"]]
            self.shards += of_group
            group["params"] = [shard.own for shard in of_group]
        made = RULES[rule.name](groups, rule, fused and not self.how.offload)
        if isinstance(made, Lamb):
            made.shard_norms = functools.partial(
                shards.norms,
                hardware=self.hardware,
                copies={id(shard.own): shard.copies for shard in self.shards},
                group=self.group_of_a_stage,
            )
        return made

    def zero_grad(self, optimizer: Any) -> None:
        """Forget all gradients."""
        optimizer.zero_grad(set_to_none=True)
        for shard in self.shards:
            shard.whole.grad = None

    def accumulate(self, parts: Sequence[Batch], computes: MicroBatches) -> Sequence[torch.Tensor]:
        """Add the gradients of the micro-batches of an update, in order; return their losses."""
        losses = self.pipelined(parts, computes) if self.stages else super().accumulate(parts, computes)
        for shard in self.shards:
            shard.own.grad = shard_of(shard.whole.grad, shard.whole)
        if self.stages and self.tied:
            self.add_tied()
        return losses

    def accumulating(self, last: bool) -> ContextManager[None]:
        """Return a context in which nodes average gradients of the last micro-batch of an update only.

        Ranks of a node add up those of each, so that none has all of them.
        """
        if self.sharded and self.mesh.replicate > 1:
            self.model.set_requires_all_reduce(last)  # type: ignore[operator]
        return tensor.loss_parallel() if self.mesh.tensor > 1 else contextlib.nullcontext()

    def clip(self, model: Objective, norm: float) -> None:  # noqa: ARG002 - others do
        """Scale all gradients, of all ranks together, to at most this L2 norm."""
        counted = [shard.copies * (2 if self.is_tied(shard) else 1) for shard in self.shards]
        shards.clip([shard.own for shard in self.shards], norm, self.hardware, counted)

    def copies(self, parameter: Any) -> int:
        """Return how many ranks of a stage have the same shard of a parameter."""
        divided = 1
        if isinstance(parameter, DTensor):
            sizes = zip(parameter.device_mesh.shape, parameter.placements)
            divided = int(np.prod([size for size, placement in sizes if not placement.is_replicate()]))
        return self.mesh.ranks // self.mesh.pipeline // divided

    def is_tied(self, shard: Shard) -> bool:
        """Return whether a parameter is the table that the first and the last stage have."""
        return bool(self.stages) and self.tied and shard.whole is self.table

    def scaler(self, scaler: Any) -> Any:
        """Return a scaler whose ranks skip the same steps."""
        return scaler and shards.scaler(scaler, self.hardware)

    def pipelined(self, parts: Sequence[Batch], computes: MicroBatches) -> Sequence[torch.Tensor]:
        """Add the gradients of micro-batches that are in different stages at a time; return their losses everywhere."""
        for stage in self.stages:
            stage.autocast, stage.scaled, stage.losses = computes.autocast, computes.scaled, []
            pipeline.share_switches(self.model.network, stage.part)
        last = self.stages[-1] if self.stages[-1].is_last else None
        if last is None:
            computes.scaled(torch.zeros((), device=self.hardware))  # a scaler begins with the first loss
        batches = [pipeline.arguments(part) for part in parts]
        together = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
        schedule = self.schedule(len(parts), self.hidden_shape(batches[0]))
        target = torch.arange(len(parts)) if last else None  # the schedule wants one; the loss is made before
        with self.loss_context():
            schedule.step(target=target, return_outputs=False, **together)
        losses = torch.stack(last.losses) if last else torch.zeros(len(parts), device=self.hardware)
        return self.from_last(losses).unbind()

    @functools.lru_cache(maxsize=1)  # noqa: B019 - a strategy is one of few, and closed
    def schedule(self, micro_batches: int, shape: Sequence[int]) -> Any:
        """Return the schedule of so many micro-batches, whose activations have a shape on each rank."""
        group = self.device_mesh["pipeline"].get_group()
        how = (self.total, group, self.hardware, micro_batches, shape)
        return pipeline.schedule(self.stages, self.wrapped, *how)

    def hidden_shape(self, batch: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
        """Return the shape of the activations (N, T, width) of tokens (N, T), of which this rank has some positions."""
        samples, length = pipeline.of_batch(batch, pipeline.INPUT)[0].shape
        return samples, length // self.tensor, self.width

    def add_tied(self) -> None:
        """Add up the gradients of a table that embeds tokens in the first stage and decodes them in the last one."""
        for shard in filter(self.is_tied, self.shards):
            other = self.exchanged(shard.own.grad, self.mesh.pipeline - 1 - self.coordinate("pipeline"))
            shard.own.grad.add_(other)  # type: ignore[union-attr]

    def exchanged(self, sent: Any, stage: int) -> torch.Tensor:
        """Send a tensor to another stage, and return what it sends meanwhile, of the same shape."""
        group, received = self.device_mesh["pipeline"].get_group(), torch.empty_like(sent)
        peer = dist.get_global_rank(group, stage)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent.contiguous(), peer, group), dist.P2POp(dist.irecv, received, peer, group)]
        ):
            work.wait()
        return received

    def from_last(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the last stage. All stages give one of its shape."""
        self.broadcast(value, self.mesh.pipeline - 1)
        return value

    def broadcast(self, value: torch.Tensor, stage: int) -> None:
        """Send a tensor of a stage's rank to all stages."""
        group = self.device_mesh["pipeline"].get_group()
        dist.broadcast(value, dist.get_global_rank(group, stage), group)

    def loss_context(self) -> ContextManager[None]:
        """Return a context in which ranks compute the loss of the classes that each has."""
        return tensor.loss_parallel() if self.mesh.tensor > 1 else contextlib.nullcontext()

    def named(self, values: Callable[[nn.Parameter], Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the names of this rank's weights, and a value of each, gathered from all ranks with a shard of it."""
        fsdp.reshard(self.model)
        for name, parameter in self.model.network.named_parameters():
            value = values(parameter)
            if value is not None:
                gathered = tensor.whole(value.detach().to(self.hardware))
                yield name, tensor.unpacked(gathered, self.tensor) if name in self.packed else gathered

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:  # noqa: ARG002 - others do
        """Return copies of all weights by name, gathered from all ranks."""
        own = {name: weight.float() for name, weight in self.named(lambda parameter: parameter)}
        if not self.stages:
            return {name: weight.cpu().clone().numpy() for name, weight in own.items()}
        copies = {}
        for name, shape, stage in self.layout:
            held = own.get(name)
            weight = torch.empty(shape, device=self.hardware) if held is None else held.clone()
            self.broadcast(weight, stage % self.mesh.pipeline)
            copies[name] = (weight if held is None else held).cpu().clone().numpy()
        return copies

    def used_units(self, model: Objective) -> Mapping[str, float]:
        """Return the `used_fraction` of each gradient of this rank's stages, gathered from all ranks, by name."""
        gradients = dict(self.named(lambda parameter: parameter.grad))
        return {name: used_fraction(gradients.get(name), axes) for name, _, axes in units(model.network)}

    def require_equal(self) -> None:
        """Raise RunError (`crashed`) if weights differ that all ranks of a block have whole: nothing makes them equal
        again, if their gradients once were not."""
        alike = [shard.own.detach() for shard in self.shards if self.tensor > 1 and is_whole(shard.whole, "tensor")]
        if not alike:
            return
        largest, group = shards.squares(alike).to(self.hardware), self.device_mesh["tensor"].get_group()
        smallest = largest.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group)
        dist.all_reduce(smallest, dist.ReduceOp.MIN, group)
        if bool((largest - smallest > ROUNDING * largest).any()):
            raise RunError(
                "crashed", f"--tensor {self.how.tensor}: weights that each rank has whole are no longer the same"
            )

    def loaded_for_inference(self, model: Objective, hardware: torch.device) -> Objective:
        """Move this rank's share of a model that is never trained to the hardware."""
        self.join_mesh(model.network, hardware)
        self.model = model
        self.packed = tensor.divide(model, self.device_mesh["tensor"], hardware, None, trained=False)
        return loaded_for_inference(model, hardware, self.dtype)

    def inference_model(self, model: Objective) -> Any:
        """Return what answers, in evaluation mode: no rank has all that could be folded."""
        model.eval()
        if not self.shards:
            return model
        return self.answer_by_stages if self.stages else self.answer

    def answer(self, inputs: Tensors, targets: Tensors | None = None) -> tuple[Any, torch.Tensor | None]:
        """Return the output of all ranks with parts of the model, and the mean loss if targets are given."""
        with self.loss_context():
            output, loss = self.compute(inputs, targets)
        return tuple(map(tensor.whole, output)) if isinstance(output, tuple) else tensor.whole(output), loss

    def answer_by_stages(self, inputs: Tensors, targets: Tensors | None = None) -> tuple[Any, torch.Tensor | None]:
        """Return the output of the last stage to each stage, and the mean loss if targets are given."""
        batch = pipeline.arguments(Batch(inputs, None))
        shape, ranks, here = self.hidden_shape(batch), self.mesh.pipeline, self.coordinate("pipeline")
        by_number = {stage.number: module for stage, module in zip(self.stages, self.wrapped)}
        received: list[torch.Tensor] = []
        output: Any = None
        group = self.device_mesh["pipeline"].get_group()
        for number in range(self.total):
            if number in by_number:
                output = by_number[number](*received, **batch)
            if number < self.total - 1:
                received = self.passed_on(output, number % ranks, (number + 1) % ranks, shape)
        whole = [tensor.whole(each) for each in as_tuple(output)] if here == ranks - 1 else []
        described: list[Any] = [[tuple(each.shape) for each in whole], isinstance(output, tuple)]
        dist.broadcast_object_list(described, dist.get_global_rank(group, ranks - 1), group, device=self.hardware)
        own = whole or [torch.empty(each, device=self.hardware) for each in described[0]]
        outputs = tuple(self.from_last(each.float().contiguous()) for each in own)
        result = outputs if described[1] else outputs[0]
        return result, None if targets is None else self.model.loss_of(result, targets)

    def passed_on(self, hidden: torch.Tensor, sender: int, receiver: int, shape: Sequence[int]) -> list[torch.Tensor]:
        """Send activations of a shape from one stage's rank to another's; return what this rank received."""
        here, group = self.coordinate("pipeline"), self.device_mesh["pipeline"].get_group()
        if here == sender:
            dist.send(hidden.contiguous(), dist.get_global_rank(group, receiver), group)
        if here != receiver:
            return []
        received = torch.empty(shape, dtype=self.stages[0].dtype, device=self.hardware)
        dist.recv(received, dist.get_global_rank(group, sender), group)
        return [received]


def is_whole(parameter: Any, dimension: str) -> bool:
    """Return whether ranks along a dimension have the same of a parameter."""
    names = parameter.device_mesh.mesh_dim_names if isinstance(parameter, DTensor) else ()
    return dimension not in names or bool(parameter.placements[names.index(dimension)].is_replicate())


def shard_of(gradient: Any, parameter: Any) -> torch.Tensor | None:
    """Return this rank's shard of a gradient, divided as its parameter is."""
    if gradient is None or not isinstance(gradient, DTensor):
        return gradient
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return gradient.to_local()
