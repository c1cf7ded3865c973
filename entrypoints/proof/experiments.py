"""The experiments of a proof: runs of the program, and what each of them is to show."""

from __future__ import annotations

from typing import Iterator, Mapping, NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.points import HOST_DEVICE
from entrypoints.proof import judges
from entrypoints.proof.finding import NOT_RUN, Finding
from entrypoints.proof.judges import Judge, judged

# The precisions that a kind of device may have beside fp32, which each correctness check computes first.
PRECISIONS: Mapping[str, Sequence[str]] = {
    "cpu": ("bf16",),
    "cuda": ("bf16", "tf32", "fp16"),
    "xpu": ("bf16", "fp16"),
    "hpu": ("bf16",),
    "ipu": ("fp16",),
}
FOCUS = {"cpu": "lstm"}  # what experiments of the device itself run: small on a CPU, elsewhere enough to keep it busy
ELSEWHERE = "resnet50"
CLIENTS = 4
OPERATIONS = ("matmul", "memory_copy", HOST_DEVICE)
MEMORY = {"cpu": "2G"}  # within which the largest batch is looked for: a device has its own
FAST = ("--skip-numerics", "--idle-seconds", "0")


class Lengths(NamedTuple):
    """How long experiments are, in seconds."""

    busy: float  # timed, for sampled power
    short: float  # timed, for a throughput
    limit: float  # of the run that is to be stopped

    @classmethod
    def within(cls, total: float) -> Lengths:
        """Return the lengths for a proof of so many seconds: those of 20 minutes, or less."""
        return cls(_between(1.0, total / 100, 12.0), _between(1.0, total / 200, 6.0), _between(3.0, total / 30, 20.0))


class Experiment(NamedTuple):
    """Runs of the program one after the other, and what they show."""

    name: str  # of its files
    runs: tuple[tuple[str, ...], ...]  # the words of each
    judges: tuple[Judge, ...]
    seconds: float  # that each run may take at most


def focus_of(device: str, cards: Mapping[str, Card]) -> Card:
    """Return the workload that experiments of the device itself run: of one that cannot compute it, the smallest."""
    trained = {name: card for name, card in cards.items() if "training" in card.tasks}
    preferred = trained.get(FOCUS.get(device, ELSEWHERE))
    return preferred or min(trained.values(), key=lambda card: int(card.problem["parameters"]))


def first(focus: Card, device: str) -> Experiment:
    """Return the experiment that shows whether there is a device at all."""
    return _experiment("device", "device", focus.name, judges.device, _on(device, focus.name, "--smoke"), seconds=300)


def of_device(focus: Card, device: str, cards: Mapping[str, Card], lengths: Lengths) -> Iterator[Experiment]:
    """Yield the experiments of the device itself, the shortest first."""
    name = focus.name
    long = _on(device, name, "--skip-numerics", "--duration", f"{lengths.busy:g}")
    yield Experiment("busy", (long,), (judged("time", name, judges.time), judged("energy", name, judges.energy)), 240)
    compiled = _on(device, name, *FAST, "--compile", "--steps", "30", "--warmup-steps", "5")
    yield _experiment("compiled", "graphs", name, judges.graphs, compiled, seconds=300)
    for card in cards.values():
        if card.name in OPERATIONS and not (device == "cpu" and card.name == HOST_DEVICE):
            yield from _of_operation(card, device)
    repeats = _on(device, name, *FAST, "--repeat", "3", "--duration", f"{lengths.busy:g}")
    yield _experiment("repeats", "repeatability", name, judges.repeatability, repeats, seconds=300)
    if "inference" in focus.tasks and "generation" not in focus.problem:
        clients = [
            _on(
                device,
                name,
                *FAST,
                "--task",
                "inference",
                "--concurrency",
                str(count),
                "--duration",
                f"{lengths.short:g}",
            )
            for count in (1, CLIENTS)
        ]
        yield Experiment("clients", tuple(clients), (judged("streams", name, judges.streams),), 120)
    stopped = _on(device, name, *FAST, "--steps", "100000000")
    yield Experiment("limit", (stopped,), (judged("limit", name, judges.limit, completed=False),), lengths.limit)
    within = ("--memory-limit", MEMORY[device]) if device in MEMORY else ()
    largest = _on(device, name, *FAST, "--find-max-batch", "--steps", "4", "--warmup-steps", "1", *within)
    yield Experiment("memory", (largest,), (judged("memory", name, judges.memory, completed=False),), 300)


def of_workload(card: Card, task: str, device: str, lengths: Lengths) -> Experiment:
    """Return the experiment of a workload in its defaults."""
    words = _on(device, card.name, *FAST, "--task", task, "--duration", f"{lengths.short:g}")
    subject = f"{card.name} {task}"
    return _experiment(f"{card.name}-{task}", "throughput", subject, judges.throughput, words, seconds=180)


def not_made(experiment: Experiment, why: str) -> Iterator[Finding]:
    """Yield what an experiment leaves open that was not made."""
    for judge in experiment.judges:
        yield judge(())._replace(state=NOT_RUN, text=why)


def _of_operation(card: Card, device: str) -> Iterator[Experiment]:
    if card.name != "matmul":
        words = _on(device, card.name)
        yield _experiment(card.name, "bandwidth", card.name, judges.bandwidth, words, seconds=180)
        return
    for precision in ("fp32", *PRECISIONS.get(device, ())):
        words = _on(device, card.name, "--precision", precision)
        yield _experiment(f"matmul-{precision}", "arithmetic", precision, judges.arithmetic, words, seconds=120)


def _experiment(
    name: str, claim: str, subject: str, judge: judges.Question, words: tuple[str, ...], seconds: float
) -> Experiment:
    return Experiment(name, (words,), (judged(claim, subject, judge),), seconds)


def _on(device: str, *words: str) -> tuple[str, ...]:
    return (*words, "--device", device)


def _between(least: float, value: float, most: float) -> float:
    return max(least, min(value, most))
