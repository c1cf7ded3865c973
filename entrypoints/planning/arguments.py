"""The command line. Each value is checked here by itself; `configuration` checks the combinations."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from typing import Any, NamedTuple, NoReturn, Sequence

from entrypoints.contract.choices import (
    AUTO_MODE,
    COMPILE_MODES,
    CPU_BINDINGS,
    FP8_SCALINGS,
    PRECISIONS,
    STRATEGIES,
    TASKS,
)
from entrypoints.contract.statuses import (
    INVALID_RESULT_EXIT,
    STATUSES,
    UNPROVEN_EXIT,
    USAGE_EXIT,
    UsageError,
    unknown_name,
)
from entrypoints.metering import names as meters
from entrypoints.planning import values
from entrypoints.serving.load import ENGINES, Range

MOST_REPEATS = 1000
COMPILE = "--compile"


class Options(NamedTuple):
    """The user's options; None for those not given."""

    workload: str | None
    all: bool
    task: str | None
    device: str | None
    precision: str | None
    fp8_scaling: str | None
    compile: str | None
    activation_checkpointing: bool
    offload: bool
    tune_kernels: bool
    batch_size: int | None
    micro_batch_size: int | None
    replicas: int
    device_iterations: int | None
    stages: int
    virtual_stages: int
    tensor: int
    shards: int | str | None
    strategy: str | None
    memory_proportion: tuple[float, ...] | None
    io_tiles: int | None
    cpu_bind: str
    rendezvous: tuple[str, int] | None
    concurrency: int | None
    engine: str | None
    rate: float | None
    arrivals: tuple[str, float | None] | None
    lengths: tuple[Range, Range] | None
    limits: tuple[float, float] | None
    find_goodput: bool
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
    largest_size: int | None
    measured_peak: str | None
    threads: int | None
    smoke: bool
    skip_numerics: bool
    json: bool
    verb: str


class _Parser(argparse.ArgumentParser):
    """Refuses words with errors in our form."""

    def error(self, message: str) -> NoReturn:
        refusal = sys.exc_info()[1]
        if not isinstance(refusal, argparse.ArgumentError):
            raise UsageError(message, "see --help")
        name, what = refusal.argument_name or "", refusal.message
        if what.startswith("not allowed with"):
            raise UsageError(f"{name}: {what.replace('argument ', '')}", "give one of them")
        metavar = self._option_string_actions[name].metavar if name in self._option_string_actions else None
        raise UsageError(f"{name}: {what}", f"write {name} {metavar}" if metavar else "see --help", "argument-missing")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:  # a parser of values does not know the option
            raise UsageError(f"{action.option_strings[0]}: {error.cause}", error.remedy) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise unknown_name(action.dest.replace("_", " "), str(value), list(action.choices))


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. argparse would import half a dozen modules to find the width, even unused."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size(1).columns
        except OSError:
            columns = 80
        super().__init__(prog, max_help_position=28, width=columns - 2)


def parse(argv: Sequence[str]) -> Options:
    """Return the options of a command line. Raises UsageError; --help prints and exits with 0."""
    grammar = parser()
    options, unknown = grammar.parse_known_args(with_compile_modes(argv))
    if unknown:
        raise _unknown(unknown[0], grammar)
    return Options(**vars(options))


