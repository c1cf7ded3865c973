"""Which weights have no gradient: in double precision, those that layers name, and no other."""

from __future__ import annotations

import pytest
from small_networks import smaller

torch = pytest.importorskip("torch")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.devices.pytorch.shared.observation import used_fraction  # noqa: E402
from entrypoints.worker.run_checks import LEAST_USED, LEAST_USED_ELSEWHERE  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

CARDS = cards.load()
ROUNDING = 1e-12  # of the largest gradient: exact zeros come out as less than 1e-15, and the smallest others as 1e-9
TEXT = (
    "bert_base",
    "bert_large_pretraining_128",
    "gpt2",
    "gpt_117m",
    "gpt_800m",
    "llama_1b",
    "llama_8b_lora",
    "olmoe_1b_7b",
    "gpt_oss_20b",
)
LATENTS = ("dit_xl_2", "flux_1")
PICTURES = ("vit_l16", "image_compression", "mobilenet_v3_small", "efficientnet_b0", "resnet50")
LARGE = ("mobilenet_v3_large", "efficientnet_b4", "resnext101_32x4d")  # others of their family stand for them
MODES = {"as in training": lambda model: model, "without randomness": build.without_randomness}


def doubled(tensors):
    if isinstance(tensors, tuple):
        return tuple(map(doubled, tensors))
    return tensors.double() if tensors.is_floating_point() else tensors


def trained(card, mode):
    """A network after backward in double precision, whose gradients at the level of rounding are set to 0."""
    model = MODES[mode](build.model(card, 1).double().train())
    batch = loader.synthetic_batch(card, 2, seed=1)
    model(doubled(batch.inputs), doubled(batch.targets))[1].backward()
    gradients = [weight.grad for weight in model.parameters() if weight.requires_grad]
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    for gradient in gradients:
        gradient[gradient.abs() < ROUNDING * largest] = 0.0
    return model.network


def cases():
    """Each network in each mode, but for those whose blocks are skipped at random: that gives shifts an effect."""
    for name in (*TEXT, "lstm", "deep_voice_3", *LATENTS, *PICTURES, *LARGE):
        skips = "stochastic_depth" in CARDS[name].problem["model"]
        for mode in MODES if not skips else ("without randomness",):
            yield pytest.param(name, mode, marks=[pytest.mark.full] * (name in LARGE))


@pytest.mark.parametrize(("workload", "mode"), list(cases()))
def test_exactly_the_weights_that_layers_name_have_no_gradient(workload, mode):
    card = CARDS[workload]
    network = trained(smaller(card) if card.family in (*LEAST_USED, "vit") else card, mode)
    nothing = {id(weight) for weight in build.without_effect(network)}
    assert [name for name, weight in network.named_parameters() if id(weight) in nothing and weight.grad.any()] == []
    rotary = card.problem["model"].get("positions", {}).get("kind", "").startswith("rotary")
    least = LEAST_USED.get(card.family, LEAST_USED_ELSEWHERE)
    for name, weight, axes in build.units(network):
        gradient = weight.grad
        if name.endswith("query_key_value.bias") and not rotary:
            query, key, value = gradient.chunk(3)
            assert not key.any(), "what moves the scores of all positions alike has no effect on their softmax"
            gradient = torch.cat([query, value])
        column = gradient if axes else gradient[:, None]  # each number of a vector is looked at
        assert used_fraction(column, axes or (0,)) >= least, name


def test_each_kind_of_network_is_meant():
    trains = {card.family for card in CARDS.values() if "training" in card.tasks}
    assert trains == {CARDS[name].family for name in (*TEXT, "lstm", "deep_voice_3", *LATENTS, *PICTURES)}
