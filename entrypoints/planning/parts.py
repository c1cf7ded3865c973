"""Parts of one model, each on a device and in a rank of its own: what a run of them can be asked for."""

from __future__ import annotations

import math

from entrypoints.contract.cards import Card
from entrypoints.contract.choices import PARTED, STAGED, TENSOR
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options


def ranks(options: Options, device: str) -> int:
    """Return the processes of a run: one for each part of each replica; IPUs are those of one process."""
    return 1 if device == "ipu" else options.replicas * options.stages


def require(options: Options, card: Card, framework: str, device: str) -> None:
    """Raise UsageError for what ranks with parts of a model cannot do."""
    if options.stages > 1 and framework != "pytorch":
        raise UsageError(f"--stages {options.stages}: only PyTorch cuts models here. Leave it out")
    if options.stages > 1 and device != "ipu":
        _require_transformer(options, card)
        _require_training(options)


def _require_transformer(options: Options, card: Card) -> None:
    where, model = f"--stages {options.stages}", card.problem.get("model", {})
    if card.family != "transformer":
        raise UsageError(f"{where}: {card.name} is no row of equal blocks of attention. Take --strategy fsdp")
    if options.strategy == TENSOR:
        features = math.gcd(model["heads"], model["feed_forward"])
        if features % options.stages:
            raise UsageError(
                f"{where} with --strategy {TENSOR}: {card.name} has {model['heads']} heads and {model['feed_forward']} "
                f"inner features, which parts of a block divide equally. Give a divisor of {features}"
            )
    elif model["layers"] < options.stages:
        raise UsageError(f"{where}: {card.name} has {model['layers']} blocks. Give as many stages or fewer")


def _require_training(options: Options) -> None:
    where = f"--stages {options.stages}"
    if options.strategy not in (None, *PARTED, *STAGED):
        raise UsageError(f"{where} with --strategy {options.strategy}: it has no stages. Leave one of them out")
    if options.task != "training":
        raise UsageError(f"{where}: one device computes {options.task}, and --replicas is for more. Leave it out")
    if options.replicas > 1:
        raise UsageError(
            f"{where} with --replicas {options.replicas}: stages are those of one copy of the model here. Leave one of "
            "them out, or take --strategy fsdp with as many replicas"
        )
    if options.compile:
        raise UsageError(f"--compile with {where}: parts of a model are not compiled here. Leave one of them out")
