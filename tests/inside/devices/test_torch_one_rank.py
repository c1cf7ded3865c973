"""What ranks keep and send each other, seen in a group of one rank."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from training_ranks import small_card  # noqa: E402

from entrypoints.contract.group import Mesh, Parallelism, Place  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.devices.pytorch.strategies import ddp, group  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

HOST = torch.device("cpu")


@pytest.fixture
def alone():
    """A group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(workload, strategy):
    """A small model, what a strategy calls in its place, and its optimizer."""
    card = small_card(workload)
    model = build.model(card, 0)
    called = strategy.wrap(model, HOST)
    return model, called, strategy.optimizer(model, rule_of(card.problem, 2), False), card


def sent_in_a_step(monkeypatch, workload):
    """How many messages a step of zero1 sends, the weights before and after, and the model."""
    model, called, optimizer, card = wrapped(workload, ddp.SharedOptimizer())
    batch = loader.synthetic_batch(card, 2, 0)
    before = {name: weight.copy() for name, weight in build.weights(model).items()}
    called(batch.inputs, batch.targets)[1].backward()
    sent: list[int] = []
    send = dist.broadcast

    def noted(*words, **named):
        sent.append(1)
        return send(*words, **named)

    monkeypatch.setattr(dist, "broadcast", noted)
    optimizer.step()
    return len(sent), before, build.weights(model), model


def test_zero1_sends_the_weights_of_a_rank_in_one_message(alone, monkeypatch):
    sent, before, after, _ = sent_in_a_step(monkeypatch, "gpt2")
    assert sent == 1
    assert all((before[name] != after[name]).any() for name in before)


def test_zero1_keeps_the_memory_format_of_convolutions(alone, monkeypatch):
    sent, _, after, model = sent_in_a_step(monkeypatch, "resnet50")
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size[0] > 1]
    assert sent == len(after) and layers
    assert all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in layers)


@pytest.mark.parametrize(("numbers", "expected"), [(ddp.LARGE, ddp.BUCKET), (ddp.LARGE + 1, ddp.LARGE_BUCKET)])
def test_gradients_of_large_models_are_reduced_in_larger_buckets(monkeypatch, numbers, expected):
    """Buffers are not sent, and gradients are not copied from buckets."""
    given = {}
    monkeypatch.setattr(ddp, "DistributedDataParallel", lambda _, **options: given.update(options))
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.empty(numbers, device="meta"))
    ddp.replicated(model, HOST)
    assert (given["bucket_cap_mb"], given["broadcast_buffers"]) == (expected, False)
    assert given["gradient_as_bucket_view"] and given["device_ids"] is None


@pytest.mark.parametrize(("precision", "size"), [(None, 4), (torch.bfloat16, 2)])
@pytest.mark.skipif(torch.__version__ < "2.10", reason="this PyTorch keeps all weights of a unit in one precision")
def test_shards_of_frozen_weights_are_in_the_precision_in_which_they_are_gathered(alone, precision, size):
    from entrypoints.devices.pytorch.strategies.meshed import Meshed

    model, _, _, card = wrapped("llama_8b_lora", Meshed(precision, Mesh(1, 1, 1, 1), Parallelism("fsdp")))
    held = [weight.to_local() for weight in model.parameters()]
    trained = card.problem["trained"]
    assert 0 < trained < card.problem["parameters"]
    assert sum(each.numel() * each.element_size() for each in held) == (
        4 * trained + size * (card.problem["parameters"] - trained)
    )


def test_collectives_may_take_long_until_all_ranks_have_done_a_step(alone, monkeypatch):
    """A rank that compiles, or makes a large model, is away longer than one that lost its link."""
    set_for: list[Any] = []
    monkeypatch.setattr(group, "set_timeout", set_for.append)
    ranks = group.Group(Place(0, 1, 0, 1), Parallelism("ddp"), HOST, dist.HashStore())
    ranks.meet()
    assert not set_for and ranks.timeout == group.FIRST_TIMEOUT
    ranks.meet()
    assert set_for == [group.COLLECTIVE_TIMEOUT] and ranks.timeout == group.COLLECTIVE_TIMEOUT < group.FIRST_TIMEOUT


@pytest.mark.skipif(torch.__version__ < "2.10", reason="this PyTorch shards nothing on a CPU")
@pytest.mark.parametrize("strategy", ["fsdp", "zero2"])
def test_blocks_are_gathered_in_units_of_a_size_and_the_rest_stays_gathered(alone, monkeypatch, strategy):
    from entrypoints.devices.pytorch.strategies import fsdp
    from entrypoints.devices.pytorch.strategies.meshed import Meshed

    units = []
    shard = fsdp.fully_shard

    def noted(unit, **how):
        units.append((len(unit) if isinstance(unit, list) else "rest", how["reshard_after_forward"]))
        return shard(unit, **how)

    monkeypatch.setattr(fsdp, "fully_shard", noted)
    card = small_card("gpt2")
    blocks = build.model(card, 0).network.blocks
    numbers = sum(weight.numel() for weight in blocks[0].parameters())
    for least, rows in ((numbers, [1, 1]), (numbers + 1, [2]), (10 * numbers, [2])):
        units.clear()
        monkeypatch.setattr(fsdp, "LEAST_UNIT", least)
        wrapped("gpt2", Meshed(None, Mesh(1, 1, 1, 1), Parallelism(strategy)))
        assert units == [*((row, strategy == "fsdp") for row in rows), ("rest", False)]
