"""TensorFlow against PyTorch: the same weights, inputs and updates give the same numbers, and a mistake others."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from program import ROOT

tf = pytest.importorskip("tensorflow")

from watching import first_mismatch, stored_values, within  # noqa: E402

from entrypoints.contract import cards, reference  # noqa: E402
from entrypoints.contract.messages import Probed  # noqa: E402
from entrypoints.devices.tensorflow import cpu  # noqa: E402
from entrypoints.results import numerics  # noqa: E402
from entrypoints.worker import probe  # noqa: E402
from entrypoints.workloads.tensorflow import build, layers, loader, optimizers, resnet, transformer  # noqa: E402

cpu.prepare("fp32", threads=1)  # as the probe does, and before other tests make their first tensor
CARDS = cards.load_for("tensorflow")
PYTORCH = ROOT / ".venvs" / "torch_new" / "bin" / "python"


def given(workload):
    """How both are probed: a small rate keeps the second step close to the first, a large decay shows in the update."""
    rule = {"learning_rate": 0.001, "weight_decay": 0.3}
    whole = {"model": {}, "input": {}, "trained": None, "parameters": CARDS[workload].problem["parameters"]}
    return {"batch_size": 4, "optimizer": rule, **whole}


# How far each may lie from PyTorch's. Rounding that turns an activation off or on shows in gradients, and more after an
# update: up to 2e-3 and 0.1 were seen. The mistakes below lie beyond; those of the optimizer have tests of their own.
TOLERANCES = {
    "output": 1e-5,
    "first_update.loss": 1e-5,
    "first_update": 1e-2,
    "first_update.bn1.vectors": 4.5e-2,  # what ResNeXt-101's reference allows; 1.5e-2 was seen on a CPU without AVX-512
    "second_update": 0.4,
    "output_after_updates": 0.1,
    "own_rule.loss": 1e-5,
    "own_rule": 4.5e-2,
}
PROBE_PYTORCH = """
import json, sys
from types import SimpleNamespace
from probing import probed, reference
given = json.load(sys.stdin)
reference.load = lambda card: SimpleNamespace(**given)
json.dump(probed(sys.argv[1], "fp32"), sys.stdout)
"""


@pytest.fixture(scope="module")
def pytorch():
    """What PyTorch computes for a workload, by quantity."""
    computed = {}

    def quantities(workload):
        if workload not in computed:
            if not PYTORCH.exists():
                pytest.skip(f"no PyTorch to compare with: {PYTORCH} is not there (ci/setup/inside makes it)")
            ran = subprocess.run(
                [str(PYTORCH), "-B", "-c", PROBE_PYTORCH, workload],
                cwd=str(ROOT / "tests" / "inside" / "support"),
                env={"PYTHONPATH": str(ROOT)},
                input=json.dumps(given(workload)),
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            computed[workload] = json.loads(ran.stdout)
        return computed[workload]

    return quantities


def probed(workload):
    """Quantities of the probe by name."""
    messages: list[Probed] = []
    configuration: Any = SimpleNamespace(
        precision="fp32",
        threads=1,
        seed=0,
        compile=False,
        memory_limit_mib=None,
        gradient_accumulation=1,
        recomputed_by_framework=False,
        staged=lambda partition, _: partition,
        offload=False,
    )
    probe.run(CARDS[workload], configuration, cpu, build, loader, messages.append)
    return {message.quantity: message.values for message in messages}


def as_given(workload):
    """The quantities as PyTorch computes them, too."""
    with mock.patch.object(reference, "load", lambda _: SimpleNamespace(**given(workload))):
        return probed(workload)


def near(expected):
    """Whether quantities lie near those expected; initialisation has tests of its own, later updates are far apart."""
    tolerances = {name: TOLERANCES.get(name, TOLERANCES.get(name.partition(".")[0])) for name in expected}
    return within(expected, {name: tolerance for name, tolerance in tolerances.items() if tolerance})


def judged(workload):
    """Held against the stored values, which are PyTorch's too."""
    messages = [Probed("fp32", *quantity) for quantity in probed(workload).items()]
    return numerics.compare_with_reference(messages, stored_values(CARDS[workload]).of_run(1), "fp32")


# Those of the gate: convolutions, recurrence, a transformer with AdamW.
GATE = ("image_compression", "lstm", "gpt2_medium")


@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[] if name in GATE else [pytest.mark.full]) for name in CARDS]
)
def test_the_code_as_it_is_passes(workload):
    verdict = judged(workload)
    assert verdict.state == "passed", verdict


