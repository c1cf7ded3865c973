"""What a batch needs at the least, and that what cannot fit is not tried."""

from __future__ import annotations

import pytest

from entrypoints.contract import cards
from entrypoints.contract.statuses import RunError
from entrypoints.planning import arguments
from entrypoints.planning.resolve import resolve
from entrypoints.worker import memory_estimate

CARD = cards.load()["resnet50"]


def resolved(*words):
    return resolve(arguments.parse(["resnet50", *words]), CARD, None)


def test_the_model_needs_weights_gradients_and_what_the_optimizer_keeps():
    weights = 25557032 * 4 / 2**20
    assert memory_estimate.estimate(CARD, resolved()).model == pytest.approx(3 * weights)
    assert memory_estimate.estimate(CARD, resolved("--task", "inference")).model == pytest.approx(weights)


def test_what_is_not_trained_has_no_gradients_and_states_and_may_be_half_as_precise():
    card = cards.load()["llama_8b_lora"]
    trained = 9437184
    frozen = card.problem["parameters"] - trained
    for precision, size in (("fp32", 4), ("bf16", 2)):
        run = resolve(arguments.parse(["llama_8b_lora", "--precision", precision]), card, None)
        need = memory_estimate.estimate(card, run).model
        assert need == pytest.approx((trained * 16 + frozen * size) / 2**20)


def test_the_batch_needs_as_much_per_sample_and_half_in_half_precision():
    single, many = (
        memory_estimate.estimate(CARD, resolved("--task", "inference", "--batch-size", size)).batch
        for size in ("1", "64")
    )
    assert many == pytest.approx(64 * single) and single > 4
    half = memory_estimate.estimate(
        CARD, resolved("--task", "inference", "--batch-size", "4", "--precision", "bf16")
    ).batch
    assert half == pytest.approx(
        2 * memory_estimate.estimate(CARD, resolved("--task", "inference", "--batch-size", "1")).batch
    )
    streams = memory_estimate.estimate(CARD, resolved("--task", "inference", "--concurrency", "8"))
    assert streams.batch == pytest.approx(
        8 * memory_estimate.estimate(CARD, resolved("--task", "inference", "--batch-size", "1")).batch
    )


def test_a_served_network_needs_a_byte_of_each_weight_in_fp8_and_its_share_of_them():
    card = cards.load()["llama_70b"]
    image = {"framework": "pytorch", "device": "cuda"}
    for precision, devices, size in (("bf16", 1, 2), ("fp8", 1, 1), ("fp8", 4, 1)):
        words = ["llama_70b", "--task", "serving", "--precision", precision, "--tensor", str(devices)]
        need = memory_estimate.estimate(card, resolve(arguments.parse(words), card, image))
        assert sum(need) == pytest.approx(card.problem["parameters"] * size / devices / 2**20)


def test_gradients_take_the_room_of_activations_unless_they_accumulate():
    gradients = 25557032 * 4 / 2**20
    small, large, larger = (
        memory_estimate.estimate(CARD, resolved("--batch-size", size)).batch for size in ("1", "64", "128")
    )
    assert small == 0.0
    assert larger + gradients == pytest.approx(2 * (large + gradients))
    parts = memory_estimate.estimate(CARD, resolved("--batch-size", "128", "--micro-batch-size", "64"))
    assert parts.batch == pytest.approx(large + gradients)


def test_what_ranks_keep_on_the_host_needs_no_memory_of_devices():
    image = {"framework": "pytorch", "device": "cuda"}
    words = ["resnet50", "--replicas", "2", "--offload", "--precision", "fp32", "--strategy"]
    needs = {
        strategy: memory_estimate.estimate(CARD, resolve(arguments.parse([*words, strategy]), CARD, image)).model
        for strategy in ("zero2", "zero3")
    }
    assert needs == {"zero2": pytest.approx(25557032 * 4 / 2**20), "zero3": 0.0}


def test_what_cannot_fit_is_refused_with_the_estimate():
    enough = sum(memory_estimate.estimate(CARD, resolved("--batch-size", "64")))
    memory_estimate.require_memory(CARD, resolved("--batch-size", "64"), enough + 1)
    memory_estimate.require_memory(CARD, resolved("--batch-size", "64"), None)
    with pytest.raises(RunError, match=f"at least {enough:.0f} MiB .* are needed, and 1000 MiB are left") as caught:
        memory_estimate.require_memory(CARD, resolved("--batch-size", "64"), 1000.0)
    assert caught.value.state == "out_of_memory"
    with pytest.raises(RunError, match="and 2000 MiB are left"):
        memory_estimate.require_memory(CARD, resolved("--batch-size", "64", "--memory-limit", "2000"), 4000.0)


def test_every_card_knows_what_a_unit_needs():
    for card in cards.load().values():
        tasks = [
            task for task in card.tasks if task != "serving"
        ]  # in which an engine decides; inference after training
        needs = [card.memory[f"{task}_elements_per_unit"] for task in tasks]
        assert needs == sorted(needs, reverse=True) and needs[-1] > 0


def test_a_run_that_cannot_fit_is_not_tried(double):
    document = double.result("resnet50", "--smoke", "--batch-size", "64", "--memory-limit", "1024")
    assert document["status"]["state"] == "out_of_memory" and document["status"]["phase"] == "import"
    assert "not tried: at least " in document["status"]["message"]
