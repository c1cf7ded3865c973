"""Rules about the command line: what it asks for is what was configured, and nothing else was."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence, Tuple

from entrypoints.contract.choices import ALL, AUTO_MODE, COMPILE_MODES, NOT_COMPILED
from entrypoints.contract.statuses import UsageError
from entrypoints.planning import values
from entrypoints.planning.arguments import with_compile_modes
from entrypoints.rules.facts import Facts
from entrypoints.rules.identity import card_of
from entrypoints.rules.rule import differ, rule

FIRST_OPTIONS = ("1.0",)  # schemas of versions whose options may be others, with other defaults
SYNTHETIC = "synthetic"
FLAGS = (
    "all",
    "activation-checkpointing",
    "offload",
    "tune-kernels",
    "find-max-batch",
    "find-goodput",
    "smoke",
    "skip-numerics",
    "json",
)
OTHERS = (  # options with a value that is in another part, in another form, or in none
    *("task", "device", "compile", "data", "evaluation-data", "batch-size", "batch-sizes", "repeat", "site", "output"),
    *("target-accuracy", "target-loss", "evaluation-steps", "rendezvous", "measured-peak", "shards"),
    *("engine", "rate", "arrivals", "lengths", "limits"),
)


Comparison = Tuple[str, Tuple[Any, Any]]  # a field, what it has, and what the command line asks for


class Setting(NamedTuple):
    """An option whose value a result repeats: how it is read, where it is, and what is there without it."""

    read: Callable[[str], Any]
    field: str  # of `configuration`
    default: Any = ...  # an ellipsis: it follows from the card or the host


SETTINGS = {
    "precision": Setting(str.lower, "precision"),
    "fp8-scaling": Setting(str, "fp8_scaling"),
    "threads": Setting(int, "threads"),
    "seed": Setting(int, "seed", 0),
    "steps": Setting(int, "steps"),
    "duration": Setting(values.seconds, "duration_seconds", None),
    "epochs": Setting(int, "epochs", None),
    "warmup-steps": Setting(int, "warmup_steps"),
    "samples-per-epoch": Setting(int, "samples_per_epoch"),
    "time-limit": Setting(values.seconds, "time_limit_seconds", None),
    "memory-limit": Setting(values.mebibytes, "memory_limit_mib", None),
    "concurrency": Setting(int, "concurrency", None),
    "largest-size": Setting(values.size, "largest_size"),
    "micro-batch-size": Setting(int, "micro_batch_size"),
    "replicas": Setting(int, "replicas", 1),
    "device-iterations": Setting(int, "device_iterations"),
    "stages": Setting(int, "stages", 1),
    "virtual-stages": Setting(int, "virtual_stages", 1),
    "tensor": Setting(int, "tensor", 1),
    "strategy": Setting(str, "strategy"),
    "memory-proportion": Setting(lambda text: list(values.fractions(text)), "memory_proportion"),
    "io-tiles": Setting(int, "io_tiles", None),
    "cpu-bind": Setting(str, "cpu_bind", "auto"),
    "data-workers": Setting(int, "data_workers"),
    "meter": Setting(str, "meter", "auto"),
    "meter-period": Setting(values.seconds_within(0.01, 10.0), "meter_period_seconds", 0.1),
    "idle-seconds": Setting(values.seconds_within(0.0, 3600.0), "idle_seconds"),
}
# What the trials of a search have for themselves; a search without an answer ends with the document of its last trial.
OF_TRIALS = (
    *("steps", "duration_seconds", "warmup_steps", "samples_per_epoch", "meter", "idle_seconds"),
    *("memory_limit_mib", "batch_size", "micro_batch_size"),
)
IDLE_SECONDS, SMOKE_IDLE_SECONDS = 5.0, 0.0


class Command(NamedTuple):
    """The words of a command line, taken apart: values by option, and the workload."""

    options: Mapping[str, str | None]  # the last one of each; None for flags
    workload: str | None
    odd: Sequence[str]  # words that no run has


def taken_apart(words: Sequence[str]) -> Command:
    """Return the parts of a command line. `argparse` would take longer than all rules together."""
    options: dict[str, str | None] = {}
    places, odd = [], []
    rest = iter(with_compile_modes(words))
    for word in rest:
        name, equals, value = word[2:].partition("=")
        if not word.startswith("--"):
            places.append(word)
        elif name in FLAGS and not equals:
            options[name] = None
        elif name in SETTINGS or name in OTHERS:
            text = value if equals else next(rest, None)
            options[name] = text
            odd += [] if text is not None else [word]
        elif word != "--":
            odd.append(word)
    return Command(options, places[0] if places else None, [*odd, *places[1:]])


@rule(
    "each option in `provenance.command` has its value in `configuration`, `workload`, `search`, `target` or `site`; "
    "what only an option sets is there",
    "The command line is how a run is repeated.",
)
def command_is_what_was_configured(facts: Facts) -> Iterator[str]:
    """Take the command line apart, and compare it in both directions."""
    command = taken_apart(facts.document["provenance"]["command"])
    same_options = facts.document["schema_version"] not in FIRST_OPTIONS
    if same_options:
        for word in command.odd[:1]:
            yield f"provenance.command: no run has {word[:60]!r}"
    try:
        expected = dict(_expected(command, facts, same_options))
    except (ValueError, UsageError) as error:
        yield f"provenance.command: {error}"
        return
    for field, (value, wanted) in expected.items():
        if value != wanted:
            yield differ(field, value, wanted, "provenance.command")


def _expected(command: Command, facts: Facts, same_options: bool) -> Iterator[Comparison]:
    """Yield fields, with what they have and what they should have."""
    given, options, document = facts.configuration, command.options, facts.document
    of_trial = OF_TRIALS if facts.is_trial else ()
    for name, setting in SETTINGS.items():
        if setting.field in of_trial or (name == "concurrency" and facts.served):
            continue
        text, field = options.get(name), f"configuration.{setting.field}"
        if text is not None:
            yield field, (given.get(setting.field), setting.read(text))
        elif same_options and setting.default is not ... and not (name == "memory-limit" and document["search"]):
            yield (
                field,
                (given.get(setting.field, setting.default), setting.default),
            )  # a search sets the limit of its run
    yield from _flags(options, facts, of_trial, same_options)
    yield from _names(command, facts, same_options)
    yield from _batch(options, facts)
    asked = values.shards(options.get("shards") or "") if "shards" in options else None
    yield "configuration.shards", (given.get("shards"), given["replicas"] if asked == ALL else asked)
    yield from _goal(options, facts)
    yield from _load(options, facts)


def _load(options: Mapping[str, str | None], facts: Facts) -> Iterator[Comparison]:
    """Yield the load on an engine, as far as options say it."""
    read: Mapping[str, tuple[str, Callable[[str], Any]]] = {
        "engine": ("engine", str),
        "rate": ("rate", values.positive),
        "concurrency": ("concurrency", int),
        "arrivals": ("arrivals", lambda text: values.arrivals(text)[0]),
    }
    served = facts.served
    if served is None:
        asked = [name for name in ("engine", "rate", "arrivals", "lengths", "limits") if name in options]
        yield "configuration.serving", (None, asked[0] if asked else None)
        return
    for name, (field, parse) in read.items():
        text = options.get(name)
        if text is not None or name in ("rate", "concurrency"):
            yield f"configuration.serving.{field}", (served[field], None if text is None else parse(text))
    if (text := options.get("lengths")) is not None:
        given = [list(served["prompt_lengths"]), list(served["answer_lengths"])]
        yield "configuration.serving.prompt_lengths", (given, list(map(list, values.lengths(text))))
    if (text := options.get("limits")) is not None:
        given = [served["first_token_limit"], served["token_limit"]]
        yield "configuration.serving.first_token_limit", (given, list(values.limits(text)))
    yield "configuration.serving.find_goodput", (served["find_goodput"], "find-goodput" in options)


def _flags(
    options: Mapping[str, str | None], facts: Facts, of_trial: Sequence[str], same_options: bool
) -> Iterator[Comparison]:
    given, smoke = facts.configuration, "smoke" in options
    if options.get("compile") is not None or not given.get("chosen_for"):  # else the card may say how
        yield "configuration.compile", _compiled(given["compile"], options.get("compile"))
    recomputed = given.get("activation_checkpointing", False)  # schema 1.0 has none
    yield "configuration.activation_checkpointing", (recomputed, "activation-checkpointing" in options)
    yield "configuration.offload", (given.get("offload", False), "offload" in options)
    yield "configuration.tune_kernels", (given.get("tune_kernels", False), "tune-kernels" in options)
    yield "configuration.smoke", (given["smoke"], smoke)
    yield "configuration.probe_numerics", (given["probe_numerics"], not smoke and "skip-numerics" not in options)
    yield "search", (facts.document["search"] is not None, "find-max-batch" in options)
    if same_options and "idle-seconds" not in options and "idle_seconds" not in of_trial:
        idle = SMOKE_IDLE_SECONDS if smoke else IDLE_SECONDS
        yield "configuration.idle_seconds", (given["idle_seconds"], idle)
    device = options.get("device")
    if device not in (None, "auto"):
        yield "configuration.device", (given["device"], device)


def _compiled(mode: str | bool | None, asked: str | None) -> tuple[Any, Any]:
    """Return a mode and the one that was asked for. That of `auto` is one of them; older results only have true."""
    if asked in (None, NOT_COMPILED):
        return mode or None, None
    chosen = mode is True or (asked == AUTO_MODE and mode in COMPILE_MODES and mode != AUTO_MODE)
    return mode, mode if chosen else asked


def _names(command: Command, facts: Facts, same_options: bool) -> Iterator[Comparison]:
    options, given, workload = command.options, facts.configuration, facts.document["workload"]
    if command.workload is not None:  # else the image's name says it, or there are several
        yield "workload.name", (workload["name"], command.workload)
    card, task = card_of(facts), options.get("task")
    if task is not None:
        yield "workload.task", (facts.task, values.task(task))
    elif card is not None:
        yield "workload.task", (facts.task, card.tasks[0])
    yield "site", (facts.document["site"], options.get("site"))
    data, evaluation = options.get("data") or SYNTHETIC, options.get("evaluation-data")
    yield "configuration.data", (given["data"] == SYNTHETIC, data == SYNTHETIC)
    if same_options:
        yield "configuration.measured_peak", (given.get("measured_peak") is not None, "measured-peak" in options)
        yield "configuration.evaluation_path", (given["evaluation_path"] is not None, evaluation is not None)
    if not facts.is_trial:
        yield "configuration.repeat.of", (given["repeat"]["of"], int(options.get("repeat") or 1))


def _batch(options: Mapping[str, str | None], facts: Facts) -> Iterator[Comparison]:
    search, size, sizes = facts.document["search"], options.get("batch-size"), options.get("batch-sizes")
    if search is not None:
        if search["trials"]:
            yield "search.trials.0.batch_size", (search["trials"][0]["batch_size"], int(size or 1))
    elif size is not None:
        yield "configuration.batch_size", (facts.configuration["batch_size"], int(size))
    elif sizes is not None:
        yield "configuration.batch_size", (facts.configuration["batch_size"] in values.wholes(sizes), True)


def _goal(options: Mapping[str, str | None], facts: Facts) -> Iterator[Comparison]:
    goal = facts.configuration["goal"] or {}
    read = {"accuracy": values.fraction, "loss": values.positive}
    asked = {metric: options.get(f"target-{metric}") for metric in read}
    targets = {metric: read[metric](text) for metric, text in asked.items() if text is not None}
    yield "configuration.goal", ({goal["metric"]: goal["value"]} if goal else {}, targets)
    every = options.get("evaluation-steps")
    if every is not None:
        yield "configuration.goal.evaluation_steps", (goal.get("evaluation_steps"), int(every))
