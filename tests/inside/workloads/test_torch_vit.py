"""The vision transformer against torchvision's, and against its card."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
written = pytest.importorskip("written", reason="torchvision is not here")

from small_networks import smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, transformer, vit  # noqa: E402

CARD = cards.load()["vit_l16"]


def numbers(problem):
    """Patches with the class, and the sizes of a block."""
    model = problem["model"]
    return 1 + (model["image"] // model["patch"]) ** 2, model["width"], model["feed_forward"]


def operations(problem):
    """Two for each multiplication: of the patches, and of a forward pass."""
    model, (places, width, inner) = problem["model"], numbers(problem)
    patches = 2 * (places - 1) * 3 * model["patch"] ** 2 * width
    block = 2 * places * (4 * width**2 + 2 * width * inner + 2 * places * width)
    return patches, patches + model["layers"] * block + 2 * width * model["classes"]


def kept(problem, layers):
    """What backward wants of an image: pixels, and of each block inputs and outputs of its layers."""
    model, (places, width, inner) = problem["model"], numbers(problem)
    block = 4 * width + 4 + 4 * width + model["heads"] + 2 * inner  # normalisations, attention, feed-forward
    after = places * width + width + 2 + model["classes"] + 2  # all places, of which one is classified; its loss
    return 3 * model["image"] ** 2 + layers * places * block + after


@pytest.mark.skipif(torch.__version__ < "2", reason="torch makes networks without memory from 2.0 on")
def test_the_number_of_parameters_is_torchvision_s():
    with torch.device("meta"):
        ours, theirs = vit.network(CARD.problem["model"]), written.torchvision.models.vit_l_16()
    counts = [sum(each.numel() for each in network.parameters()) for network in (ours, theirs)]
    assert counts == [CARD.problem["parameters"]] * 2


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_are_torchvision_s(training, fused, monkeypatch):
    if fused and not transformer.FUSED:
        pytest.skip("this torch has no such operation")
    monkeypatch.setattr(transformer, "FUSED", fused)
    card = smaller(CARD)
    ours = build.model(card, seed=3).double().train(training)
    reference = written.network_of(card)[0].double().train(training)
    reference.load_state_dict(dict(zip(reference.state_dict(), ours.network.state_dict().values())))
    batch = loader.formula_batch(card, 3)
    pixels = batch.inputs.double()
    output, expected = ours.network(pixels), reference(pixels)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    ours.loss_of(output, batch.targets).backward()
    written.LOSSES["cross_entropy"](expected, batch.targets, card.problem["loss"]).backward()
    for (name, weight), other in zip(ours.network.named_parameters(), reference.parameters()):
        torch.testing.assert_close(weight.grad, other.grad, rtol=1e-6, atol=1e-10, msg=name)


def test_operations_are_those_that_are_counted(monkeypatch):
    monkeypatch.setattr(transformer, "FUSED", False)  # not all that torch does at once is counted
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    small = smaller(CARD)
    objective, batch = build.model(small, seed=3).train(), loader.formula_batch(small, 2)
    with counter.FlopCounterMode(display=False) as forward, torch.no_grad():
        objective(batch.inputs)
    with counter.FlopCounterMode(display=False) as training:
        objective(batch.inputs, batch.targets)[1].backward()
    patches, all_of_them = operations(small.problem)
    assert forward.get_total_flops() == 2 * all_of_them
    assert training.get_total_flops() == 2 * (3 * all_of_them - patches)
    patches, all_of_them = operations(CARD.problem)
    assert CARD.flops_per_unit("inference") == all_of_them
    assert CARD.flops_per_unit("training") == 3 * all_of_them - patches


@pytest.mark.skipif(torch.__version__ < "2.1", reason="before, attention is not one operation on a CPU")
def test_the_memory_of_the_card_is_what_autograd_keeps():
    model = {**CARD.problem["model"], "layers": 2}
    objective = build.Objective(vit.network(model), CARD.problem["loss"]).train()
    weights = {weight.data_ptr() for weight in objective.parameters()}

    def counted(samples):
        storages = {}

        def keep(tensor):
            if tensor.data_ptr() not in weights:
                storages[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        pixels = torch.zeros(samples, 3, 224, 224).contiguous(memory_format=torch.channels_last)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            objective(pixels, torch.zeros(samples, dtype=torch.int64))
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values()) // 4

    problem = {**CARD.problem, "model": model}
    assert counted(3) - counted(2) == pytest.approx(kept(problem, 2), rel=1e-6)
    assert CARD.memory["training_elements_per_unit"] == kept(CARD.problem, CARD.problem["model"]["layers"])
