"""What FP8 is for, and how it scales."""

from __future__ import annotations

import pytest

from entrypoints.contract import cards
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve

CARDS = cards.load()


def configured(workload, *words, framework="pytorch", device="cuda"):
    return resolve(parse([workload, *words]), CARDS[workload], {"framework": framework, "device": device})


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_scales_are_of_tensors_unless_rows_are_asked_for(device):
    plain = configured("llama_1b", "--precision", "fp8", device=device)
    assert (plain.precision, plain.precision_kind, plain.fp8_scaling) == ("fp8", "mixed", "tensorwise")
    assert configured("llama_8b_lora", "--precision", "FP8", "--fp8-scaling", "rowwise").fp8_scaling == "rowwise"
    assert configured("llama_1b").fp8_scaling is None


def test_engines_that_serve_have_it_in_pure_precision():
    served = configured("llama_70b", "--task", "serving", "--precision", "fp8", "--tensor", "4")
    assert (served.precision_kind, served.fp8_scaling, served.tensor) == ("pure", "tensorwise", 4)


@pytest.mark.parametrize(
    ("words", "image", "said"),
    [
        ("resnet50", {"framework": "tensorflow"}, "only PyTorch has layers in FP8.* tensorflow. Take --precision bf16"),
        ("llama_1b", {"device": "xpu"}, "for cpu and cuda here, and not for xpu"),
        ("llama_1b", {"device": "hpu"}, "not for hpu"),
        ("gpt2", {}, "dense decoders, and gpt2 is none. Take --precision bf16, or a workload as llama_1b"),
        ("matmul", {}, "matmul has no such elements"),
        ("llama_1b --task inference", {}, "is for training"),
        ("llama_1b --task serving", {"device": "cpu"}, "vLLM on cpu has none here. Take --precision bf16, or an image"),
        ("llama_1b --task serving --engine transformers", {}, "--engine transformers has none here"),
        ("gpt_oss_20b --task serving", {}, "dense decoders, and gpt_oss_20b is none"),
        ("llama_1b --tensor 2", {}, "--tensor 2: ranks would scale parts of a tensor apart. Take --strategy fsdp"),
        ("llama_1b --measured-peak /nowhere", {}, "no product is measured in FP8. Leave --measured-peak out"),
    ],
)
def test_what_has_no_fp8_is_refused_with_a_remedy(words, image, said):
    with pytest.raises(UsageError, match=said):
        configured(*words.split(), "--precision", "fp8", **image)


def test_scales_without_fp8_are_refused():
    with pytest.raises(UsageError, match="--fp8-scaling rowwise is for --precision fp8. Add that, or leave it out"):
        configured("llama_1b", "--fp8-scaling", "rowwise")
