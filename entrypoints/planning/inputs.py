"""What a run reads: its data, those of its evaluations, and the workers that decode them."""

from __future__ import annotations

from pathlib import Path

from entrypoints.contract.cards import Card, labelled, tabular
from entrypoints.contract.statuses import UsageError
from entrypoints.data import formats, table
from entrypoints.data.source import Source
from entrypoints.planning.arguments import Options
from entrypoints.system import host

SYNTHETIC = "synthetic"
# Two batches of each worker process wait in shared memory: 5 GB for 64 of them and 256 photographs.
MOST_WORKERS = 64
# A CPU computes slower than so many decode beside it, and TensorFlow's are threads that share an interpreter lock.
FEW_WORKERS = 8


def open_data(options: Options, card: Card, framework: str) -> tuple[str, Source | None]:
    """Return the name of the inputs, and their source if there is one."""
    if options.data == SYNTHETIC:
        return SYNTHETIC, None
    if tabular(card.problem):
        table.require(Path(options.data))
        return table.NAME, None
    name, source = formats.open_for(card, Path(options.data), str(options.task), framework)
    if options.concurrency and source.sequential:
        raise UsageError(
            f"--concurrency with --data {options.data}: {name} are read from the front, and requests ask for single "
            "samples",
            "give class folders or idx files, or leave --concurrency out",
        )
    return name, source


def samples_per_epoch(options: Options, of_step: int, source: Source | None) -> int | None:
    """Return the samples of an epoch, which fill at least a step; None if the data have no end."""
    if source is None:
        if options.epochs and not options.samples_per_epoch:
            raise UsageError(
                "--epochs: synthetic data have no end of their own", "add --samples-per-epoch, or give --steps"
            )
        return _at_least_a_step(options.samples_per_epoch, of_step, "--samples-per-epoch")
    if options.samples_per_epoch:
        raise UsageError(
            "--samples-per-epoch is for synthetic data: an epoch of --data is all its samples", "leave it out"
        )
    return _at_least_a_step(source.samples, of_step, f"--data {options.data}")


def _at_least_a_step(samples: int | None, of_step: int, where: str) -> int | None:
    if samples is not None and samples < of_step:
        raise UsageError(
            f"{where}: {samples} samples do not fill one step of {of_step}", "give more, or a smaller --batch-size"
        )
    return samples


def evaluation_path(options: Options, card: Card, framework: str, trained: Source | None) -> str | None:
    """Return the path of the evaluation data, which is checked now so that no training is in vain; None without one."""
    if options.evaluation_data is None:
        return None
    if options.target_accuracy is None and options.target_loss is None:
        raise UsageError(
            "--evaluation-data without a target: nothing is evaluated", "add --target-accuracy or --target-loss"
        )
    path = Path(options.evaluation_data)
    where = f"--evaluation-data {path}"
    try:
        _, source = formats.open_for(card, path, "inference", framework, "--evaluation-data")
    except UsageError as error:  # readers only know --data
        raise UsageError(error.cause.replace("--data ", "--evaluation-data ", 1), error.remedy, error.code) from None
    if trained:
        source.like(trained, where)
    if trained and labelled(card.problem):
        source.numbered_as(trained, where)
    return str(path.resolve())


def workers(options: Options, source: Source | None, parts: int, framework: str, device: str) -> int | None:
    """Return the workers of a rank, of so many that divide the processors; None where no worker reads."""
    if source is None:
        if options.data_workers is not None:
            raise UsageError(
                "--data-workers is for --data PATH: synthetic data and tables are read by no worker", "leave it out"
            )
        return None
    if options.concurrency:
        if options.data_workers is not None:
            raise UsageError("--data-workers with --concurrency: each stream decodes its own requests", "leave one out")
        return None
    if options.data_workers is not None:
        return options.data_workers
    return default_workers(parts, framework, device)


def default_workers(parts: int, framework: str, device: str) -> int:
    """Return the workers of a rank, of so many that divide the processors."""
    most = FEW_WORKERS if device == "cpu" or framework == "tensorflow" else MOST_WORKERS
    return max(1, min(host.usable_threads() // parts, most))