@pytest.mark.full
@pytest.mark.parametrize("workload", ["image_compression", "resnet50"])
def test_it_computes_what_pytorch_computes(workload, pytorch):
    actual, expected = as_given(workload), pytorch(workload)
    assert set(actual) == {name for name in expected if not name.startswith(reference.ACCUMULATED)}
    assert [name for name, matches in near(expected).items() if not matches(actual[name])] == []


def stride_in_the_first_convolution():
    """Version 1 of the network, as Keras and the paper have it."""
    original = resnet.network

    def network(model):
        built = original(model)
        for block in (module for module in built.submodules if isinstance(module, resnet.Bottleneck)):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
        return built

    return mock.patch.object(resnet, "network", network)


def padding_at_the_end():
    """`same` as TensorFlow means it: one more pixel after than before."""
    original = tf.nn.conv2d

    def conv2d(x, weight, stride, padding):
        return original(x, weight, stride, "SAME" if padding[1][0] else "VALID")

    return mock.patch.object(tf.nn, "conv2d", conv2d)


def adam_without_bias_correction():
    return mock.patch.object(optimizers.Adam, "share", lambda *_: tf.constant(1.0))


@pytest.mark.parametrize(
    ("workload", "mutant"),
    [
        ("image_compression", padding_at_the_end),
        ("image_compression", adam_without_bias_correction),
        pytest.param("resnet50", stride_in_the_first_convolution, marks=pytest.mark.full),
        pytest.param("resnet50", padding_at_the_end, marks=pytest.mark.full),
    ],
)
def test_a_mistake_fails(workload, mutant, pytorch):
    expected = pytorch(workload)
    with mutant():
        assert first_mismatch(lambda: as_given(workload), near(expected)) is not None


def every(kind, change):
    """Each part of a kind in a transformer, changed."""
    original = transformer.network

    def network(model):
        built = original(model)
        for part in built.submodules:
            if isinstance(part, kind):
                change(part)
        return built

    return mock.patch.object(transformer, "network", network)


def gelu_of_the_error_function():
    return mock.patch.dict(layers.ACTIVATIONS, gelu_tanh=layers.ACTIVATIONS["gelu"])


def everything_is_seen():
    """What follows, or padding."""
    return mock.patch.object(transformer.Transformer, "mask", lambda *_: None)


def epsilon_of_keras():
    return every(layers.LayerNormalisation, lambda part: setattr(part, "epsilon", 1e-3))


def normalisation_at_the_other_place():
    return every(transformer.Block, lambda part: setattr(part, "before", not part.before))


def decay_in_the_gradient():
    """Adam where AdamW was asked for."""
    return mock.patch.dict(optimizers.RULES, adamw=optimizers.Adam)


def steps_of_adam_alone():
    """LAMB without its trust in long tensors."""
    return mock.patch.dict(optimizers.RULES, lamb=optimizers.AdamW)


def gradients_not_clipped():
    return mock.patch.object(tf, "clip_by_global_norm", lambda gradients, _: (gradients, None))


def gradients_clipped_one_by_one():
    return mock.patch.object(
        tf,
        "clip_by_global_norm",
        lambda gradients, most: ([tf.clip_by_norm(gradient, most) for gradient in gradients], None),
    )


def biases_decay():
    """By another name the rule does not know them."""
    return mock.patch.object(optimizers, "BIAS", "shift")


@pytest.mark.parametrize(
    ("workload", "mutant"),
    [
        ("gpt2_medium", gelu_of_the_error_function),
        ("gpt2_medium", gradients_not_clipped),
        ("gpt2_medium", biases_decay),
        *(
            pytest.param(workload, mutant, marks=pytest.mark.full)
            for workload, mutants in {
                "gpt2_medium": (
                    everything_is_seen,
                    epsilon_of_keras,
                    normalisation_at_the_other_place,
                    decay_in_the_gradient,
                    gradients_clipped_one_by_one,
                ),
                "bert_large": (
                    everything_is_seen,
                    epsilon_of_keras,
                    normalisation_at_the_other_place,
                    decay_in_the_gradient,
                    gradients_not_clipped,
                    biases_decay,
                ),
                "bert_large_pretraining_128": (everything_is_seen, steps_of_adam_alone, biases_decay),
            }.items()
            for mutant in mutants
        ),
    ],
)
def test_a_mistake_in_a_transformer_fails(workload, mutant):
    stored = stored_values(CARDS[workload])
    with mutant():
        assert first_mismatch(lambda: probed(workload), within(stored.values, stored.tolerances["fp32"])) is not None
