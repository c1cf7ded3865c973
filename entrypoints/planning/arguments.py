"""The command line. Each value is checked here by itself; `configuration` checks the combinations."""

from __future__ import annotations

import argparse
import math
import os
import re
from typing import Callable, NamedTuple, NoReturn, Sequence

from entrypoints.contract.choices import PRECISIONS, STRATEGIES, TASKS
from entrypoints.contract.statuses import STATUSES, UsageError
from entrypoints.metering import names as meters

METERS = (meters.AUTO, meters.NONE, *meters.names())
MOST = 10**9
MOST_REPEATS = 1000
LONGEST = 30 * 86400.0  # a month, in seconds


class Options(NamedTuple):
    """The user's options; None for those not given."""

    workload: str | None
    all: bool
    task: str | None
    device: str | None
    precision: str | None
    compile: bool
    batch_size: int | None
    micro_batch_size: int | None
    replicas: int
    device_iterations: int
    stages: int
    strategy: str | None
    concurrency: int | None
    batch_sizes: tuple[int, ...] | None
    find_max_batch: bool
    repeat: int
    steps: int | None
    duration: float | None
    epochs: int | None
    warmup_steps: int | None
    samples_per_epoch: int | None
    data: str
    data_workers: int | None
    meter: str
    meter_period: float
    idle_seconds: float | None
    output: str | None
    target_accuracy: float | None
    target_loss: float | None
    evaluation_steps: int | None
    evaluation_data: str | None
    seed: int
    site: str | None
    time_limit: float | None
    memory_limit: int | None
    threads: int | None
    smoke: bool
    skip_numerics: bool
    verb: str


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _Help(argparse.HelpFormatter):
    """Help as wide as the terminal. argparse would import half a dozen modules to find the width, even unused."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size(1).columns
        except OSError:
            columns = 80
        super().__init__(prog, width=columns - 2)


def parse(argv: Sequence[str]) -> Options:
    """Return the options of a command line. Raises UsageError; --help prints and exits with 0."""
    return Options(**vars(parser().parse_args(argv)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with its help."""
    grammar = _Parser(
        prog="sifmark",
        description="Run one benchmark workload and answer with one JSON document; several runs, with one a line.",
        epilog="exit codes: 2 usage, 6 the result is not valid or could not be written, "
        + ", ".join(f"{status.exit_code} {state}" for state, status in STATUSES.items()),
        allow_abbrev=False,
        formatter_class=_Help,
    )
    add = grammar.add_argument
    add("workload", nargs="?", metavar="WORKLOAD", help="default: what the image's name says")
    add("--all", action="store_true", help="every workload of this image in turn, a failure ends none but its own")
    add("--task", choices=TASKS, help="default: the first that the workload has: training, or sampling")
    add("--device", metavar="NAME", help="default: the image's; cpu, which every image can; auto")
    add("--precision", choices=PRECISIONS, help="default: the card's")
    add(
        "--compile",
        action="store_true",
        help="have the framework compile the model: torch.compile or XLA; takes a while",
    )
    _add_batch(grammar)
    _add_division(grammar)
    _add_length(grammar)
    add("--repeat", type=whole(1, MOST_REPEATS), default=1, metavar="N", help="runs, each in a process of its own")
    add(
        "--data",
        type=path,
        default="synthetic",
        metavar="PATH",
        help="class folders of images, tar shards, idx or TFRecord files, prepared text or speech, told by what lies "
        "there; for sampling, a table FILE.csv; default: synthetic",
    )
    add(
        "--data-workers",
        type=whole(0, 1024),
        metavar="N",
        help="processes (TensorFlow: threads) that read and decode; 0: none but the main one",
    )
    _add_target(grammar)
    _add_meter(grammar)
    add(
        "--output",
        metavar="PLACE",
        help="FILE.json for one result, FILE.jsonl to add lines to, FOLDER/ for a file each; default: standard output",
    )
    add("--seed", type=whole(0, 2**32 - 1), default=0, metavar="N", help="of weights, data and their order; default: 0")
    add("--site", metavar="NAME", help="where this runs; stands in the result")
    add("--time-limit", type=seconds, metavar="SECONDS", help="stop everything after so long, with a valid result")
    add("--memory-limit", type=whole(1), metavar="MIB", help="most memory of the workload's process, in MiB")
    add(
        "--threads",
        type=whole(1, 65536),
        metavar="N",
        help="compute threads per stream; default: the card's, or all cores",
    )
    add("--smoke", action="store_true", help="a run of seconds: few steps, small batch, numerics not probed")
    add("--skip-numerics", action="store_true", help="do not probe whether the code computes what the card says")
    _add_verbs(grammar)
    return grammar


def _add_batch(grammar: argparse.ArgumentParser) -> None:
    size = grammar.add_mutually_exclusive_group()
    size.add_argument(
        "--batch-size",
        type=whole(1),
        metavar="N",
        help="samples per step, over all devices, or per request; in sampling, chains",
    )
    size.add_argument("--batch-sizes", type=wholes, metavar="N,N,...", help="a run at each, one result each")
    grammar.add_argument(
        "--find-max-batch",
        action="store_true",
        help="search for the largest batch that fits into memory, from --batch-size or 1, then run at it",
    )
    grammar.add_argument(
        "--concurrency",
        type=whole(1, 1024),
        metavar="N",
        help="inference by requests, for its latency: N streams, each asks again once it is answered (a closed loop)",
    )


