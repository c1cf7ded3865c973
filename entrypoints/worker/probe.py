"""The numerics probe: two steps of training, or transitions of Markov chains, from weights and inputs that a formula
makes, told number by number.

Every framework and device starts from the same state, so that what they compute can be held against stored values.
"""

from __future__ import annotations

import dataclasses
import functools
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping

import numpy as np

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Probed
from entrypoints.contract.session import Batch, SamplerRule, Session, rule_of
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.system import memory

OUTPUTS = 64  # numbers that stand for an output
UPDATES = ("first_update", "second_update")
TRANSITIONS = ("first_transition", "second_transition", "third_transition")
Quantities = Dict[str, np.ndarray]
Weights = Mapping[str, np.ndarray]


def precisions(configuration: Configuration) -> list[str]:
    """Single precision, which proves the code, and the run's own."""
    return list(dict.fromkeys(["fp32", configuration.precision]))


def run(
    card: Card,
    configuration: Configuration,
    device: ModuleType,
    build: ModuleType,
    loader: ModuleType,
    send: Callable[[Probed], None],
) -> None:
    """Probe every precision that the device has. Raises RunError (`unsupported`) where it has not the run's own."""
    known = reference.load(card)
    card = reference.probed_card(card, known)
    batch_size = known.batch_size if known else reference.PLAIN_BATCH
    rule = rule_of(card.problem, batch_size)
    examine = functools.partial(transitions, chains=batch_size) if isinstance(rule, SamplerRule) else quantities
    rule = dataclasses.replace(rule, **(known.optimizer if known else {}))
    for precision in precisions(configuration):
        try:
            device.prepare(precision, configuration.threads)
        except RunError as error:
            if error.state != "unsupported" or precision == configuration.precision:
                raise
            continue
        memory.limit_process(configuration.memory_limit_mib)
        batch = loader.formula_batch(card, batch_size)  # not before: some frameworks start with their first tensor
        model = build.model(card, configuration.seed)
        opened = functools.partial(device.open_session, model, rule, precision, configuration.compile)
        for name, values in probe_precision(model, build, opened, functools.partial(examine, batch=batch)):
            send(Probed(precision, name, values))
        del model, opened  # before the next: memory holds one


def probe_precision(
    model: Any, build: ModuleType, opened: Callable[[], Session], examine: Callable[[Session], Quantities]
) -> Iterator[tuple[str, list[float]]]:
    """Quantities in one precision by name, of a model as it was initialised."""
    found = initialisation(build.weights(model))
    build.load_formula(build.without_chance(model))
    session = opened()
    found.update(examine(session))
    session.close()
    for name, values in found.items():
        yield name, [float(value) for value in values]


def initialisation(weights: Weights) -> Quantities:
    """How large the weights of each group are before anything was learnt."""
    return {f"initialisation.{group}": norm for group, norm in group_norms(weights.items()).items()}


def quantities(session: Session, batch: Batch) -> Quantities:
    """Output, two steps of training with their losses and updates, and the output again."""
    found = {"output": sample_output(session.infer_request(batch).output)}
    before = copy_weights(session.weights())
    for step in UPDATES:
        report = session.train(batch)
        found[f"{step}.loss"] = np.array([report.loss() if report.loss else np.nan])
        after = copy_weights(session.weights())
        changes = ((name, weight - before[name]) for name, weight in after.items())
        found.update({f"{step}.{group}": norm for group, norm in group_norms(changes).items()})
        before = after
    found["output_after_updates"] = sample_output(session.infer_request(batch).output)
    return found


def transitions(session: Session, batch: Batch, chains: int) -> Quantities:
    """Where Markov chains stand after each of a few transitions, and how likely the proposals were to be accepted.

    Momenta and thresholds are a formula's, too. Steps adapt, which the next trajectory shows.
    """
    found: Quantities = {}
    state = session.begin(batch, len(TRANSITIONS), chains)
    for place, name in enumerate(TRANSITIONS):
        state = session.iterate(state) if place else state
        draw = session.chain_sample(state)
        found[f"{name}.position"] = sample_output(draw.position)
        found[f"{name}.log_density"] = np.array(draw.log_density)
        found[f"{name}.log_acceptance"] = np.array(draw.log_acceptance)
    return found


def sample_output(output: object) -> np.ndarray:
    """`OUTPUTS` numbers of an output, spread by the golden ratio, which falls in step with none of its axes."""
    parts = output if isinstance(output, tuple) else (output,)
    flat = np.concatenate([np.asarray(part).ravel() for part in parts])
    shares = np.arange(OUTPUTS) * ((5**0.5 - 1) / 2) % 1
    return flat[(shares * flat.size).astype(np.int64)]


def copy_weights(weights: Weights) -> dict[str, np.ndarray]:
    """The weights as they are now."""
    return {name: np.array(weight) for name, weight in weights.items()}


def group_norms(arrays: Iterable[tuple[str, np.ndarray]]) -> Quantities:
    """L2 norm of all arrays of a group together. A group is a part of the network, matrices and vectors apart."""
    squares: dict[str, float] = {}
    for name, array in arrays:
        group = f"{name.partition('.')[0]}.{'matrices' if array.ndim > 1 else 'vectors'}"
        squares[group] = squares.get(group, 0.0) + float(np.square(array, dtype=np.float64).sum())
    return {group: np.array([square**0.5]) for group, square in squares.items()}
