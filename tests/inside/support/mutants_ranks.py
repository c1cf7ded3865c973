"""Mistakes in how ranks train together, each a context in which a strategy makes it."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel

from entrypoints.devices.pytorch.shared.session import TorchSession
from entrypoints.devices.pytorch.strategies import ddp, meshed, pipeline, shards, tensor
from entrypoints.devices.pytorch.strategies.ddp import DataParallel
from entrypoints.devices.pytorch.strategies.meshed import Meshed
from entrypoints.workloads.pytorch import loader, optimizers


def no_synchronisation():
    return mock.patch.object(DataParallel, "accumulating", lambda self, _: self.wrapped.no_sync())


def synchronised_in_the_first_step_only():
    """Of each session, as if the buckets that are rebuilt after it were left out."""

    def accumulating(self, last):
        self.calls = getattr(self, "calls", 0) + 1
        return original(self, last and self.calls == 1)

    original = DataParallel.accumulating
    return mock.patch.object(DataParallel, "accumulating", accumulating)


def sum_for_mean():
    return summed(DataParallel)


def sum_of_shards_for_mean():
    return summed(Meshed)


def summed(strategy):
    """Only of ranks: the one that they are compared with trains as ever."""
    original = TorchSession.scaled

    def scaled(self, loss):
        return original(self, loss) * (dist.get_world_size() if isinstance(self.strategy, strategy) else 1)

    return mock.patch.object(TorchSession, "scaled", scaled)


def one_slice_for_all():
    original = loader.slice_of
    return mock.patch.object(loader, "slice_of", lambda batch, _, samples: original(batch, 0, samples))


def clipped_by_shard():
    def clip(parameters, norm, *_):
        own = [parameter.grad for parameter in parameters if parameter.grad is not None]
        size = torch.stack([gradient.norm() for gradient in own]).norm()
        for gradient in own:
            gradient.mul_((norm / size).clamp(max=1.0))

    return mock.patch.object(shards, "clip", clip)


def lamb_by_shard():
    return mock.patch.object(shards, "norms", lambda tensors, *_, **__: [tensor.norm() for tensor in tensors])


def copies_counted_by_each_rank():
    """Of what ranks of a mesh have alike, in norms."""
    return mock.patch.object(Meshed, "copies", lambda *_: 1)


def decay_lost():
    return without_decay(meshed)


def decay_lost_on_the_way_to_shares():
    return without_decay(ddp)


def without_decay(module):
    original = optimizers.parameter_groups

    def groups(model, rule):
        return [{**group, "weight_decay": 0.0} for group in original(model, rule)]

    return mock.patch.object(module, "parameter_groups", groups)


def tie_broken():
    original = Meshed.wrap

    def wrap(self, model, hardware):
        decoder = model.network.head.decoder
        decoder.weight = nn.Parameter(decoder.weight.detach().clone())
        return original(self, model, hardware)

    return mock.patch.object(Meshed, "wrap", wrap)


def nodes_apart():
    """Each group of shards keeps its own gradients."""

    def accumulating(self, _):
        self.model.set_requires_all_reduce(False)
        return self.loss_context()

    return mock.patch.object(Meshed, "accumulating", accumulating)


def table_of_the_head_alone():
    """The gradients of a table in the first and the last stage are not added up."""
    return mock.patch.object(Meshed, "add_tied", lambda _: None)


def table_counted_twice():
    """In the norm of all gradients, once by each stage that has it."""

    def clip(self, _, norm):
        own, copies = zip(*((shard.own, shard.copies) for shard in self.shards))
        shards.clip(own, norm, self.hardware, copies)

    return mock.patch.object(Meshed, "clip", clip)


def micro_batches_of_a_pipeline_summed_up():
    original = Meshed.pipelined

    def pipelined(self, parts, session):
        summing = SimpleNamespace(autocast=session.autocast, scaled=lambda loss: loss)
        return original(self, parts, summing)

    return mock.patch.object(Meshed, "pipelined", pipelined)


def last_micro_batch_left_out():
    original = Meshed.pipelined
    return mock.patch.object(Meshed, "pipelined", lambda self, parts, _: original(self, parts[:-1] or parts, _))


def clipped_by_stage():
    return mock.patch.object(shards, "_total", lambda numbers, *_: numbers)


def stage_without_updates():
    original = Meshed.optimizer

    def optimizer(self, model, rule, fused):
        made = original(self, model, rule, fused)
        own = SimpleNamespace(zero_grad=made.zero_grad, step=lambda: None)
        return made if self.stages[-1].is_last else own

    return mock.patch.object(Meshed, "optimizer", optimizer)


def copies_of_a_stage_apart():
    return mock.patch.object(Meshed, "replicated", lambda _, stage: stage)


def positions_apart():
    """Normalisations have the gradients of a rank's positions only."""

    def shard_of(gradient, parameter):
        if isinstance(gradient, DTensor) and parameter.placements[0].is_replicate():
            return gradient.to_local()
        return original(gradient, parameter)

    original = meshed.shard_of

    return mock.patch.object(meshed, "shard_of", shard_of)


