"""The numerics probe without a process of its own: as it is, in honest variants, with mistakes, and written out.

`python tests/inside/support/probing.py reference|honest|few|device|mutants PRECISION [DEVICE]` is for
`benchmarks/numerics.py`: it prints one JSON object per variant, and takes on standard input a reference that says how
to probe, perhaps without values. Only `device` and `mutants` compute on another DEVICE than the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np
import torch
from watching import stored_values

from entrypoints.contract import cards, reference
from entrypoints.contract.messages import Probed
from entrypoints.contract.session import Batch, OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.data.generated import formula
from entrypoints.devices.pytorch.shared.tensors import to_host
from entrypoints.worker import probe
from entrypoints.workloads.pytorch import build, loader

SEEDS = 8  # of initialisation
DEVICE: Any = None  # the module of another kind of device than the CPU
ROUNDINGS = 4  # inputs with the last bit of each number changed or not, another way each time


def probed(workload, precision, threads=1, batch_of=loader.formula_batch, compiled=None):
    """Quantities of the probe in one precision, by name: of runs with and without micro-batches."""
    messages: list[Probed] = []
    configuration: Any = SimpleNamespace(
        device="cpu",
        precision=precision,
        fp8_scaling="tensorwise",
        threads=threads,
        seed=0,
        compile=compiled,
        memory_limit_mib=None,
        gradient_accumulation=1,
        recomputed_by_framework=False,
        staged=lambda partition, _: partition,
        offload=False,
    )
    others: Any = SimpleNamespace(formula_batch=batch_of)
    device: Any = SimpleNamespace(
        prepare=functools.partial(prepare_only, precision),
        open_session=module_of_device().open_session,
    )
    with mock.patch.object(probe, "stages", all_stages(probe.stages)):
        probe.run(cards.load()[workload], configuration, device, build, others, messages.append)
    return {message.quantity: message.values for message in messages}


def all_stages(stages):
    """Stages of a run without micro-batches, and what one with micro-batches has in their place."""

    def both(card, stored, batch, accumulation):
        return [*stages(card, stored, batch, 1), *stages(card, stored, batch, 2)[1:]]

    return both


def prepare_only(wanted, precision, threads):
    """Prepare a device that has no precision but one: the others are not probed then."""
    if precision != wanted:
        raise RunError("unsupported", f"{precision} is not asked for")
    module_of_device().prepare(precision, threads)


def module_of_device():
    """The device to compute on."""
    return DEVICE or importlib.import_module("entrypoints.devices.pytorch.cpu")


def on_device(workload, precision):
    """(variant, quantities) of what may differ on another kind of device than the CPU."""
    yield "as it is", probed(workload, precision)
    for seed in range(2):
        with rounded_weights(seed) if has_tokens(workload) else contextlib.nullcontext():
            yield f"rounding {seed}", probed(workload, precision, batch_of=rounded(seed))


def honest(workload, precision, roundings=ROUNDINGS):
    """(variant, quantities) of what may differ while the code is right, except initialisation and compiler."""
    yield "1 thread", probed(workload, precision)
    yield "2 threads", probed(workload, precision, threads=2)
    if precision == "fp32":  # in bf16 these are hundreds of times slower
        with other_kernels():
            yield "other kernels", probed(workload, precision)
    for seed in range(roundings):
        with rounded_weights(seed) if has_tokens(workload) else contextlib.nullcontext():
            yield f"rounding {seed}", probed(workload, precision, batch_of=rounded(seed))


def few(workload, precision):
    """(variant, quantities) of a few of these, for quantities that are new; in bf16 of one, which may take minutes."""
    if precision == "bf16":
        yield "2 threads", probed(workload, precision, threads=2)
    else:
        yield from honest(workload, precision, roundings=1)


def all_honest(workload, precision):
    """(variant, quantities) of all of these, and of other seeds and the compiler."""
    yield from honest(workload, precision)
    if precision == "fp32" and hasattr(torch, "compile"):
        yield "compiled", probed(workload, precision, compiled="default")
    card = cards.load()[workload]
    card = reference.probed_card(card, reference.load(card))
    for seed in range(SEEDS):
        weights = build.weights(build.model(card, seed))
        yield f"seed {seed}", {name: list(map(float, norm)) for name, norm in probe.initialisation(weights).items()}


@contextlib.contextmanager
def other_kernels():
    """PyTorch's own kernels in place of oneDNN's."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def rounded(seed):
    """The batch with every input moved by one rounding error at random, as other arithmetic would."""

    def batch_of(card, size):
        batch, random = loader.formula_batch(card, size), np.random.default_rng(seed)
        if has_tokens(card.name):
            return batch

        def moved(tensor):
            if isinstance(tensor, tuple):
                return tuple(map(moved, tensor))
            if not tensor.is_floating_point():
                return tensor
            signs = torch.from_numpy(random.choice([-1.0, 1.0], tuple(tensor.shape)))
            return (tensor.double() * (1 + signs * 2.0**-24)).float()

        return Batch(moved(batch.inputs), batch.targets)

    return batch_of


