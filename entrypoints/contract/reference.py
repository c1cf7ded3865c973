"""The stored values and tolerances of a workload's correctness check: `references/<workload>.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Mapping, Sequence

from entrypoints.contract import float8
from entrypoints.contract.cards import Card, routing
from entrypoints.contract.choices import FP8

FOLDER = Path(__file__).resolve().parent.parent / "references"
PLAIN_BATCH = 2  # samples of the check if there is no reference
# Quantities of an update by the card's own rule: of the batch as a whole, and divided in two micro-batches.
OWN_RULE, ACCUMULATED = "own_rule", "accumulated"
# Quantities of ranks that train on slices of a batch, each 0 but for rounding, and what they say.
UPDATE, CLIPPED_UPDATE, WEIGHTS = "update_by_ranks", "clipped_update_by_ranks", "weights_between_ranks"
BY_RANKS = {
    UPDATE: "ranks do not train as one rank would with the same batch",
    CLIPPED_UPDATE: "ranks do not clip gradients as one rank would with the same batch",
    WEIGHTS: "ranks have different weights after the same updates",
}
# Of an update, relative to that of one rank: mistakes deviate by a third at least. Weights are equal to the last bit.
ROUNDING_OF_UPDATES = {"fp32": 0.02, "tf32": 0.05, "bf16": 0.2, "fp16": 0.2}
ROUNDING_OF_WEIGHTS = 1e-6
MEASURED_FIRST = "cpu"  # the kind of device that `tolerances` are of
# Correct code on a kind of device whose rounding was not measured deviates by more than tolerances of CPUs: the first
# GPU, an NVIDIA H200, needed up to 14 times as much in fp32. Beyond this multiple it is a mistake.
LEEWAY = 16.0


def by_ranks(clipped: bool, precision: str) -> list[str]:
    """Return the names of the quantities BY_RANKS of a rule that clips gradients or not.

    In FP8 each rank scales its own slice of a batch, so that one rank with all of it rounds otherwise.
    """
    if precision == FP8:
        return [WEIGHTS]
    return [name for name in BY_RANKS if clipped or name != CLIPPED_UPDATE]


def tolerance_by_ranks(name: str, precision: str) -> float:
    """Return the tolerance of one of BY_RANKS."""
    return ROUNDING_OF_WEIGHTS if name == WEIGHTS else ROUNDING_OF_UPDATES[precision]


@dataclass(frozen=True)
class Reference:
    """How a workload is checked, the expected values, and the tolerance of each quantity by precision.

    `optimizer` replaces hyper-parameters of the card, so that a single update shows all of them, and `model` and
    `input` replace sizes that are too large to be checked; `parameters` is the count of the network that is checked. A
    precision in `not_provable` has the reason instead of tolerances. `devices` has what differs on other kinds of
    devices: `tolerances` that are wider, or of other precisions, and `not_provable`.
    """

    schema_version: str
    workload: str
    identity: str  # of the card that it was made for
    batch_size: int
    optimizer: Mapping[str, Any]
    model: Mapping[str, Any]
    parameters: int
    values: Mapping[str, Sequence[float]]
    tolerances: Mapping[str, Mapping[str, float]]
    not_provable: Mapping[str, str]
    source: str
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    trained: int | None = None  # parameters of the network that is checked, where not all are trained
    leeway: float = 1.0  # times a tolerance: as much as a correct device may deviate that was not measured

    def on(self, device: str) -> Reference:
        """Return the reference for a kind of device."""
        if device == MEASURED_FIRST:
            return self
        own = self.devices.get(device)
        if own is None:
            return replace(self, leeway=LEEWAY)
        tolerances = {
            precision: {**self.tolerances.get(precision, {}), **own["tolerances"].get(precision, {})}
            for precision in {**self.tolerances, **own["tolerances"]}
        }
        return replace(self, tolerances=tolerances, not_provable={**self.not_provable, **own["not_provable"]})

    def of_run(self, accumulation: int) -> Reference:
        """Return the reference without the quantities that a run of so many micro-batches per update does not have."""
        other = (OWN_RULE if accumulation > 1 else ACCUMULATED) + "."

        def kept(quantities: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in quantities.items() if not name.startswith(other)}

        tolerances = {precision: kept(quantities) for precision, quantities in self.tolerances.items()}
        return replace(self, values=kept(self.values), tolerances=tolerances)

    def by_ranks(self, clipped: bool) -> Reference:
        """Return the reference with the quantities of ranks that train together, and clip gradients or not."""
        tolerances = {
            precision: {
                **quantities,
                **{name: tolerance_by_ranks(name, precision) for name in by_ranks(clipped, precision)},
            }
            for precision, quantities in self.tolerances.items()
        }
        return replace(self, values={**self.values, **{name: [0.0] for name in BY_RANKS}}, tolerances=tolerances)

    def in_float8(self) -> Reference:
        """Return the reference with the quantities of FP8, each a deviation from what the same device computes."""
        values = {**self.values, **{name: [0.0] for name in float8.TOLERANCES}}
        return replace(self, values=values, tolerances={**self.tolerances, FP8: float8.TOLERANCES})


FIRST_TOKEN = "first_token"  # noqa: S105 - largest deviation of a log-probability from that of our own network
# Of engines, absolute. Correct ones showed 7e-6 in fp32 and 0.06 in bf16 (transformers 5.23, vLLM 0.32, on a CPU);
# every mistake in positions and normalisation that was tried deviates by 0.7 and more. Kernels of GPUs may multiply
# fp32 as TF32, with all products of which our own networks deviate by 0.0042 at most. In FP8 the median of the prompts
# counts, which was 0.15 to 0.23 in emulation, by tensor and by row, and 1.3 and more with those mistakes.
OF_ENGINES = Reference(
    schema_version="1.0",
    workload="engines",
    identity="",
    batch_size=1,
    optimizer={},
    model={},
    parameters=0,
    values={FIRST_TOKEN: [0.0]},
    tolerances={
        "fp32": {FIRST_TOKEN: 1e-4},
        "bf16": {FIRST_TOKEN: 0.2},
        "fp16": {FIRST_TOKEN: 0.05},
        FP8: {FIRST_TOKEN: 0.6},
    },
    not_provable={},
    source="entrypoints/worker/serving_check.py",
    devices={"cuda": {"tolerances": {"fp32": {FIRST_TOKEN: 0.01}}, "not_provable": {}}},
)


def probed_card(card: Card, reference: Reference | None) -> Card:
    """Return the card of the network that is checked."""
    if reference is None:
        return card
    sizes = {"model": reference.model, "input": reference.input}
    replaced = {name: {**card.problem[name], **others} for name, others in sizes.items()}
    counts = {"parameters": reference.parameters, **({"trained": reference.trained} if reference.trained else {})}
    return card._replace(problem={**card.problem, **replaced, **counts})


def reduced_card(card: Card) -> Card:
    """Return the card of the network that is checked, as a workload of its own, if that is smaller than the card's.

    Nobody has counted its operations, and what it needs of memory.
    """
    stored = load(card)
    if stored is None or not stored.model:
        return card
    reduced = probed_card(card, stored)
    problem = dict(reduced.problem)
    if routing(problem):  # which is timed as in the whole network
        experts = {**problem["model"]["experts"], "routing": routing(card.problem)}
        problem["model"] = {**problem["model"], "experts": experts}
    if "generation" in problem:
        half = problem["input"]["length"] // 2
        problem["generation"] = {"prompt": half, "new": min(half, problem["generation"]["new"])}
    counts: dict[str, Any] = {name: 0 for name in (*card.flops, *card.memory) if name != "source"}
    counts["source"] = "not counted for a reduced network"
    return card._replace(title=f"{card.title}, reduced", problem=problem, flops=counts, memory=counts)


def probed_problem(card: Card) -> str:
    """Return the checked problem of a card as JSON: the same for networks that differ only in size, if that is
    replaced."""
    return json.dumps(probed_card(card, load(card)).problem, sort_keys=True)


def load(card: Card, folder: Path = FOLDER) -> Reference | None:
    """Return the card's reference; None if there is none, or one for another problem."""
    path = folder / f"{card.name}.json"
    if not path.is_file():
        return None
    reference = Reference(**json.loads(path.read_text("utf-8")))
    return reference if reference.identity == card.identity else None
