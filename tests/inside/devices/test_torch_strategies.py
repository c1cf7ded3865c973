"""Strategies: ranks, real processes, train as one rank does with the same global batch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from training_ranks import parallelism, small_card, trained  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.group import Mesh  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch.strategies import versions  # noqa: E402
from entrypoints.planning import arguments  # noqa: E402
from entrypoints.planning.resolve import resolve  # noqa: E402
from entrypoints.system.facts import MIB  # noqa: E402
from entrypoints.worker import memory_estimate  # noqa: E402

STEPS = 20
NETWORKS = ("gpt2", "bert_base", "lstm", "image_compression", "resnet50", "bert_large_pretraining_128")
LATENTS = ("dit_xl_2", "flux_1")  # whose blocks are of two kinds, or beside weights that are not trained
LAMB = "bert_large_pretraining_128"
TIED = "gpt_117m"  # its table of tokens is also the head, so that each of two stages has it
NORMALISED = ("image_compression", "resnet50")  # each rank's batch normalisation has the statistics of its samples
# Their losses part after a few steps, too: a rounded sum decides on which side of zero an activation is. On processors
# with AVX-512 image_compression has parted at the fifth; the first three have two updates behind them.
FIRST, FIRST_NORMALISED, EQUAL, PARTED_BY_ROUNDING = 5, 3, 1e-5, 5e-3
SHARDED = ("fsdp", "zero2", "zero3")
MESHES = torch.__version__ >= "2.13"  # this PyTorch divides models with gloo
STRATEGIES = ("ddp", "zero1", *(SHARDED if MESHES else ()))
needs_meshes = pytest.mark.skipif(not MESHES, reason="this PyTorch divides no models on a CPU")


def cases():
    """Every strategy with every network; those of the gate are small."""
    for strategy in STRATEGIES:
        for workload in NETWORKS:
            marks = [pytest.mark.full] * (workload != "gpt2" or strategy != "fsdp")
            yield pytest.param(strategy, workload, marks=marks)
    for strategy in ("ddp", *(["fsdp"] if MESHES else ())):
        for workload in LATENTS:
            yield pytest.param(strategy, workload, marks=pytest.mark.full)


@pytest.mark.parametrize(("strategy", "workload"), list(cases()))
def test_two_ranks_have_the_losses_of_one(strategy, workload):
    """The one rank accumulates two micro-batches, so that its batch normalisations see what those of the ranks do."""
    alone, (single,) = trained(workload, None, STEPS, accumulation=2)
    together, ranks = trained(workload, strategy, STEPS)
    first = FIRST_NORMALISED if workload in NORMALISED else FIRST
    assert together[:first] == pytest.approx(alone[:first], rel=EQUAL)
    assert together == pytest.approx(alone, rel=PARTED_BY_ROUNDING if workload in NORMALISED else EQUAL)
    assert [rank["names"] for rank in ranks] == 2 * [single["names"]]
    assert [rank["norm"] for rank in ranks] == 2 * [pytest.approx(single["norm"], rel=1e-4)]
    assert ranks[0]["used"] == pytest.approx(single["used"], abs=0.02)
    if strategy in SHARDED:
        assert sum(rank["held"] for rank in ranks) <= single["held"]


@needs_meshes
@pytest.mark.parametrize(
    ("strategy", "workload", "world"),
    [
        ("tensor tensor=2", "gpt2", 2),
        ("pipelined stages=2", TIED, 2),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("fsdp tensor=2", "gpt2", 4),
                ("tensor tensor=2", "bert_base", 2),
                ("tensor tensor=2", TIED, 2),
                ("tensor tensor=2", LAMB, 2),
                ("fsdp tensor=2", "llama_1b", 4),
                ("fsdp", "olmoe_1b_7b", 2),
                ("fsdp", "gpt_oss_20b", 2),
                ("pipelined stages=2 tensor=2", "llama_1b", 4),
                ("tensor tensor=8", "gpt2", 8),  # of four heads: as the correctness check has fewer than some runs
                ("pipelined stages=2", "bert_base", 2),
                ("pipelined stages=2", LAMB, 2),
                ("pipelined stages=3", "gpt2", 3),  # of two blocks: one stage has none
                ("pipelined stages=2 virtual_stages=2", "gpt2", 2),
                ("pipelined stages=2 tensor=2", TIED, 4),
                ("ddp stages=2", TIED, 4),
                ("fsdp stages=2", LAMB, 4),
                ("fsdp shards=2", "gpt2", 4),
                ("zero2 shards=2", LAMB, 4),
                ("fsdp tensor=2", LAMB, 4),
                ("fsdp stages=2 tensor=2", LAMB, 8),
            )
        ),
    ],
)
def test_a_mesh_of_ranks_has_the_losses_of_one(strategy, workload, world):
    """Each rank of a pipeline has as many micro-batches as stages."""
    how = parallelism({"strategy": strategy})
    replicas = world // how.stages // how.tensor
    parts = how.stages if replicas * how.stages <= 4 else 1
    alone, (single,) = trained(workload, None, 3, accumulation=replicas * parts)
    together, ranks = trained(workload, strategy, 3, world=world, accumulation=parts)
    assert together == pytest.approx(alone, rel=EQUAL)
    assert [rank["names"] for rank in ranks] == world * [single["names"]]
    assert [rank["norm"] for rank in ranks] == world * [pytest.approx(single["norm"], rel=1e-6)]
    used = {name: fraction for rank in ranks for name, fraction in rank["used"].items()}
    assert used == pytest.approx(single["used"], abs=0.02)
    assert max(rank["held"] for rank in ranks) < single["held"]


@needs_meshes
@pytest.mark.full
@pytest.mark.parametrize("strategy", ["pipelined stages=2", "tensor tensor=2", "fsdp tensor=2", "ddp stages=2"])
def test_gradients_of_parts_are_clipped_together(strategy):
    """Gradient descent shows a factor that Adam hides, and a small norm is always exceeded."""
    rule = {"name": "sgd", "momentum": 0.0, "nesterov": False, "gradient_norm": 0.01}
    world = 2 if strategy.startswith(("pipelined", "tensor")) else 4
    alone, (single,) = trained(TIED, None, 3, accumulation=4, rule=rule)
    parts = 4 // (world // 2) if "stages" in strategy else 1
    together, ranks = trained(TIED, strategy, 3, world=world, accumulation=parts, rule=rule)
    assert together == pytest.approx(alone, rel=1e-6)
    assert ranks[0]["norm"] == pytest.approx(single["norm"], rel=1e-9)


@needs_meshes
@pytest.mark.full
def test_ranks_drop_different_values_where_they_have_different_positions_and_heads():
    """What all of them have is the same after updates; a block that is computed again drops what it dropped before."""
    _, plain = trained("gpt2", "tensor tensor=2", 3, dropout=True)
    again, recomputed = trained("gpt2", "tensor tensor=2", 3, dropout=True, recomputed=True)
    without, _ = trained("gpt2", "tensor tensor=2", 3)
    assert plain[0]["equal"] == plain[1]["equal"] != []
    assert plain[0]["dropped"] != plain[1]["dropped"]
    assert recomputed[0]["norm"] == pytest.approx(plain[0]["norm"], rel=1e-7)
    assert again != pytest.approx(without, rel=1e-3)


@needs_meshes
@pytest.mark.full
def test_weights_that_part_on_ranks_of_a_block_end_the_run():
    with pytest.raises(AssertionError, match="weights that each rank has whole are no longer the same"):
        trained("gpt2", "tensor tensor=2", 2, mutant="positions_apart")


@needs_meshes
@pytest.mark.full
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "pipelined stages=2"])
def test_ranks_train_in_fp8_as_one_does(strategy):
    """Each has scales of its own for its samples, so that losses part by rounding."""
    alone, _ = trained("llama_1b", None, 3, accumulation=2, precision="fp8")
    parts = 2 if "stages" in strategy else 1
    together, ranks = trained("llama_1b", strategy, 3, accumulation=parts, precision="fp8")
    assert together == pytest.approx(alone, rel=1e-3)
    assert ranks[0]["norm"] == pytest.approx(ranks[1]["norm"], rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("workload", NORMALISED)
def test_batch_normalisation_is_that_of_each_rank(workload):
    """So losses differ from those of a batch that is computed at once: by about 1 %, and not in the first step."""
    (alone, _), (together, _) = trained(workload, None, 6), trained(workload, "ddp", 6)
    assert together != pytest.approx(alone, rel=1e-5)
    assert together == pytest.approx(alone, rel=0.05)


@needs_meshes
@pytest.mark.full
def test_gradients_of_shards_accumulate_and_are_clipped_together():
    rule = {"name": "sgd", "momentum": 0.0, "nesterov": False, "gradient_norm": 0.01}
    alone, (single,) = trained("bert_base", None, 3, accumulation=4, rule=rule)
    for strategy, world in (("fsdp", 2), ("fsdp shards=2", 4)):
        parts = 4 // world
        together, ranks = trained("bert_base", strategy, 3, world=world, accumulation=parts, rule=rule)
        assert together == pytest.approx(alone, rel=1e-6)
        assert ranks[0]["norm"] == pytest.approx(single["norm"], rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("strategy", [None, *(["fsdp"] if MESHES else [])])
def test_blocks_that_are_computed_again_learn_the_same(strategy):
    plain, _ = trained("gpt2", None, 3, accumulation=2)
    again, _ = trained("gpt2", strategy, 3, recomputed=True, **({} if strategy else {"accumulation": 2}))
    assert again == pytest.approx(plain, rel=1e-5)


@needs_meshes
@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "options", "by"),
    [
        ("fsdp", {"offload": True, "workload": "gpt2"}, "fully_shard"),
        ("fsdp", {"offload": True, "workload": LAMB}, "fully_shard"),
        ("fsdp", {"compile": True, "workload": "gpt2"}, "fully_shard"),
        ("tensor tensor=2", {"compile": True, "workload": "gpt2"}, "parallelize_module"),
        ("pipelined stages=2", {"compile": True, "workload": "gpt2", "accumulation": 2}, "one forward, one backward"),
        ("zero1", {"compile": True, "workload": "gpt2"}, "ZeroRedundancyOptimizer"),
    ],
)
def test_options_change_no_loss(strategy, options, by):
    """What a GPU would send to the host and back stays where it is here: that way itself needs a GPU."""
    workload = options.pop("workload")
    alone, (single,) = trained(workload, None, 6, accumulation=2)
    together, ranks = trained(workload, strategy, 6, **options)
    assert together == pytest.approx(alone, rel=EQUAL)
    assert ranks[0]["norm"] == pytest.approx(single["norm"], rel=1e-7)
    assert by in ranks[0]["execution"]
    assert "compile" not in options or "compiled" in ranks[0]["execution"]


@needs_meshes
@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "workload"),
    [
        ("fsdp", "gpt2"),
        ("tensor tensor=2", "gpt2"),
        ("pipelined stages=2", "gpt2"),
        ("pipelined stages=2", "llama_8b_lora"),
    ],
)
def test_half_precision_differs_by_rounding_only(strategy, workload):
    """Shards gather normalisations in half precision, too, and stages send it. What is not trained is kept in it."""
    parts = {"accumulation": 2} if "stages" in strategy else {}
    alone, (single,) = trained(workload, None, 6, accumulation=2, precision="bf16")
    together, ranks = trained(workload, strategy, 6, precision="bf16", **parts)
    assert together == pytest.approx(alone, rel=1e-3)
    assert [rank["norm"] for rank in ranks] == 2 * [pytest.approx(single["norm"], rel=1e-4)]


@needs_meshes
@pytest.mark.full
def test_ranks_hold_as_many_bytes_of_adapters_and_frozen_weights_as_were_estimated():
    """Frozen weights are gathered in half precision, and so they are kept in it."""
    alone, _ = trained("llama_8b_lora", None, 3, accumulation=2, precision="bf16")
    together, ranks = trained("llama_8b_lora", "fsdp", 3, precision="bf16")
    assert together == pytest.approx(alone, rel=1e-3)
    words = ["llama_8b_lora", "--precision", "bf16", "--batch-size", "2", "--strategy", "fsdp", "--replicas", "2"]
    run = resolve(arguments.parse(words), cards.load()[words[0]], {"framework": "pytorch", "device": "cuda"})
    card = small_card(words[0])
    estimated = 2 * memory_estimate.estimate(card, run).model * MIB
    assert sum(rank["bytes"] for rank in ranks) + 3 * 4 * card.problem["trained"] == pytest.approx(estimated)


@pytest.mark.parametrize(
    ("strategy", "world", "of_a_node", "expected"),
    [
        ("ddp", 8, 4, Mesh(1, 8, 1, 1)),
        ("fsdp", 8, 8, Mesh(1, 1, 8, 1)),
        ("fsdp", 32, 8, Mesh(1, 4, 8, 1)),  # a copy of the model on each node
        ("fsdp", 8, 1, Mesh(1, 1, 8, 1)),  # nodes of one device have no copies
        ("fsdp shards=16", 32, 8, Mesh(1, 2, 16, 1)),
        ("fsdp tensor=4", 32, 8, Mesh(1, 4, 2, 4)),
        ("fsdp stages=4", 32, 8, Mesh(4, 1, 8, 1)),  # stages are on different nodes
        ("ddp stages=2", 8, 8, Mesh(2, 4, 1, 1)),
        ("tensor tensor=2", 4, 4, Mesh(1, 2, 1, 2)),  # two copies that answer
    ],
)
def test_ranks_form_a_mesh(strategy, world, of_a_node, expected):
    how = parallelism({"strategy": strategy})
    assert how.mesh(world, of_a_node) == expected and expected.ranks == world


@pytest.mark.parametrize(
    ("version", "kind", "strategy", "least"),
    [
        ("1.13.1", "cuda", "fsdp", "2.6"),
        ("2.6.0", "cuda", "fsdp", None),
        ("2.6.0", "cuda", "fsdp tensor=2", "2.7"),
        ("2.8.0", "cpu", "fsdp", "2.9"),
        ("2.9.1", "cpu", "pipelined stages=2", "2.13"),
        ("2.13.0", "cpu", "zero2 stages=2 tensor=2", None),
        ("1.13.1", "cpu", "zero1", None),
    ],
)
def test_a_pytorch_that_is_too_old_is_named(monkeypatch, version, kind, strategy, least):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    how = parallelism({"strategy": strategy})
    if least is None:
        versions.require(how, kind)
        return
    with pytest.raises(RunError, match=f" on {kind}: PyTorch {version} cannot do it, from {least} on it") as caught:
        versions.require(how, kind)
    assert caught.value.state == "unsupported"