def with_compile_modes(argv: Sequence[str]) -> list[str]:
    """Return a command line in which each --compile has its mode, so that the word after it may be the workload."""
    words: list[str] = []
    for index, word in enumerate(argv):
        bare = word == COMPILE and not set(argv[index + 1 : index + 2]) & set(COMPILE_MODES)
        words.append(f"{COMPILE}={AUTO_MODE}" if bare else word)
    return words


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with its help."""
    grammar = _Parser(
        prog="apptainer run IMAGE",
        usage="apptainer run IMAGE [WORKLOAD] [OPTIONS]",
        description="Run a benchmark workload and print its result as JSON; of several, one a line.",
        epilog=_exit_codes(),
        allow_abbrev=False,
        formatter_class=_Help,
    )
    for add_options in (
        *(_add_choice, _add_length, _add_batch, _add_division, _add_data, _add_target),
        *(_add_serving, _add_meter, _add_output, _add_checks, _add_verbs),
    ):
        add_options(grammar)
    return grammar


def _add_choice(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument_group("what to run").add_argument
    add("workload", nargs="?", metavar="WORKLOAD", help="default: what the image's name says; see --list")
    add("--all", action="store_true", help="every workload of this image; continue after failures")
    add("--task", type=values.task, choices=TASKS, help="default: the first that the workload has, usually training")
    add("--device", metavar="NAME", help="default: the image's; cpu works in every image; auto")
    add("--precision", type=str.lower, choices=PRECISIONS, help="default: the workload's")
    add(
        "--fp8-scaling",
        choices=FP8_SCALINGS,
        help="what has a scale of its own with --precision fp8: each tensor, or each row; default: tensorwise",
    )
    add(
        COMPILE,
        nargs="?",
        const=AUTO_MODE,
        choices=COMPILE_MODES,
        help="compile the model with torch.compile in this mode, or with XLA; auto, also without a mode, takes the one "
        "that fits device and workload; none does not compile it. Default: the workload's",
    )
    add("--threads", type=values.whole(1, 65536), metavar="N", help="compute threads; default: all cores")
    add(
        "--largest-size",
        type=values.size,
        metavar="SIZE",
        help="of a micro-benchmark: 64K, 1G bytes; rows of matmul",
    )
    add("--seed", type=values.whole(0, 2**32 - 1), default=0, metavar="N", help="of weights and data; default: 0")


def _add_length(grammar: argparse.ArgumentParser) -> None:
    group = grammar.add_argument_group("how long")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--steps", type=values.whole(1), metavar="N", help="all steps, including warm-up")
    length.add_argument("--duration", type=values.seconds, metavar="TIME", help="length of the timed window: 90, 5m")
    length.add_argument("--epochs", type=values.whole(1), metavar="N", help="passes over the data")
    add = group.add_argument
    add("--warmup-steps", type=values.whole(1), metavar="N", help="steps that are not timed, at least 1")
    add("--samples-per-epoch", type=values.whole(1), metavar="N", help="for --epochs with synthetic data")
    add("--repeat", type=values.whole(1, MOST_REPEATS), default=1, metavar="N", help="runs, each in a fresh process")
    add("--time-limit", type=values.seconds, metavar="TIME", help="stop after this time, with a valid result: 30m")
    add("--smoke", action="store_true", help="a short run without correctness check, to see that it works")


def _add_batch(grammar: argparse.ArgumentParser) -> None:
    group = grammar.add_argument_group("batch and memory")
    size = group.add_mutually_exclusive_group()
    size.add_argument(
        "--batch-size",
        type=values.whole(1, hint="for several sizes: --batch-sizes"),
        metavar="N",
        help="samples per step over all devices, or per request; chains in sampling",
    )
    size.add_argument("--batch-sizes", type=values.wholes, metavar="N,N,...", help="a run, and a result, for each size")
    add = group.add_argument
    add("--activation-checkpointing", action="store_true", help="compute blocks again in backward, to save memory")
    add(
        "--tune-kernels",
        action="store_true",
        help="GPUs of AMD: try every kernel (MIOpen, TunableOp) in the first steps",
    )
    add("--offload", action="store_true", help="keep what ranks divide in host memory, and update it there")
    add("--find-max-batch", action="store_true", help="find the largest batch that fits into memory, then run with it")
    add("--memory-limit", type=values.mebibytes, metavar="SIZE", help="of the workload's process: 512M, 4G; or MiB")
    add(
        "--concurrency",
        type=values.whole(1, 1024),
        metavar="N",
        help="inference or serving as N clients, each with one request at a time, to measure latency",
    )


def _add_division(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument_group("parallelism").add_argument
    add("--micro-batch-size", type=values.whole(1), metavar="N", help="samples computed at once; gradients accumulate")
    add(
        "--replicas",
        type=values.whole(1, 4096),
        default=1,
        metavar="N",
        help="copies of the model, each on its own device",
    )
    add(
        "--device-iterations",
        type=values.whole(1, 4096),
        metavar="N",
        help="batches per call (IPUs, and GPUs in TensorFlow); default: the workload's or 1",
    )
    add("--stages", type=values.whole(1, 256), default=1, metavar="N", help="stages of a pipeline, a device for each")
    add(
        "--virtual-stages",
        type=values.whole(1, 64),
        default=1,
        metavar="N",
        help="of each device of a pipeline, whose schedule is interleaved then (CPUs and GPUs)",
    )
    add(
        "--tensor",
        type=values.whole(1, 256),
        default=1,
        metavar="N",
        help="devices that divide each block, by heads and features (CPUs and GPUs)",
    )
    add(
        "--shards",
        type=values.shards,
        metavar="N|all",
        help="replicas that share one copy of what --strategy fsdp divides; default: those of a node",
    )
    add(
        "--strategy",
        choices=STRATEGIES,
        help="how replicas train together (default: ddp), or how the stages of IPUs take turns (default: pipelined)",
    )
    add(
        "--memory-proportion",
        type=values.fractions,
        metavar="FRACTION,...",
        help="of an IPU's memory, for what operations need while they run: of all stages, or of each; 0.15",
    )
    add("--io-tiles", type=values.whole(32, 192), metavar="N", help="tiles of an IPU that only exchange data")
    add(
        "--cpu-bind",
        choices=CPU_BINDINGS,
        default=CPU_BINDINGS[0],
        help="auto: several ranks get their share of the processors, or those near their device; none: as started",
    )
    add(
        "--rendezvous",
        type=values.rendezvous,
        metavar="HOST:PORT",
        help="where the tasks of a launch meet; default: its first host",
    )


def _add_data(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument_group("data").add_argument
    add(
        "--data",
        type=values.path,
        default="synthetic",
        metavar="PATH",
        help="class folders of images, tar shards, idx or TFRecord files, prepared text or speech; for sampling a "
        "table FILE.csv; default: synthetic",
    )
    add(
        "--data-workers",
        type=values.whole(0, 1024),
        metavar="N",
        help="processes (TensorFlow: threads) that read and decode; 0: the main process does",
    )


def _add_target(grammar: argparse.ArgumentParser) -> None:
    group = grammar.add_argument_group("train to a target")
    target = group.add_mutually_exclusive_group()
    target.add_argument("--target-accuracy", type=values.fraction, metavar="FRACTION", help="top-1: 0.759, or 75.9%%")
    target.add_argument("--target-loss", type=values.positive, metavar="LOSS", help="stop when the loss is this small")
    add = group.add_argument
    add("--evaluation-steps", type=values.whole(1), metavar="N", help="steps between evaluations; default: an epoch")
    add("--evaluation-data", type=values.path, metavar="PATH", help="default: the data of --data")


def _add_serving(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument_group("serving by an engine").add_argument
    add("--engine", choices=ENGINES, help="what batches the requests; default: vllm where it is, else transformers")
    add(
        "--rate",
        type=values.positive,
        metavar="PER_SECOND",
        help="requests due per second, whatever the engine does (an open loop); without it and --concurrency all are "
        "due at once",
    )
    add(
        "--arrivals",
        type=values.arrivals,
        metavar="KIND",
        help="of requests with --rate: poisson, constant, or gamma:SHAPE with less than 1 for bursts; default: poisson",
    )
    add(
        "--lengths",
        type=values.lengths,
        metavar="PROMPT/NEW",
        help="tokens of a prompt and its answer, each N or a range FROM-TO to draw from; default: 1024/128",
    )
    add(
        "--limits",
        type=values.limits,
        metavar="FIRST/NEXT",
        help="ms, of the 99th percentiles of the time to the first token and of the time per further token; default: "
        "those of MLPerf for the workload",
    )
    add("--find-goodput", action="store_true", help="find the largest rate that keeps the limits, then run with it")


def _add_meter(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument_group("power").add_argument
    add(
        "--meter",
        type=values.meter,
        default=meters.AUTO,
        metavar="NAME[:PLACE]",
        help=f"{', '.join(values.METERS)}. PLACE: a GPU's UUID, PCI address or number (nvml), a number (amd, hlml, "
        "intel), a socket (grace_hopper), the kernel's folder (rapl, hwmon), or a file (replay)",
    )
    add(
        "--meter-period",
        type=values.seconds_within(0.01, 10.0),  # above that, a RAPL counter may wrap unnoticed: it does in a minute
        default=0.1,
        metavar="SECONDS",
        help="time between readings; default: 0.1",
    )
    add(
        "--idle-seconds",
        type=values.seconds_within(0.0, 3600.0),
        metavar="SECONDS",
        help="measure idle power before the run for this long; default: 5, with --smoke 0",
    )


def _add_output(grammar: argparse.ArgumentParser) -> None:
    add = grammar.add_argument_group("output").add_argument
    add(
        "--output",
        metavar="PLACE",
        help="FILE.json; FILE.jsonl, to which lines are added; FOLDER/, with a file per result; or - for stdout; "
        "default: stdout, and on a terminal results/",
    )
    add(
        "--measured-peak",
        type=values.path,
        metavar="PATH",
        help="a result of matmul on this device, to compare the achieved operations with",
    )
    add("--site", metavar="NAME", help="name of this machine, kept in the result")
    add("--json", action="store_true", help="with --list and --describe: print JSON")


def _add_checks(grammar: argparse.ArgumentParser) -> None:
    grammar.add_argument_group("correctness").add_argument(
        "--skip-numerics", action="store_true", help="skip the correctness check before the run"
    )


def _add_verbs(grammar: argparse.ArgumentParser) -> None:
    verbs = grammar.add_argument_group("other actions").add_mutually_exclusive_group()
    for verb, text in {
        "check": "only check correctness, of the workload or of all; takes seconds to minutes",
        "describe": "show what would run",
        "prove": "try out a device from end to end, within --time-limit (20m), and write a page to --output (proof/)",
        "list": "list the workloads of this image",
        "version": "print the version of this image",
    }.items():
        verbs.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb, default="run", help=text)


def _unknown(word: str, grammar: argparse.ArgumentParser) -> UsageError:
    """Return the error for a word that is no option or one workload too many, with a suggestion."""
    if not word.startswith("-"):
        return UsageError(f"unexpected {word[:60]!r}", "name one workload, or run all of them with --all")
    import difflib  # here: only a mistyped option needs it

    name = word.partition("=")[0].replace("_", "-")
    options = [option for action in grammar._actions for option in action.option_strings]
    near = difflib.get_close_matches(name, options, n=1)
    remedy = f"did you mean {near[0]}?" if near else "see --help"
    return UsageError(f"no option {word[:60]}", remedy, "unknown-option")


def _exit_codes() -> str:
    """Return the table of exit codes, by number."""
    meanings = {USAGE_EXIT: ["wrong usage"], INVALID_RESULT_EXIT: ["the result is invalid or could not be written"]}
    meanings[UNPROVEN_EXIT] = ["with --prove: something failed"]
    for state, status in STATUSES.items():
        meanings.setdefault(status.exit_code, []).append(state)
    lines = [f"  {code:>3}  {', '.join(names)}" for code, names in sorted(meanings.items())]
    return "\n".join(["exit codes:", *(textwrap.fill(line, 80, subsequent_indent=" " * 7) for line in lines)])
