"""The numerics probe without a process of its own: as it is, in honest variants, with mistakes, and written out.

`python tests/inside/probing.py reference|honest|mutants PRECISION` is for `benchmarks/numerics.py`: it prints one JSON
object per variant, and takes on standard input a reference that says how to probe, perhaps without values.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
import torch

from entrypoints import cards, reference
from entrypoints.data import formula
from entrypoints.devices import cpu
from entrypoints.session import Batch
from entrypoints.workloads import probe
from entrypoints.workloads.pytorch import build, loader

SEEDS = 8  # of initialisation
ROUNDINGS = 4  # inputs with the last bit of each number changed or not, another way each time


def probed(workload, precision, threads=1, batch_of=loader.formula_batch):
    """Quantities of the probe in one precision, by name."""
    told = []
    configuration = SimpleNamespace(precision=precision, threads=threads, seed=0)
    others = SimpleNamespace(formula_batch=batch_of)
    with mock.patch.object(probe, "precisions", lambda _: [precision]):
        probe.run(cards.load()[workload], configuration, cpu, build, others, told.append)
    return {message.quantity: message.values for message in told}


def honest(workload, precision):
    """(variant, quantities) of everything that may differ while the code is right."""
    yield "1 thread", probed(workload, precision)
    yield "2 threads", probed(workload, precision, threads=2)
    if precision == "fp32":  # in bf16 these are hundreds of times slower
        with other_kernels():
            yield "other kernels", probed(workload, precision)
    for seed in range(ROUNDINGS):
        yield f"rounding {seed}", probed(workload, precision, batch_of=rounded(seed))
    card = cards.load()[workload]
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
        batch = loader.formula_batch(card, size)
        signs = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], tuple(batch.inputs.shape)))
        return Batch((batch.inputs.double() * (1 + signs * 2.0**-24)).float(), batch.targets)

    return batch_of


def mutated(workload, precision):
    """(mutant, quantities)."""
    from mutants import FURTHER, REPRESENTATIVE

    for mutant in (*REPRESENTATIVE, *FURTHER):
        with mutant():
            yield mutant.__name__, probed(workload, precision)


def written_out(workload, _):
    """The quantities of torchvision's model in double precision, its updates written out: none of our model code."""
    import torchvision

    card = cards.load()[workload]
    known = reference.load(card)
    problem, rule = card.problem, card.problem["optimizer"]
    hyper = {**rule, **known.optimizer}
    model = getattr(torchvision.models, workload)()
    sizes = []
    for seed in range(SEEDS):
        torch.manual_seed(1000 + seed)
        fresh = getattr(torchvision.models, workload)()
        sizes.append(probe.initialisation({name: value.detach().numpy() for name, value in fresh.named_parameters()}))
    found = {name: np.mean([one[name] for one in sizes], axis=0) for name in sizes[0]}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.from_numpy(formula.weight(name, value.shape)))
    model.double()
    inputs, labels = formula.images(problem, known.batch_size)
    inputs, labels = torch.from_numpy(inputs).double(), torch.from_numpy(labels)
    exempt = {
        id(parameter)
        for layer in model.modules()
        if isinstance(layer, torch.nn.BatchNorm2d)
        for parameter in layer.parameters()
    }
    found["output"] = probe.sampled(model.eval()(inputs).detach().numpy())
    momenta = {}
    for step in probe.UPDATES:
        logits = torch.log_softmax(model.train()(inputs), 1)
        smoothing = problem["loss"]["label_smoothing"]
        right, all_classes = logits.gather(1, labels[:, None]).mean(), logits.mean()
        loss = -(1 - smoothing) * right - smoothing * all_classes
        found[f"{step}.loss"] = np.array([loss.item()])
        model.zero_grad()
        loss.backward()
        changes = {}
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                decay = 0.0 if id(parameter) in exempt else hyper["weight_decay"]
                gradient = parameter.grad + decay * parameter
                momenta[name] = rule["momentum"] * momenta[name] + gradient if name in momenta else gradient
                change = -hyper["learning_rate"] * momenta[name]
                parameter += change
                changes[name] = change.numpy()
        found.update({f"{step}.{group}": norm for group, norm in probe.norms(changes.items()).items()})
    found["output_after_updates"] = probe.sampled(model.eval()(inputs).detach().numpy())
    yield (
        f"torchvision {torchvision.__version__}, torch {torch.__version__}, float64",
        {name: list(map(float, values)) for name, values in found.items()},
    )


KINDS = {"reference": written_out, "honest": honest, "mutants": mutated}

if __name__ == "__main__":
    kind, precision = sys.argv[1:]
    given = {"values": {}, "tolerances": {}, "not_provable": {}, "source": "", **json.load(sys.stdin)}
    reference.load = lambda card: reference.Reference(**given)
    for variant, quantities in KINDS[kind](given["workload"], precision):
        told = {"variant": variant, "torch": torch.__version__, "quantities": quantities}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
