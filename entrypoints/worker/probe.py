"""The correctness check: a few training steps, or transitions of Markov chains, from generated weights and inputs.

Every framework and device starts from the same state, so that their numbers can be compared with stored values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from types import MappingProxyType, ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.contract.choices import FP8
from entrypoints.contract.group import Place
from entrypoints.contract.messages import Probed
from entrypoints.contract.reference import Reference
from entrypoints.contract.session import Batch, BatchPartition, OptimizerRule, Rule, SamplerRule, Session, rule_of
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.system import memory
from entrypoints.worker import probe_ranks

OUTPUTS = 64  # numbers that represent an output
UPDATES = ("first_update", "second_update", "third_update", "fourth_update")
TRANSITIONS = ("first_transition", "second_transition", "third_transition")
Quantities = Dict[str, np.ndarray]
Weights = Mapping[str, np.ndarray]


class Stage(NamedTuple):
    """A part of the check, with its own session."""

    rule: Rule
    partition: BatchPartition | None  # of the batch; None: it is computed as a whole
    examine: Callable[[Session], Quantities]
    remembering: bool = False  # weights with which recurrent layers keep their state
    as_the_run: bool = False  # compiled if the run is


def precisions(configuration: Configuration) -> list[str]:
    """Return the precisions to check: single precision, which checks the code, and the run's."""
    return list(dict.fromkeys(["fp32", configuration.precision]))