def _add_division(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument
    add(
        "--micro-batch-size",
        type=whole(1),
        metavar="N",
        help="samples that are computed at once; gradients accumulate over the batch. On IPUs also in inference, but "
        "not with --concurrency",
    )
    add("--replicas", type=whole(1, 4096), default=1, metavar="N", help="copies of the model that share a batch; IPUs")
    add(
        "--device-iterations",
        type=whole(1, 4096),
        default=1,
        metavar="N",
        help="batches that IPUs train on in one call, which is one step; default: 1",
    )
    add("--stages", type=whole(1, 256), default=1, metavar="N", help="parts that the model is cut into; IPUs")
    add("--strategy", choices=STRATEGIES, help="how the stages take turns; default: pipelined")


def _add_length(grammar: argparse.ArgumentParser) -> None:
    length = grammar.add_mutually_exclusive_group()
    length.add_argument("--steps", type=whole(1), metavar="N", help="all steps, warm-up included")
    length.add_argument("--duration", type=seconds, metavar="SECONDS", help="length of the timed window")
    length.add_argument("--epochs", type=whole(1), metavar="N", help="passes over the data")
    grammar.add_argument("--warmup-steps", type=whole(1), metavar="N", help="steps that are not timed, at least 1")
    grammar.add_argument("--samples-per-epoch", type=whole(1), metavar="N", help="for --epochs of synthetic data")


def _add_target(grammar: argparse.ArgumentParser) -> None:
    target = grammar.add_mutually_exclusive_group()
    target.add_argument(
        "--target-accuracy",
        type=share,
        metavar="SHARE",
        help="train until so many of all samples are told right: 0.759",
    )
    target.add_argument("--target-loss", type=positive, metavar="LOSS", help="train until the loss is as small")
    grammar.add_argument(
        "--evaluation-steps",
        type=whole(1),
        metavar="N",
        help="steps from one evaluation to the next; default: an epoch, or 100 where data have no end",
    )
    grammar.add_argument(
        "--evaluation-data",
        type=path,
        metavar="PATH",
        help="samples to evaluate, in any format that --data reads; default: those of --data, cut as for inference",
    )


def _add_meter(grammar: argparse.ArgumentParser) -> None:
    grammar.add_argument(
        "--meter",
        type=meter,
        default=meters.AUTO,
        metavar="NAME[:PLACE]",
        help=f"of power: {', '.join(METERS)}. PLACE: of nvml a GPU's UUID, PCI address or number, of amd and intel "
        "a number, of grace_hopper a socket, of rapl and hwmon where the kernel's folder is, of replay a file",
    )
    grammar.add_argument(
        "--meter-period",
        type=seconds_within(0.01, 10.0),  # above that, a RAPL counter may wrap unnoticed: it does in about a minute
        default=0.1,
        metavar="SECONDS",
        help="between two readings of the meter; default: 0.1",
    )
    grammar.add_argument(
        "--idle-seconds",
        type=seconds_within(0.0, 3600.0),
        metavar="SECONDS",
        help="rest before the run, where there is a meter, to measure idle power; longer where the meter is slow. "
        "Default: 5, in a smoke run 0",
    )


def _add_verbs(grammar: argparse.ArgumentParser) -> None:
    verbs = grammar.add_mutually_exclusive_group()
    for verb, text in {
        "check": "test this image: probe the numerics of the workload, or of all; a minute or some",
        "describe": "print what would run as JSON, run nothing",
        "list": "list the workloads of this image",
        "version": "print the version of this image",
    }.items():
        verbs.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb, default="run", help=text)


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`."""

    def parse_whole(text: str) -> int:
        if not re.fullmatch("[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse_whole


def wholes(text: str) -> tuple[int, ...]:
    """Return different whole numbers from 1, separated by commas."""
    numbers = tuple(map(whole(1), text.split(",")))
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} names a number twice. To run twice, use --repeat 2")
    return numbers


def path(text: str) -> str:
    """Return a path; an empty one would mean the current folder, and usually comes from an unset variable."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty. Name a folder or file, or leave --data out")
    return text


def meter(text: str) -> str:
    """Return a meter's name, with its place if there is one."""
    name, colon, place = text.partition(":")
    if name not in METERS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is none of {', '.join(METERS)}")
    if colon and (not place or name in (meters.AUTO, meters.NONE)):
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a place follows the colon, and only a meter has one")
    return text


def seconds_within(least: float, most: float) -> Callable[[str], float]:
    """Return a parser of numbers of seconds from `least` to `most`."""

    def parse_seconds(text: str) -> float:
        value = _float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds from {least:g} to {most:g}")
        return value

    return parse_seconds


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    value = _float(text)
    if not 0 < value <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds above 0, up to {LONGEST:.0f}")
    return value


def share(text: str) -> float:
    """Return a number above 0, up to 1."""
    value = _float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share above 0, up to 1")
    return value


def positive(text: str) -> float:
    """Return a finite number above 0."""
    value = _float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number above 0")
    return value


def _float(text: str) -> float:
    """Return the number, or NaN if the text is none: comparisons with it fail."""
    try:
        return float(text)
    except ValueError:
        return math.nan
