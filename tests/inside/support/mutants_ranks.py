"""Mistakes in how ranks train together, each a context in which a strategy makes it."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from entrypoints.devices.pytorch.strategies import fsdp, pipeline, shards, tensor, zero
from entrypoints.devices.pytorch.strategies.ddp import DataParallel
from entrypoints.devices.pytorch.strategies.strategy import Strategy
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
    return summed(fsdp.FullyShard)


def summed(strategy):
    """Only of ranks: the one that they are compared with trains as ever."""
    return mock.patch.object(strategy, "backward", lambda _, loss: (loss * dist.get_world_size()).backward())


def one_slice_for_all():
    original = loader.slice_of
    return mock.patch.object(loader, "slice_of", lambda batch, _, samples: original(batch, 0, samples))


def clipped_by_shard():
    def clip(parameters, norm, *_):
        own = [optimizers.local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        size = torch.stack([gradient.norm() for gradient in own]).norm()
        for gradient in own:
            gradient.mul_((norm / size).clamp(max=1.0))

    return mock.patch.object(shards, "clip", clip)


def lamb_by_shard():
    return mock.patch.object(shards, "norms", lambda tensors, *_, **__: [tensor.norm() for tensor in tensors])


def decay_lost():
    original = optimizers.parameter_groups

    def groups(model, rule):
        return [{**group, "weight_decay": 0.0} for group in original(model, rule)]

    return mock.patch.object(optimizers, "parameter_groups", groups)


def decay_lost_on_the_way_to_shares():
    original = optimizers.parameter_groups

    def groups(model, rule):
        return [{**group, "weight_decay": 0.0} for group in original(model, rule)]

    return mock.patch.object(zero, "parameter_groups", groups)


def tie_broken():
    original = fsdp.FullyShard.wrap

    def wrap(self, model, hardware):
        decoder = model.network.head.decoder
        decoder.weight = nn.Parameter(decoder.weight.detach().clone())
        return original(self, model, hardware)

    return mock.patch.object(fsdp.FullyShard, "wrap", wrap)


def table_of_the_head_alone():
    """The gradients of a table in the first and the last stage are not added up."""
    return mock.patch.object(pipeline.Pipeline, "add_tied", lambda _: None)


def table_counted_twice():
    """In the norm of all gradients, once by each stage that has it."""
    return mock.patch.object(
        pipeline.Pipeline, "clip", lambda own, model, norm: shards.clip(list(model.parameters()), norm, own.hardware)
    )


def micro_batches_of_a_pipeline_summed_up():
    original = pipeline.Pipeline.accumulate

    def accumulate(self, parts, session):
        summing = SimpleNamespace(training_loss=session.training_loss, scaled=lambda loss: loss)
        return original(self, parts, summing)

    return mock.patch.object(pipeline.Pipeline, "accumulate", accumulate)


def last_micro_batch_left_out():
    original = pipeline.Pipeline.accumulate
    return mock.patch.object(
        pipeline.Pipeline, "accumulate", lambda self, parts, _: original(self, parts[:-1] or parts, _)
    )


def clipped_by_stage():
    return mock.patch.object(pipeline.Pipeline, "clip", Strategy.clip)


def stage_without_updates():
    original = pipeline.Pipeline.optimizer

    def optimizer(self, model, rule, fused):
        made = original(self, model, rule, fused)
        return made if self.last else SimpleNamespace(zero_grad=made.zero_grad, step=lambda: None)

    return mock.patch.object(pipeline.Pipeline, "optimizer", optimizer)


def gradients_of_shares_apart():
    """Each rank goes back through its own heads and features only."""
    return mock.patch.object(tensor.CopyToGroup, "backward", staticmethod(lambda _, gradient: gradient))


def shares_not_added_up():
    return mock.patch.object(tensor.ReduceFromGroup, "forward", staticmethod(lambda _, x: x.clone()))


def bias_of_each_share():
    """Added up once by each rank."""

    def forward(self, x):
        return tensor.ReduceFromGroup.apply(torch.nn.functional.linear(x, self.weight, self.bias))

    return mock.patch.object(tensor.RowParallelLinear, "forward", forward)


def packed_by_rows():
    """The first rank has all queries and half of the keys."""
    return mock.patch.object(
        tensor.Division, "share", lambda self, whole, *at: whole.tensor_split(at[1], self.axis)[at[0]]
    )


def equal_weights_counted_by_each_rank():
    def clip(self, model, norm):
        shards.clip(list(model.parameters()), norm, self.hardware)

    return mock.patch.object(tensor.TensorParallel, "clip", clip)


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
    (table_of_the_head_alone, "pipelined", "gpt_117m"),
    (table_counted_twice, "pipelined", "gpt_117m"),
    (micro_batches_of_a_pipeline_summed_up, "pipelined", "gpt2"),
    (last_micro_batch_left_out, "pipelined", "gpt2"),
    (clipped_by_stage, "pipelined", "gpt2"),
    (stage_without_updates, "pipelined", "gpt2"),
    (gradients_of_shares_apart, "tensor", "gpt2"),
    (shares_not_added_up, "tensor", "gpt2"),
    (bias_of_each_share, "tensor", "gpt2"),
    (packed_by_rows, "tensor", "gpt2"),
    (equal_weights_counted_by_each_rank, "tensor", "gpt2"),
    (lamb_by_shard, "tensor", "bert_large_pretraining_128"),
)