def run(
    card: Card,
    configuration: Configuration,
    device: ModuleType,
    build: ModuleType,
    loader: ModuleType,
    send: Callable[[Probed], None],
    group: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Check every precision that the device has. Raises RunError (`unsupported`) if it lacks the run's precision.

    Compiling takes longer than all the rest, and is done for what the run computes: its network in its precision. The
    proof in single precision, and that of the card's optimizer, are of the same code uncompiled.
    """
    stored = reference.load(card)
    card = reference.probed_card(card, stored)
    batch_size = stored.batch_size if stored else reference.PLAIN_BATCH
    for precision in precisions(configuration):
        try:
            device.prepare(precision, configuration.threads)
        except RunError as error:
            if error.state != "unsupported" or precision == configuration.precision:
                raise
            continue
        memory.limit_process(configuration.memory_limit_mib)
        batch = loader.formula_batch(card, batch_size)  # not earlier: some frameworks start up at their first tensor
        new_model = functools.partial(_model, build, card, configuration, precision)
        compiled = configuration.compile if precision == configuration.precision else None
        open_session = functools.partial(_open_session, device, precision, compiled, group)
        parts = stages(card, stored, batch, configuration.gradient_accumulation)
        parts = [part._replace(partition=configuration.staged(part.partition, batch.samples)) for part in parts]
        if precision == FP8:
            single = functools.partial(_model, build, card, configuration, "fp32")
            open_alone = functools.partial(_open_session, device, group={})
            deviations = of_float8(new_model, single, build, open_alone, parts[0], batch, configuration)
        else:
            deviations = probe_precision(new_model, build, open_session, parts)
        for name, values in deviations:
            send(Probed(precision, name, values))
        if group and configuration.trained_together:
            alone = functools.partial(_open_session, device, precision, compiled, {})
            by_kind = {True: open_session, False: alone}
            joined, place = group["group"], configuration.data_place(group["group"].place)
            for name, values in by_ranks(card, batch_size, new_model, build, loader, by_kind, joined, place):
                send(Probed(precision, name, values))


def _model(build: ModuleType, card: Card, configuration: Configuration, precision: str) -> Any:
    model = build.model(card, configuration.seed)
    if precision == FP8:
        model = build.in_float8(model, configuration.device, configuration.fp8_scaling)
    return build.recomputed(model) if configuration.recomputed_by_framework else model


def _open_session(
    device: ModuleType, precision: str, compiled: str | None, group: Mapping[str, Any], model: Any, stage: Stage
) -> Session:
    mode = compiled if stage.as_the_run else None
    session: Session = device.open_session(model, stage.rule, precision, mode, stage.partition, **group)
    return session


def of_float8(
    new_model: Callable[[], Any],
    new_single: Callable[[], Any],
    build: ModuleType,
    open_session: Callable[..., Any],
    stage: Stage,
    batch: Batch,
    configuration: Configuration,
) -> Iterator[tuple[str, list[float]]]:
    """Yield the deviations of layers in FP8 with weights of the formula, and of the network with its first weights.

    With weights of the formula, which are larger, a network makes more of any rounding: that of llama_1b 8 dB. The
    network is compiled if the run's is.
    """

    def opened(new: Callable[[], Any], precision: str, compiled: str | None, by_formula: bool = False) -> Any:
        model = build.without_randomness(new())
        if by_formula:
            build.load_probe_weights(model)
        return open_session(precision=precision, compiled=compiled, model=model, stage=stage)

    with contextlib.closing(opened(new_model, FP8, None, by_formula=True)) as session:
        yield from _numbers(session.float8_layers(batch, configuration.fp8_scaling))
    with contextlib.ExitStack() as cleanup:
        single, session = (
            cleanup.enter_context(contextlib.closing(opened(*how)))
            for how in ((new_single, "fp32", None), (new_model, FP8, configuration.compile))
        )
        yield from _numbers(session.float8_network(single, batch))


def _numbers(deviations: Mapping[str, float]) -> Iterator[tuple[str, list[float]]]:
    for name, value in deviations.items():
        yield name, [value]


def by_ranks(
    card: Card,
    batch_size: int,
    new_model: Callable[[], Any],
    build: ModuleType,
    loader: ModuleType,
    open_sessions: Mapping[bool, Callable[[Any, Stage], Session]],
    group: Any,
    place: Place,
) -> Iterator[tuple[str, list[float]]]:
    """Yield the quantities of ranks that train on slices of a batch, each of as many samples, or on all of it.

    `place` is the rank's among the replicas. Sessions are opened together with other ranks (True) or alone.
    """
    batch = loader.formula_batch(card, batch_size * group.place.world)
    size = batch.samples // place.world
    share = loader.slice_of(batch, place.rank * size, size)

    def open_session(rule: OptimizerRule, partition: BatchPartition | None, together: bool) -> Session:
        model = new_model()
        build.load_probe_weights(build.without_randomness(model))
        return open_sessions[together](model, Stage(rule, partition, lambda _: {}, as_the_run=True))

    clipped = card.problem["optimizer"].get("gradient_norm") is not None
    for name, values in probe_ranks.quantities(open_session, group, batch, share, clipped):
        yield name, [float(value) for value in values]


def stages(card: Card, stored: Reference | None, batch: Batch, accumulation: int) -> list[Stage]:
    """Return the parts of the check: by a rule whose hyper-parameters are large enough to show, and by the card's own.

    The latter divides its batch in two micro-batches if the run has several.
    """
    own = rule_of(card.problem, batch.samples)
    rule = dataclasses.replace(own, **(stored.optimizer if stored else {}))
    if isinstance(rule, SamplerRule):
        chains = stored.batch_size if stored else reference.PLAIN_BATCH
        return [Stage(rule, None, functools.partial(transitions, batch=batch, chains=chains), as_the_run=True)]
    name, partition = reference.OWN_RULE, None
    if accumulation > 1:
        name, partition = reference.ACCUMULATED, BatchPartition(batch.samples // 2, accumulation=2)
    return [
        Stage(rule, None, functools.partial(quantities, batch=batch), as_the_run=True),
        Stage(own, partition, functools.partial(updates, batch=batch, names=[name]), remembering=True),
    ]


def probe_precision(
    new_model: Callable[[], Any],
    build: ModuleType,
    open_session: Callable[[Any, Stage], Session],
    parts: Sequence[Stage],
) -> Iterator[tuple[str, list[float]]]:
    """Yield the quantities of freshly initialised models in one precision, by name."""
    values_by_name: Quantities = {}
    for stage in parts:
        model = new_model()
        values_by_name = values_by_name or initialisation(build.weights(model))
        build.load_probe_weights(build.without_randomness(model), stage.remembering)
        session = open_session(model, stage)
        values_by_name.update(stage.examine(session))
        session.close()
        del model, session  # before the next one, since memory holds only one
    for name, values in values_by_name.items():
        yield name, [float(value) for value in values]


def initialisation(weights: Weights) -> Quantities:
    """Return the norm of the initial weights of each group."""
    return {f"initialisation.{group}": norm for group, norm in group_norms(weights.items()).items()}


def quantities(session: Session, batch: Batch) -> Quantities:
    """Return the output, the losses and updates of four training steps, and the output after two of them.

    The output between them shows that training goes on after inference as before.
    """
    values_by_name = {"output": sample_output(session.infer_request(batch).output)}
    values_by_name.update(updates(session, batch, UPDATES[:2]))
    values_by_name["output_after_updates"] = sample_output(session.infer_request(batch).output)
    values_by_name.update(updates(session, batch, UPDATES[2:]))
    return values_by_name


def updates(session: Session, batch: Batch, names: Sequence[str]) -> Quantities:
    """Return the loss of a training step and the norm of each group's update, for a step of each name."""
    values_by_name: Quantities = {}
    before = copy_weights(session.weights())
    for step in names:
        report = session.train(batch)
        values_by_name[f"{step}.loss"] = np.array([report.loss() if report.loss else np.nan])
        after = copy_weights(session.weights())
        changes = ((name, weight - before[name]) for name, weight in after.items())
        values_by_name.update({f"{step}.{group}": norm for group, norm in group_norms(changes).items()})
        before = after
    return values_by_name


def transitions(session: Session, batch: Batch, chains: int) -> Quantities:
    """Return the state of Markov chains after each of a few transitions, with the proposals' log acceptance.

    Momenta and thresholds come from a formula, too. The next trajectory shows the adapted step sizes.
    """
    values_by_name: Quantities = {}
    state = session.begin(batch, len(TRANSITIONS), chains)
    for index, name in enumerate(TRANSITIONS):
        state = session.next_state(state) if index else state
        draw = session.chain_sample(state)
        values_by_name[f"{name}.position"] = sample_output(draw.position)
        values_by_name[f"{name}.log_density"] = np.array(draw.log_density)
        values_by_name[f"{name}.log_acceptance"] = np.array(draw.log_acceptance)
    return values_by_name


def sample_output(output: object) -> np.ndarray:
    """Return `OUTPUTS` numbers of an output, spread by the golden ratio, so that they follow none of its axes."""
    parts = output if isinstance(output, tuple) else (output,)
    flat = np.concatenate([np.asarray(part).ravel() for part in parts])
    fractions = np.arange(OUTPUTS) * ((5**0.5 - 1) / 2) % 1
    return flat[(fractions * flat.size).astype(np.int64)]


def copy_weights(weights: Weights) -> dict[str, np.ndarray]:
    """Return a copy of the current weights."""
    return {name: np.array(weight) for name, weight in weights.items()}


def group_norms(arrays: Iterable[tuple[str, np.ndarray]]) -> Quantities:
    """Return the L2 norm over all arrays of each group: the matrices, or the vectors, of a part of the network."""
    squares: dict[str, float] = {}
    for name, array in arrays:
        group = f"{name.partition('.')[0]}.{'matrices' if array.ndim > 1 else 'vectors'}"
        squares[group] = squares.get(group, 0.0) + float(np.square(array, dtype=np.float64).sum())
    return {group: np.array([square**0.5]) for group, square in squares.items()}
