"""Every network over images against its card, and against networks that are not ours with the same weights."""

from __future__ import annotations

import copy
import sys

import pytest
from program import ROOT

torch = pytest.importorskip("torch")
written = pytest.importorskip("written", reason="torchvision is not here")

from small_networks import losses_of  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import Batch, OptimizerRule  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.workloads.pytorch import build, layers  # noqa: E402

sys.path.append(str(ROOT / "benchmarks"))
import plain  # noqa: E402

CARDS = {  # of convolutions
    name: card for name, card in cards.load().items() if cards.pictures(card.problem) and card.family != "vit"
}
SMALL = 64  # pixels: the networks take any size, and this one takes little time


LARGE = ("efficientnet_b4", "resnext101_32x4d", "mobilenet_v3_large")  # others of their family stand for them


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.full] * (name in LARGE)) for name in CARDS]
)
def card(request):
    return CARDS[request.param]


@pytest.fixture(scope="module")
def model(card):
    return build.model(card, seed=3)


def batch(card, samples=2, size=SMALL):
    """Inputs and targets of a card, smaller than it says where the network does not mind."""
    channels, height, _ = card.problem["input"]["shape"]
    pixels = torch.rand(samples, channels, *[min(size, height)] * 2, generator=torch.Generator().manual_seed(1))
    return pixels, pixels if cards.reconstructs(card.problem) else torch.tensor([1, 999] * samples)[:samples]


def test_the_number_of_parameters_is_the_reference_s(card, model):
    reference = written.NETWORKS[card.name]()
    count = sum(parameter.numel() for parameter in reference.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == card.problem["parameters"] == count


def test_the_operations_of_the_card_are_those_that_are_counted(card, model):
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    samples = 2
    pixels, _ = batch(card, samples, size=1000)
    layers = [layer for layer in model.modules() if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear))]
    shapes = []
    watch = layers[0].register_forward_hook(lambda layer, inputs, output: shapes.append(output.shape))
    with torch.no_grad(), counter.FlopCounterMode(display=False) as forward:
        copy.deepcopy(model).eval()(pixels)
    watch.remove()
    assert forward.get_total_flops() == samples * card.flops_per_unit("inference")
    # Backward costs twice as much as forward, but for the gradient of the images, which nobody needs.
    first = 2 * layers[0].weight.numel() * shapes[0][2] * shapes[0][3]
    assert card.flops_per_unit("training") == 3 * card.flops_per_unit("inference") - first


@pytest.mark.parametrize("workload", ["resnet50", "image_compression"])
def test_training_costs_what_the_card_says(workload):
    """Where no convolution has groups: of those that have, PyTorch counts the backward pass as if they had none."""
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    card = CARDS[workload]
    with counter.FlopCounterMode(display=False) as training:
        _, loss = build.model(card, seed=3).train()(*batch(card, 2, size=1000))
        loss.backward()
    assert training.get_total_flops() == 2 * card.flops_per_unit("training")


@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_are_the_reference_s(card, model, training):
    """In double precision: what eight numbers a channel are normalised to depends on each of their bits."""
    ours = build.without_randomness(copy.deepcopy(model)).double().train(training)
    reference = written.plain(written.NETWORKS[card.name]()).double().train(training)
    reference.load_state_dict(dict(zip(reference.state_dict(), ours.network.state_dict().values())))
    pixels, targets = (x.double() if x.is_floating_point() else x for x in batch(card))
    output = ours.network(pixels)
    loss = ours.loss_of(output, targets)
    expected = reference(pixels)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    loss.backward()
    written.LOSSES[card.problem["loss"]["name"]](expected, targets, card.problem["loss"]).backward()
    for (name, parameter), (_, other) in zip(ours.network.named_parameters(), reference.named_parameters()):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-6, atol=1e-9, msg=name)


