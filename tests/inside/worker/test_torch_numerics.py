"""The probe on the real device: right code passes, and every mistake is found."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mutants_sequences import MUTANTS  # noqa: E402
from mutants_steps import NOT_DETECTABLE, STEPS, first_micro_batch_alone, last_places_alone  # noqa: E402
from probing import probed  # noqa: E402
from watching import first_mismatch, stored_values, within  # noqa: E402

from entrypoints.contract import cards, reference  # noqa: E402
from entrypoints.contract.messages import Probed  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.results import numerics  # noqa: E402
from entrypoints.worker import probe  # noqa: E402
from entrypoints.worker.child import describe_failure  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

CARDS = {name: card for name, card in cards.load().items() if "microbenchmark" not in card.tasks}
CARD = CARDS["resnet50"]
STAGES = probe.stages


def judged(workload="resnet50", precision="fp32"):
    quantities = probed(workload, precision)
    messages = [Probed(precision, *quantity) for quantity in quantities.items()]
    return numerics.compare_with_reference(messages, reference.load(CARDS[workload]), precision)


def of_each_probe():
    """A workload for each problem that is probed: networks that differ in size alone are probed with the same one."""
    first: dict[object, str] = {}
    for name, card in CARDS.items():
        first.setdefault(reference.probed_problem(card), name)
    return list(first.values())


PROBED = of_each_probe()
# Those that take a minute, the more so with the old PyTorch, and those that others of their family stand for.
LARGE = (
    *("efficientnet_b0", "efficientnet_b4", "resnext101_32x4d", "resnet50", "gpt_117m", "gpt_13b"),
    *("bert_large_pretraining_128", "bert_large_pretraining_512", "llama_405b", "llama2_70b_lora"),
)
SMALL = ("mcmc",)  # and those of a moment
AVX512 = "avx512f" in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[pytest.mark.full] * (name in LARGE)) for name in PROBED]
)
def test_the_code_as_it_is_passes_in_single_precision(workload):
    verdict = judged(workload)
    assert verdict.state == "passed", verdict


# Without AVX-512 the large ones take minutes, and their layers are those of others.
@pytest.mark.full
@pytest.mark.parametrize("workload", [name for name in PROBED if name not in LARGE])
def test_in_bfloat16_it_lies_within_its_tolerances(workload):
    stored = stored_values(CARDS[workload])
    if not AVX512 and torch.__version__ < "2" and "bf16" in stored.not_provable:
        pytest.skip("without AVX-512 PyTorch 1.13 rounds otherwise in bfloat16 than where the tolerances were measured")
    if not AVX512 and torch.__version__ >= "2" and workload == "lstm":
        with pytest.raises(RuntimeError) as caught:
            judged(workload, "bf16")
        assert describe_failure(caught.value).state == "unsupported"
        return
    assert judged(workload, "bf16").state == ("not_provable" if "bf16" in stored.not_provable else "passed")


def test_networks_that_are_probed_alike_have_the_same_values():
    by_problem: dict[object, object] = {}
    for card in CARDS.values():
        stored = stored_values(card)
        values = (stored.values, stored.tolerances, stored.not_provable)
        assert by_problem.setdefault(reference.probed_problem(card), values) == values, card.name
    assert len(by_problem) == len(PROBED) < len(CARDS)


def mistakes():
    """Every mistake; those of the gate are made in one network, and in what is small."""
    for workload in PROBED:
        for mutant in MUTANTS[workload]:
            gate = workload in (*SMALL, "image_compression")
            marks = () if gate else (pytest.mark.full,)
            yield pytest.param(workload, mutant, id=f"{workload}-{mutant.__name__}", marks=marks)


@pytest.mark.skipif(torch.__version__ < "2", reason="mistakes are the same in every version, and 1.13 takes minutes")
@pytest.mark.parametrize(("workload", "mutant"), list(mistakes()))
def test_a_mistake_fails(workload, mutant):
    """One quantity that does not match fails a run, so no more than that is computed."""
    if workload in SMALL:
        with mutant():
            assert judged(workload).state == "failed"
        return
    with mutant():
        assert watched(workload) is not None


def mistakes_of_steps():
    """Every mistake in how a step is done; those of the gate in what is small."""
    in_gate = {("image_compression", first_micro_batch_alone), ("lstm", last_places_alone)}
    for workload, mutants in STEPS.items():
        for mutant in mutants:
            marks = () if (workload, mutant) in in_gate else (pytest.mark.full,)
            yield pytest.param(workload, mutant, id=f"{workload}-{mutant.__name__}", marks=marks)


@pytest.mark.skipif(torch.__version__ < "2", reason="mistakes are the same in every version, and 1.13 takes minutes")
@pytest.mark.parametrize(("workload", "mutant"), list(mistakes_of_steps()))
def test_a_mistake_in_a_step_fails(workload, mutant):
    with mutant():
        assert watched(workload) is not None


@pytest.mark.full
@pytest.mark.skipif(torch.__version__ < "2", reason="mistakes are the same in every version, and 1.13 takes minutes")
@pytest.mark.parametrize(
    ("workload", "mutant"), [pytest.param(*key, id=f"{key[0]}-{key[1].__name__}") for key in NOT_DETECTABLE]
)
def test_what_cannot_be_detected_is_not(workload, mutant):
    """A mistake that is found after all belongs to the others."""
    with mutant():
        assert watched(workload) is None


def watched(workload):
    stored = stored_values(CARDS[workload])
    rules = within(stored.values, stored.tolerances["fp32"])
    return first_mismatch(lambda: probed(workload, "fp32"), rules, (reference.OWN_RULE, reference.ACCUMULATED))


def test_what_is_right_is_right_while_it_is_watched():
    assert watched("image_compression") is None


@pytest.mark.parametrize(
    "path",
    [
        ("input", "shape"),
        ("loss", "label_smoothing"),
        ("model", "downsampling_stride_in"),
        ("model", "initialisation", "convolution"),
        ("model", "activation"),
        ("model", "normalisation", "epsilon"),
        ("optimizer", "name"),
        ("optimizer", "momentum"),
    ],
)
def test_another_problem_has_another_identity(path):
    problem = copy.deepcopy(dict(CARD.problem))
    place = problem
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "other"
    other = CARD._replace(problem=problem)
    assert other.identity != CARD.identity and reference.load(other) is None


def test_a_bias_more_or_less_is_refused_by_its_count(monkeypatch):
    linear = torch.nn.Linear
    monkeypatch.setattr(torch.nn, "Linear", lambda inputs, outputs: linear(inputs, outputs, bias=False))
    with pytest.raises(RunError, match="25556032 parameters, its card says 25557032"):
        build.model(CARD, seed=0)


@pytest.mark.full
def test_a_check_says_what_it_rests_on(program):
    code, output, errors = program.run("image_compression", "--check", "--precision", "bf16")
    assert (code, output) == (0, "")
    assert "correctness not provable; correct code deviates in bf16 as much as with these mistakes" in errors


def test_a_run_says_that_its_numerics_passed(program):
    document = program.result(
        "image_compression", "--batch-size", 1, "--steps", 2, "--warmup-steps", 1, "--meter", "none"
    )
    assert document["numerics"]["state"] == "passed"
    assert [entry["precision"] for entry in document["numerics"]["precisions"]] == ["fp32"]
    assert document["configuration"]["probe_numerics"] is True


def test_the_check_compiles_the_network_of_the_run_in_its_precision_only(monkeypatch):
    """Once: what proves the code in single precision, and the optimizer of the card, is computed uncompiled."""
    opened = []

    class ExaminedError(Exception):
        """Raised in place of a session."""

    def open_session(model, rule, precision, compiled, partition, **_):
        opened.append((precision, compiled))
        raise ExaminedError

    for precision, stages in ((each, number) for each in ("fp32", "bf16") for number in (0, 1)):
        configuration: Any = SimpleNamespace(
            precision="bf16",
            threads=1,
            seed=0,
            compile="default",
            memory_limit_mib=None,
            gradient_accumulation=1,
            recomputed_by_framework=False,
            staged=lambda partition, _: partition,
        )
        device: Any = SimpleNamespace(prepare=lambda *_: None, open_session=open_session)
        monkeypatch.setattr(probe, "precisions", lambda _, own=precision: [own])
        monkeypatch.setattr(probe, "stages", lambda *given, number=stages: STAGES(*given)[number : number + 1])
        with pytest.raises(ExaminedError):
            probe.run(CARDS["lstm"], configuration, device, build, loader, lambda _: None)
    assert opened == [("fp32", None), ("fp32", None), ("bf16", "default"), ("bf16", None)]
