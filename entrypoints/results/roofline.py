"""The highest throughput that a device allows: its roofline.

A step takes no less time than its operations take at the peak of their precision, and no less than the bytes that it
cannot but move take at the bandwidth of the device's memory (Williams, Waterman and Patterson, Roofline: an insightful
visual performance model for multicore architectures, Communications of the ACM 52(4), 2009, 10.1145/1498765.1498785).

Operations are those of the card, less the attention of a causal model to places that it does not see: those that
follow, and those before a window. They are those of direct products: an algorithm that does with fewer, such as
Winograd's for convolutions (Lavin and Gray, 2016, arXiv:1509.09308), could pass the bound. Bytes are the least that any
program moves:

- in training, the weights in the precision of products for each micro-batch, and for an update the weights and the
  states of the optimizer, read and written; activations and gradients count as nothing;
- in inference, the weights for each call, and in generation for each new token, with the keys and values of all tokens
  before it; of a mixture of experts not more than all tokens together have, in a window not more keys than it has;
- the inputs, once.

In FP8, operations of the layers that have it take as long as at the peak of FP8, and all others as at that of bf16.

A table of which only some rows are looked up is not read as a whole, and what a cache may have kept from the step or
token before is not read again. Samplers and micro-benchmarks but matmul have numbers that caches hold.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.contract.cards import (
    Card,
    attention_windows,
    causal,
    generates,
    head_sizes,
    pictures,
    trained_parameters,
)
from entrypoints.contract.choices import FP8
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.contract.storage import BYTES, DIVIDED, SINGLE, states_of

OPERATIONS, BYTES_MOVED = "operations", "bytes"  # what limits a throughput
BACKWARD = 3  # operations of training over those of a forward pass
TOKEN = 2  # bytes of a token, at the least


class Flops(NamedTuple):
    """Operations of a unit: all that the card counts, and those that the model needs."""

    per_unit: int
    needed_per_unit: int


class WorkPart(NamedTuple):
    """Operations and bytes of a part of a step, of all devices together; the next part begins when it is done."""

    operations: float
    bytes: float
    in_fp8: float = 0.0  # of the operations


class Work(NamedTuple):
    """The units of a step, and the parts of the step."""

    units: int
    parts: Sequence[WorkPart]


class Roof(NamedTuple):
    """What one device can do at the most: FLOP/s, and bytes/s of a memory behind a cache of so many bytes."""

    operations: float
    bandwidth: float | None = None  # None: unknown, or all is in the processor's own memory
    cache: float = 0.0
    fp8: float = math.inf  # FLOP/s in FP8, where a part of the operations is


class Bound(NamedTuple):
    """The highest throughput in units/s, and whether operations or bytes take longer."""

    throughput: float
    limit: str


def bound(work: Work, roof: Roof, devices: int) -> Bound:
    """Return the highest throughput of so many devices together."""
    computing = [_computing(part, roof) / devices for part in work.parts]
    moving = [_moving(part, roof, devices) for part in work.parts]
    seconds = math.fsum(map(max, computing, moving))
    limit = OPERATIONS if math.fsum(computing) >= math.fsum(moving) else BYTES_MOVED
    return Bound(work.units / seconds, limit)


def _computing(part: WorkPart, roof: Roof) -> float:
    return (part.operations - part.in_fp8) / roof.operations + part.in_fp8 / roof.fp8


def _moving(part: WorkPart, roof: Roof, devices: int) -> float:
    if roof.bandwidth is None:
        return 0.0
    return max(0.0, part.bytes - roof.cache * devices) / (roof.bandwidth * devices)


def work_of_step(card: Card, task: str, configuration: Mapping[str, Any]) -> Work | None:
    """Return the work of a step with a `configuration` as a result has it; None if nobody counts its operations."""
    per_unit = card.flops_per_unit(task)
    if not per_unit:
        return None
    if task == MICROBENCHMARK:
        return Work(1, [WorkPart(per_unit, 0.0)])
    if generates(card.problem, task):
        return _generation(card, configuration)
    updates = configuration["device_iterations"] if task == "training" else 1
    units = int(configuration["batch_size"] * updates)
    operations = float(units * flops_of_unit(card, task).needed_per_unit)
    in_fp8 = float(units * _in_fp8(card, task)) if configuration["precision"] == FP8 else 0.0
    return Work(units, [WorkPart(operations, _bytes(card, task, configuration, units, updates), in_fp8)])


def flops_of_unit(card: Card, task: str) -> Flops:
    """Return the operations of a unit, with the pairs of places that a causal model does not see and without them."""
    per_unit = card.flops_per_unit(task)
    return Flops(per_unit, per_unit - (_unseen(card, task) if per_unit else 0))


def _unseen(card: Card, task: str) -> int:
    """Return the operations of a unit that are of pairs of places that a causal model does not see.

    A text that is generated has them in its prompt, whose places are computed together.
    """
    if not causal(card.problem):
        return 0
    model, generated = card.problem["model"], generates(card.problem, task)
    length = card.problem["generation"]["prompt"] if generated else card.problem["input"]["length"]
    forward = _of_a_pair(model) * sum(length**2 - seen_pairs(length, window) for window in attention_windows(model))
    return int(forward * (BACKWARD if task == "training" else 1))


def _in_fp8(card: Card, task: str) -> int:
    """Return the operations of a unit of a dense decoder that are of the linear layers of its blocks.

    Weights that are not trained have no gradient. Of adapters in all blocks, the first projection needs none of its
    input either, which counts here: a bound is no lower for it.
    """
    model, heads = card.problem["model"], head_sizes(card.problem["model"])
    attention = (2 * heads.heads + 2 * heads.kv_heads) * heads.size  # outputs to queries, keys, values, and back
    weights = model["layers"] * model["width"] * (attention + 3 * model["feed_forward"])
    backward = BACKWARD - ("adapter" in model)
    return int(2 * weights * card.problem["input"]["length"] * (backward if task == "training" else 1))


def seen_pairs(length: int, window: int | None) -> int:
    """Return the pairs of so many places in which one sees the other, or itself: in a window not those further back."""
    most = min(length, window or length)
    return most * (most + 1) // 2 + (length - most) * most


def _of_a_pair(model: Mapping[str, Any]) -> int:
    """Return the operations of a pair of places in a block: the score of a query and a key, and the sum of values."""
    heads = head_sizes(model)
    return int(4 * heads.heads * heads.size)


def _seen_by(model: Mapping[str, Any], place: int) -> int:
    """Return how many places the last of so many sees, itself included, summed up over all blocks."""
    return sum(min(place, window or place) for window in attention_windows(model))


def _bytes(card: Card, task: str, configuration: Mapping[str, Any], units: int, updates: int) -> float:
    """Return the bytes that all devices move in a step."""
    if task == "sampling":
        return 0.0
    inputs = units * _input_bytes(card.problem, configuration["precision"])
    streams = configuration["concurrency"] or 1  # requests at the same time may share what they read
    weights = _weights(card) * BYTES[configuration["precision"]] * _copies(configuration, "weights")
    if task == "inference":
        return inputs + weights / streams
    times = updates * configuration["gradient_accumulation"]
    states = states_of(card.problem["optimizer"]) * _copies(configuration, "states")
    number = BYTES[configuration["precision"]] if configuration["device"] == "ipu" else SINGLE
    updated = 2 * number * trained_parameters(card.problem) * (states + _copies(configuration, "states"))
    return inputs + times * weights + (0.0 if configuration.get("offload") else updates * updated)


def _copies(configuration: Mapping[str, Any], part: str) -> int:
    """Return how often devices hold a part of what a model needs: in each replica, unless ranks divide it."""
    divided = part in DIVIDED.get(configuration["strategy"] or "", ())
    replicas = int(configuration["replicas"])
    return replicas // (configuration.get("shards") or replicas) if divided else replicas


def _weights(card: Card) -> int:
    """Return the weights that every forward pass reads whole: all, less tables of which rows are looked up."""
    model, parameters = card.problem["model"], int(card.problem["parameters"])
    if "condition" in model:
        return parameters - model["width"] * model["condition"].get("classes", 0)
    if "vocabulary" not in model or "head" not in model:
        return parameters
    rows = 0 if model["head"].get("tied") else model["vocabulary"]
    return parameters - model["width"] * (rows + model["positions"].get("most", 0))


def _input_bytes(problem: Mapping[str, Any], precision: str) -> int:
    given = problem["input"]
    if "shape" not in given:
        return int(given.get("length", 0)) * TOKEN
    return math.prod(given["shape"]) * (1 if pictures(problem) else BYTES[precision])


def _generation(card: Card, configuration: Mapping[str, Any]) -> Work:
    """Return the prompts of a batch, and each further token of all its texts, as parts of a step."""
    texts, model, lengths = int(configuration["batch_size"]), card.problem["model"], card.problem["generation"]
    number = BYTES[configuration["precision"]]
    weights = _weights(card) * number * _copies(configuration, "weights")
    prompt, new = lengths["prompt"], lengths["new"]
    dense, pair, head = _operations_of_a_token(card)
    prompts = texts * (prompt * dense + pair * model["layers"] * prompt**2 - _unseen(card, "inference") + head)
    heads = head_sizes(model)
    cached = 2 * heads.kv_heads * heads.size * number  # bytes of the key and value of a token in a block
    read = weights * _read_share(card, texts / int(configuration["replicas"]))
    tokens = (
        WorkPart(texts * (dense + pair * seen + head), read + texts * cached * (seen - model["layers"]))
        for seen in (_seen_by(model, place) for place in range(prompt + 1, prompt + new))
    )
    return Work(texts, [WorkPart(prompts, weights + texts * prompt * TOKEN), *tokens])


def _read_share(card: Card, tokens: float) -> float:
    """Return the share of the weights that a replica reads for so many tokens: of experts only those that they have."""
    experts = card.problem["model"].get("experts")
    if experts is None:
        return 1.0
    unused = max(0.0, 1 - tokens * experts["per_token"] / experts["count"])
    return 1 - unused * _weights_of_experts(card.problem["model"]) / _weights(card)


def _weights_of_experts(model: Mapping[str, Any]) -> int:
    width, inner = model["width"], model["feed_forward"]
    biases = 2 * inner + width if model.get("biases") else 0
    return int(model["layers"] * model["experts"]["count"] * (3 * width * inner + biases))


def _operations_of_a_token(card: Card) -> tuple[float, float, float]:
    """Return by the card's counts the operations of a token in all blocks, of a pair of places in one, and of the head.

    The card counts the products of weights once for each place of prompt and new tokens but the last, all pairs of the
    prompt, what each new token sees, and the head for each new token.
    """
    model, lengths = card.problem["model"], card.problem["generation"]
    prompt, new = int(lengths["prompt"]), int(lengths["new"])
    pair = float(_of_a_pair(model))
    pairs = model["layers"] * prompt**2 + sum(_seen_by(model, place) for place in range(prompt + 1, prompt + new))
    head = 2.0 * model["width"] * model["vocabulary"]
    places = prompt + new - 1
    dense = (card.flops_per_unit("inference") - pair * pairs - head * new) / places
    return dense, pair, head