def test_what_is_dropped_is_what_the_reference_drops(card, model):
    """The probe drops nothing, so the shares have to be looked at."""
    kinds = (torch.nn.Dropout, layers.StochasticDepth, written.StochasticDepth)
    ours, reference = (
        [layer.p for layer in network.modules() if isinstance(layer, kinds) and layer.p > 0]
        for network in (model, written.NETWORKS[card.name]())
    )
    assert ours == pytest.approx(reference) and (len(ours) > 0) == ("dropout" in card.problem["model"])


QUICK = ("image_compression",)
FOR_LONG = (*QUICK, "mobilenet_v3_small")  # the others take minutes for twenty steps in double precision
BY_COST = [pytest.param(name, marks=[pytest.mark.full] * (name not in QUICK)) for name in CARDS]


@pytest.mark.parametrize("workload", BY_COST)
@pytest.mark.skipif(torch.__version__ < "2", reason="1.13 takes minutes in double precision")
def test_training_loses_what_a_plain_loop_loses(workload):
    """In double precision ours lies no further from the benchmark's loop over the reference than that loop from itself
    after rounding errors in its weights. Few samples make them grow, in residual networks beyond all measure."""
    card, steps = CARDS[workload], 20 if workload in FOR_LONG else 6
    rule = OptimizerRule.from_problem(card.problem["optimizer"], 4)
    ours = build.without_randomness(build.model(card, seed=3)).double()
    weights = copy.deepcopy(list(ours.network.state_dict().values()))
    pixels, targets = (x.double() if x.is_floating_point() else x for x in batch(card, 2))
    session = cpu.open_session(ours, rule, "fp32")
    losses = torch.tensor(losses_of(session, Batch(pixels, targets), steps))

    def plain_losses(rounding):
        reference = written.plain(written.NETWORKS[workload]()).double().train()
        reference.load_state_dict(dict(zip(reference.state_dict(), weights)))
        torch.manual_seed(rounding)
        with torch.no_grad():
            for parameter in reference.parameters() if rounding else ():
                parameter *= 1 + torch.randn_like(parameter) * 2**-53
        optimizer = plain.optimizer_of(reference, rule)
        step = plain.training(reference, plain.loss_of(card.problem), optimizer, (pixels,), targets)
        return torch.tensor([step() for _ in range(steps)])

    expected = plain_losses(rounding=0)
    spread = torch.stack([(plain_losses(seed) - expected).abs() for seed in (1, 2, 3)]).amax(0).cummax(0).values
    assert ((losses - expected).abs() <= 30 * spread + 1e-9).all(), (losses, expected, spread)
    assert losses[:3].tolist() == pytest.approx(expected[:3].tolist(), rel=1e-6)


def counted_memory(card, model):
    """Numbers that autograd keeps for a sample, and numbers that go in and out of the layer that has most of both."""
    trained = copy.deepcopy(model).to(memory_format=torch.channels_last).train()
    parameters = {parameter.data_ptr() for parameter in trained.parameters()}

    def kept(samples):
        pixels, targets = batch(card, samples, size=1000)
        storages = {}

        def keep(tensor):
            storage = tensor.untyped_storage()
            if tensor.data_ptr() not in parameters:
                storages[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        placed = pixels.contiguous(memory_format=torch.channels_last)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            trained(placed, targets)
        return sum(size for size, _ in storages.values()) // 4

    most = 0

    def look(layer, inputs, output):
        nonlocal most
        shared = inputs[0].data_ptr() == output.data_ptr()
        most = max(most, output.numel() + (0 if shared else inputs[0].numel()))

    folded = build.fold_batch_norms(model)
    for layer in folded.network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(look)
    with torch.no_grad():
        folded(batch(card, 1, size=1000)[0])
    return (kept(4) - kept(2)) // 2, most


@pytest.mark.parametrize("workload", BY_COST)
@pytest.mark.skipif(torch.__version__ < "2", reason="1.13 keeps other tensors")
def test_the_memory_of_the_card_is_what_is_counted(workload):
    card = CARDS[workload]
    training, inference = counted_memory(card, build.model(card, seed=3))
    assert card.memory["training_elements_per_unit"] == pytest.approx(training, rel=0.01)
    assert card.memory["inference_elements_per_unit"] == inference