def has_tokens(workload):
    """Whether its inputs are whole numbers, which no rounding error moves."""
    return "vocabulary" in cards.load()[workload].problem["model"]


@contextlib.contextmanager
def rounded_weights(seed):
    """Weights moved by one rounding error at random."""
    random, weight = np.random.default_rng(seed), formula.weight

    def moved(name, shape, remembering=False):
        signs = random.choice([-1.0, 1.0], tuple(shape))
        return (weight(name, shape, remembering).astype(np.float64) * (1 + signs * 2.0**-24)).astype(np.float32)

    with mock.patch.object(formula, "weight", moved):
        yield


def mutated(workload, precision):
    """(mutant, quantities); none of a mutant that a precision cannot compute."""
    from mutants_sequences import FINE, FINE_OF_MIXTURES, MUTANTS

    half = precision in ("bf16", "fp16")
    fine = FINE + (FINE_OF_MIXTURES if "experts" in cards.load()[workload].problem["model"] else ())
    for mutant in (each for each in MUTANTS[workload] if not (half and each in fine)):
        with mutant():
            try:
                quantities = probed(workload, precision)
            except RuntimeError:  # such as the entropy of probabilities in fp16
                quantities = {}
            yield mutant.__name__, quantities


def written_out(workload, _):
    """The quantities of a reference network in double precision, its updates written out: none of our model code."""
    from written import LOSSES, UPDATES, network_of, plain

    card = cards.load()[workload]
    stored = stored_values(card)
    card = reference.probed_card(card, stored)
    if "sampler" in card.problem:
        yield written_chains(card, stored)
        return
    rule = {**card.problem["optimizer"], **stored.optimizer}
    rule.setdefault("learning_rate", card.problem["optimizer"]["learning_rate"])
    names = distinct(build.model(card, 0).network)  # in the order of the reference's
    sizes = []
    for seed in range(SEEDS):
        torch.manual_seed(1000 + seed)
        sizes.append(probe.initialisation(named(network_of(card)[0], names)))
    quantities = {name: np.mean([norms[name] for norms in sizes], axis=0) for name in sizes[0]}
    model, source = network_of(card)
    plain(model).double()
    batch = loader.formula_batch(card, stored.batch_size)
    loss_of = LOSSES[card.problem["loss"]["name"]]

    def trained(update, parts, step):
        """The loss and the norms of one update, whose gradient is the mean over the parts of the batch."""
        model.train().zero_grad()
        losses = [
            loss_of(model(*doubles(part.inputs)), part.targets, card.problem["loss"]) / len(parts) for part in parts
        ]
        for loss in losses:
            loss.backward()
        before = {name: value.copy() for name, value in named(model, names).items()}
        update()
        changes = ((name, value - before[name]) for name, value in named(model, names).items())
        norms = {f"{step}.{group}": norm for group, norm in probe.group_norms(changes).items()}
        return {f"{step}.loss": np.array([sum(loss.item() for loss in losses)]), **norms}

    set_by_formula(model, names)
    quantities["output"] = answered(model, doubles(batch.inputs))
    update = UPDATES[rule["name"]](model, rule)
    for step in probe.UPDATES:
        if step == probe.UPDATES[2]:
            quantities["output_after_updates"] = answered(model, doubles(batch.inputs))
        quantities.update(trained(update, [batch], step))
    rate = OptimizerRule.from_problem(card.problem["optimizer"], stored.batch_size).learning_rate
    own = {**card.problem["optimizer"], "learning_rate": rate}
    for name, count in ((reference.OWN_RULE, 1), (reference.ACCUMULATED, 2)):
        set_by_formula(model, names, remembering=True)
        quantities.update(trained(UPDATES[own["name"]](model, own), parts_of(batch, count), name))
    yield (
        f"{source}, torch {torch.__version__}, float64",
        {name: list(map(float, values)) for name, values in quantities.items()},
    )


