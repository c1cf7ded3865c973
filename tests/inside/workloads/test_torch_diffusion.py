"""Diffusion transformers against networks written out, and against their cards."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from probing import distinct, doubles  # noqa: E402
from small_networks import smaller  # noqa: E402
from written_diffusion import NETWORKS  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.data.generated import formula  # noqa: E402
from entrypoints.workloads.pytorch import build, deferred, diffusion, loader, transformer  # noqa: E402

CARDS = {name: cards.load()[name] for name in ("dit_xl_2", "flux_1")}
counting = pytest.mark.skipif(torch.__version__ < "2.1", reason="torch counts operations from 2.1 on")
deferring = pytest.mark.skipif(not deferred.AVAILABLE, reason="this PyTorch cannot defer weights")


def sizes(model):
    """Patches, places of text, width, inner numbers, heads."""
    rows, columns = diffusion.grid(model)
    text = model["condition"].get("text_length", 0)
    return rows * columns, text, model["width"], model["feed_forward"], model["heads"]


def multiplications(model):
    """Of layers whose inputs have no gradient, and of a forward pass."""
    (patches, text, width, inner, _), told = sizes(model), model["condition"]
    pixels = model["latents"][0] * model["patch"] ** 2
    places = patches + text
    first = patches * pixels * width + model["time"]["width"] * width
    block = places * (4 * width**2 + 2 * width * inner + 2 * places * width)
    if text:
        first += text * told["text_width"] * width + told["vector"] * width
        middle = 2 * width**2 + model["double_layers"] * (block + 12 * width**2)
        middle += model["single_layers"] * (block + 3 * width**2)
    else:
        middle = width**2 + model["layers"] * (block + 6 * width**2)
    outputs = pixels * (2 if model["learns_variance"] else 1)
    return first, first + middle + 2 * width**2 + patches * width * outputs


def kept(model):
    """What backward wants of an image: inputs and outputs of layers, and statistics of normalisations and attention."""
    patches, text, width, inner, heads = sizes(model)
    places, image = patches + text, model["latents"][0] * patches * model["patch"] ** 2
    first = image + model["time"]["width"] + 2 * width + width
    last = 2 * patches + 2 * width + 2 * patches * width + image
    if not text:
        block = 9 * width + 12 * places * width + 4 * places + heads * places + 2 * inner * places
        labels = 2  # of 8 bytes
        return first + labels + model["layers"] * block + last + places * width + 2 * image
    told = model["condition"]
    first += told["vector"] + 2 * width + text * told["text_width"]
    double = 18 * width + 18 * places * width + 4 * places + 3 * heads * places + 2 * inner * places
    one = 5 * width + 13 * places * width + 2 * places + 3 * heads * places + 2 * inner * places
    return first + model["double_layers"] * double + model["single_layers"] * one + last + places * width + image


@deferring
@pytest.mark.parametrize("name", CARDS)
def test_the_number_of_parameters_is_the_published_one(name):
    problem = CARDS[name].problem
    with torch.device("meta"), deferred.Recorder():
        parameters = list(diffusion.network(problem["model"]).parameters())
    assert sum(each.numel() for each in parameters) == problem["parameters"]
    assert sum(each.numel() for each in parameters if each.requires_grad) == cards.trained_parameters(problem)
    assert problem["parameters"] == {"dit_xl_2": 675_129_632, "flux_1": 11_891_178_560}[name]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", CARDS)
def test_outputs_and_gradients_are_those_of_a_network_written_out(name, fused, monkeypatch):
    if fused and not transformer.FUSED:
        pytest.skip("this torch has no such operation")
    monkeypatch.setattr(transformer, "FUSED", fused)
    card = smaller(CARDS[name])
    ours = build.model(card, seed=3).double().train()
    build.load_probe_weights(ours)
    written = NETWORKS[card.problem["model"]["architecture"]](card.problem["model"]).double()
    names = distinct(ours.network)
    with torch.no_grad():
        for key, value in zip(names, written.parameters()):
            if not hasattr(value, "given"):  # what is not learnt is equal as it is
                value.copy_(torch.from_numpy(formula.weight(key, value.shape)))
    batch = loader.formula_batch(card, 3)
    inputs, targets = doubles(batch.inputs), batch.targets.double()
    output, expected = ours.network(*inputs), written(*inputs)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    ours.loss_of(output, targets).backward()
    ((expected[:, : targets.shape[1]] - targets) ** 2).mean().backward()
    for (key, weight), other in zip(ours.network.named_parameters(), written.parameters()):
        assert weight.requires_grad == other.requires_grad, key
        if weight.requires_grad:
            torch.testing.assert_close(weight.grad, other.grad, rtol=1e-6, atol=1e-10, msg=key)


@pytest.mark.full  # diffusers takes ten seconds to be imported
@pytest.mark.skipif(torch.__version__ < "2", reason="diffusers wants attention as one operation")
@pytest.mark.parametrize("name", CARDS)
def test_outputs_are_those_of_diffusers(name):
    of_diffusers = pytest.importorskip("of_diffusers", reason="diffusers is not here")
    card = smaller(CARDS[name])
    model = {**card.problem["model"], "latents": [4, 12, 12], "feed_forward": 4 * card.problem["model"]["width"]}
    card = card._replace(problem={**card.problem, "model": model, "input": {"kind": "latents", "shape": [4, 12, 12]}})
    ours = diffusion.network(model).double().eval()
    build.load_probe_weights(build.Objective(ours, None))
    theirs = of_diffusers.NETWORKS[model["architecture"]](model, dict(ours.state_dict())).double().eval()
    latents, noise, times, *told = doubles(loader.formula_batch(card, 3).inputs)
    with torch.no_grad():
        output, expected = ours(latents, noise, times, *told), theirs(ours.noise(latents, noise, times), times, *told)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)  # its waves of times are in single precision
    times = times % 3 if name == "dit_xl_2" else times / 1000
    with torch.no_grad():
        output, expected = ours(latents, noise, times, *told), theirs(ours.noise(latents, noise, times), times, *told)
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CARDS)
def test_the_loss_knows_the_noise_alone(name):
    """The variance is computed, and has no gradient."""
    card = smaller(CARDS[name])
    model = build.model(card, seed=3).train()
    batch = loader.synthetic_batch(card, 2, seed=1)
    output, _ = model(batch.inputs), model(batch.inputs, batch.targets)[1].backward()
    head, channels = model.network.head, batch.targets.shape[1]
    assert head.project.weight.grad.abs().sum(1).all()
    assert output[0].shape[1] == (channels if head.variance is None else 2 * channels)
    assert head.variance is None or not head.variance.weight.grad.any()


def test_noise_grows_from_step_to_step_and_over_time():
    latents, noise = torch.ones(3, 4, 8, 12), torch.zeros(3, 4, 8, 12)
    steps = diffusion.Diffusion(CARDS["dit_xl_2"].problem["model"]["noise"])
    left = steps(latents, noise, torch.tensor([0, 500, 999]))[:, 0, 0, 0]
    assert left.tolist() == pytest.approx([0.99995, 0.2789, 0.00635], rel=1e-3)
    assert (steps(noise, latents, torch.tensor([0, 500, 999]))[:, 0, 0, 0] ** 2 + left**2).tolist() == pytest.approx(
        [1, 1, 1]
    )
    assert diffusion.Flow()(latents, noise, torch.tensor([0.0, 0.25, 1.0]))[:, 0, 0, 0].tolist() == [1, 0.75, 0]


def test_the_targets_are_noise_or_the_way_to_it():
    dit, flux = (loader.synthetic_batch(smaller(card), 64, seed=1) for card in CARDS.values())
    assert torch.equal(dit.targets, dit.inputs[1])
    assert torch.equal(flux.targets, flux.inputs[1] - flux.inputs[0])
    (steps, labels), times = dit.inputs[2:], flux.inputs[2]
    assert steps.dtype == torch.int64 and 0 <= steps.min() < steps.max() < 1000
    assert labels.max() == 10, "a class for none, which a tenth of the samples have"
    assert 0 <= times.min() < times.max() < 1


@counting
@pytest.mark.parametrize("name", CARDS)
def test_operations_are_those_that_are_counted(name, monkeypatch):
    monkeypatch.setattr(transformer, "FUSED", False)  # not all that torch does at once is counted
    counter = pytest.importorskip("torch.utils.flop_counter")
    small = smaller(CARDS[name])
    objective, batch = build.model(small, seed=3).train(), loader.formula_batch(small, 2)
    with counter.FlopCounterMode(display=False) as forward, torch.no_grad():
        objective(batch.inputs)
    with counter.FlopCounterMode(display=False) as training:
        objective(batch.inputs, batch.targets)[1].backward()
    first, all_of_them = multiplications(small.problem["model"])
    assert forward.get_total_flops() == 2 * 2 * all_of_them
    assert training.get_total_flops() == 2 * 2 * (3 * all_of_them - first)
    first, all_of_them = multiplications(CARDS[name].problem["model"])
    assert CARDS[name].flops_per_unit("inference") == 2 * all_of_them
    assert CARDS[name].flops_per_unit("training") == 2 * (3 * all_of_them - first)


@counting
@pytest.mark.parametrize("name", CARDS)
def test_the_memory_of_the_card_is_what_autograd_keeps(name):
    card = smaller(CARDS[name])
    objective = build.model(card, seed=3).train()
    weights = {weight.data_ptr() for weight in objective.parameters()}

    def counted(samples):
        storages = {}

        def keep(tensor):
            if tensor.data_ptr() not in weights:
                storages[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        batch = loader.synthetic_batch(card, samples, seed=1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            objective(batch.inputs, batch.targets)
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values()) // 4

    assert counted(3) - counted(2) == kept(card.problem["model"])
    problem = CARDS[name].problem
    assert CARDS[name].memory["training_elements_per_unit"] == kept(problem["model"])
    places = sum(sizes(problem["model"])[:2])
    assert CARDS[name].memory["inference_elements_per_unit"] == 2 * places * problem["model"]["feed_forward"]


@pytest.mark.parametrize("name", CARDS)
def test_blocks_add_in_single_precision(name):
    card = smaller(CARDS[name])
    model, batch = build.model(card, seed=3), loader.synthetic_batch(card, 2, seed=1)
    seen = []
    for block in model.network.blocks:
        block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(batch.inputs)
    assert set(seen) == {torch.float32}


def test_the_places_of_the_check_are_those_of_the_network():
    """The formula of the check makes everything that is learnt, and nothing else."""
    model = build.model(smaller(CARDS["dit_xl_2"]), seed=3)
    places = model.network.embedding.places.detach().clone()
    build.load_probe_weights(model)
    assert torch.equal(model.network.embedding.places, places)
    assert places.norm() ** 2 == pytest.approx(places.numel() / 2)
