"""The runs of a command line, in order."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options
from entrypoints.planning.bracket import MOST_BATCH
from entrypoints.planning.configuration import Configuration
from entrypoints.planning.resolve import resolve


def plan(options: Options, card: Card, image: Mapping[str, Any] | None) -> list[Configuration]:
    """Return all runs. Repeats are the outer loop, so that a machine's drift affects all batch sizes alike.

    Raises UsageError if any of them is impossible.
    """
    if options.find_max_batch:
        _require_searchable(options)
    sizes = options.batch_sizes or (options.batch_size or (1 if options.find_max_batch else None),)
    runs = [resolve(options._replace(batch_size=size), card, image) for size in sizes]
    return [
        dataclasses.replace(run, repeat={"index": index, "of": options.repeat})
        for index in range(1, options.repeat + 1)
        for run in runs
    ]


def most_batch(configuration: Configuration) -> int:
    """Return the largest size that a search may try: one that the data can fill."""
    return min(MOST_BATCH, configuration.samples_per_epoch or MOST_BATCH)


def _require_searchable(options: Options) -> None:
    if options.batch_sizes:
        raise UsageError("--find-max-batch looks for the size itself", "leave --batch-sizes out")
    if options.epochs:
        raise UsageError(
            "--find-max-batch with --epochs: their steps depend on the batch", "give --steps or --duration"
        )
    if options.target_accuracy is not None or options.target_loss is not None:
        raise UsageError("--find-max-batch with a target", "find the batch first, then give it as --batch-size")
    if options.batch_size and options.batch_size > MOST_BATCH:
        raise UsageError(f"--find-max-batch looks no further than {MOST_BATCH}", "give a smaller --batch-size, or none")