def doubles(inputs):
    """Inputs as a tuple, in double precision where they are no whole numbers."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs)


def parts_of(batch, count):
    """A batch divided in parts of equal size."""

    def part(tensors, samples):
        return tuple(each[samples] for each in tensors) if isinstance(tensors, tuple) else tensors[samples]

    size = batch.samples // count
    slices = [slice(number * size, (number + 1) * size) for number in range(count)]
    return [Batch(part(batch.inputs, samples), part(batch.targets, samples)) for samples in slices]


def set_by_formula(model, names, remembering=False):
    """Set weights and buffers by the formula, but for what is not learnt."""
    with torch.no_grad():
        for name, value in zip(names, model.state_dict(keep_vars=True).values()):
            if value.is_floating_point() and not getattr(value, "given", False):
                value.copy_(torch.from_numpy(formula.weight(name, value.shape, remembering)))


def written_chains(card, stored):
    """(source, quantities) of Markov chains in double precision, written out."""
    import written_chains

    rule = {**card.problem["sampler"], **stored.optimizer}
    batch, chance = loader.formula_batch(card, stored.batch_size), formula.Formula()
    weights = build.weights(build.model(card, 0))
    start = np.concatenate([formula.weight(name, weight.shape).ravel() for name, weight in weights.items()])
    sizes = (stored.batch_size, start.size)
    numbers = range(len(probe.TRANSITIONS))
    momenta = [torch.from_numpy(chance.normal(f"momentum {number}", sizes)).double() for number in numbers]
    thresholds = [chance.share(f"threshold {number}", sizes[:1]) for number in numbers]
    data = (batch.inputs.double(), batch.targets.double())
    transitions = written_chains.run(card.problem, rule, torch.from_numpy(start).double(), *data, momenta, thresholds)
    quantities = {name: [0.0] for name in probe.group_norms(weights.items())}
    quantities = {f"initialisation.{name}": values for name, values in quantities.items()}
    for transition, values in zip(probe.TRANSITIONS, transitions):
        values["position"] = probe.sample_output(np.array(values["position"]))
        quantities.update({f"{transition}.{name}": list(map(float, value)) for name, value in values.items()})
    return f"chains written out, density of torch.distributions, float64, torch {torch.__version__}", quantities


def answered(model, inputs):
    """What stands for the output."""
    with torch.no_grad():
        return probe.sample_output(to_host(model.eval()(*inputs)))


def distinct(network):
    """Names of what a network consists of, in order; what two layers share has the first of its names."""
    names: dict[int, str] = {}
    for name, value in network.state_dict(keep_vars=True).items():
        names.setdefault(id(value), name)
    return list(names.values())


def named(network, names):
    """Its parameters as arrays by the names that ours have, which has them in the same order."""
    parameters = {id(value) for value in network.parameters()}
    state = zip(names, network.state_dict(keep_vars=True).values(), strict=True)
    return {name: value.detach().numpy() for name, value in state if id(value) in parameters}


KINDS = {"reference": written_out, "honest": all_honest, "few": few, "device": on_device, "mutants": mutated}

if __name__ == "__main__":
    kind, precision, *others = sys.argv[1:]
    if others:
        DEVICE = importlib.import_module(f"entrypoints.devices.pytorch.{others[0]}")
    given = {"values": {}, "tolerances": {}, "not_provable": {}, "source": "", **json.load(sys.stdin)}

    def as_given(card: cards.Card, folder: Path = reference.FOLDER) -> reference.Reference:
        return reference.Reference(**given)

    reference.load = as_given
    for variant, quantities in KINDS[kind](given["workload"], precision):
        record = {"variant": variant, "torch": torch.__version__, "quantities": quantities}
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()