def packed_by_rows():
    """The first rank has all queries and half of the keys."""
    return mock.patch.object(tensor, "PackedColumns", ColwiseParallel)


def whole_inputs_in_another_order():
    """A head that all ranks compute has the positions of each rank in the place of another's."""
    original = tensor.Whole._apply

    def apply(self, module, mesh):
        original(self, module, mesh)
        module.register_forward_pre_hook(lambda _, inputs: (inputs[0].flip(1), *inputs[1:]))
        return module

    return mock.patch.object(tensor.Whole, "_apply", apply)


def stages_in_another_order():
    """The blocks of each stage are those of the other one."""
    original = pipeline.blocks_of
    return mock.patch.object(
        pipeline, "blocks_of", lambda network, stage, stages: original(network, stages - 1 - stage, stages)
    )


# Each with the strategy and a workload in which it shows.
MUTANTS = (
    (no_synchronisation, "ddp", "lstm"),
    (synchronised_in_the_first_step_only, "ddp", "lstm"),
    (sum_for_mean, "ddp", "lstm"),
    (sum_of_shards_for_mean, "fsdp", "lstm"),
    (one_slice_for_all, "ddp", "lstm"),
    (clipped_by_shard, "fsdp", "bert_base"),
    (lamb_by_shard, "fsdp", "bert_large_pretraining_128"),
    (decay_lost, "fsdp", "bert_base"),
    (decay_lost_on_the_way_to_shares, "zero1", "bert_base"),
    (tie_broken, "fsdp", "bert_large_pretraining_128"),
    (nodes_apart, "fsdp shards=2", "lstm"),
    (table_of_the_head_alone, "pipelined stages=2", "gpt_117m"),
    (table_counted_twice, "pipelined stages=2", "gpt_117m"),
    (micro_batches_of_a_pipeline_summed_up, "pipelined stages=2", "gpt2"),
    (last_micro_batch_left_out, "pipelined stages=2", "gpt2"),
    (clipped_by_stage, "pipelined stages=2", "gpt2"),
    (stage_without_updates, "pipelined stages=2", "gpt2"),
    (stages_in_another_order, "pipelined stages=2", "gpt2"),
    (copies_of_a_stage_apart, "ddp stages=2", "gpt2"),
    (positions_apart, "tensor tensor=2", "gpt2"),
    (packed_by_rows, "tensor tensor=2", "gpt2"),
    (whole_inputs_in_another_order, "tensor tensor=2", "bert_base"),
    (copies_counted_by_each_rank, "tensor tensor=2", "gpt2"),
    (lamb_by_shard, "tensor tensor=2", "bert_large_pretraining_128"),
)
