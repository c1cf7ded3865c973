"""One experiment on the device that is here, in a process of its own; started by device.py, whose README says more.

    on_device.py defaults WORKLOAD TASK DEVICE SECONDS WINDOW [OPTION...]
    on_device.py kernels WORKLOAD TASK DEVICE [OPTION...]
    on_device.py matmul PRECISION DEVICE WINDOW LARGEST
    on_device.py attention PRECISION DEVICE TOKENS WORKLOAD...
    on_device.py check PRECISION DEVICE SECONDS WORKLOAD...
    on_device.py images DEVICE WINDOW
    on_device.py strategies WORKLOAD DEVICE PRECISION BATCH STEPS WARMUP SECONDS
    on_device.py rank STRATEGY WORKLOAD DEVICE PRECISION BATCH STEPS WARMUP

SECONDS are those after which it will be killed, WINDOW those of each timed window. It prints what it knows as soon as
it does, a JSON object a line with `figures`, `settings` or `tables`; a later line replaces figures of the same name.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from entrypoints.contract import cards
from entrypoints.contract.group import ALONE, Parallelism
from entrypoints.contract.messages import Phase, Scheduled
from entrypoints.contract.points import MATMUL, Point
from entrypoints.contract.session import BatchPartition, rule_of
from entrypoints.metering.meter import Absence
from entrypoints.metering.sampling import Sampler
from entrypoints.metering.selection import open_meter
from entrypoints.planning import arguments, plan
from entrypoints.system import host
from entrypoints.worker import point_loop

MAIN = str(Path(__file__).resolve().parent.parent / "entrypoints" / "main.py")
PLAIN = str(Path(__file__).resolve().parent / "plain.py")
BLOCKS = 3  # parts of a timed window, whose throughputs show how far it spreads
ROUNDS = 3  # of a comparison within a process
AT_ONCE = {"cuda": 4}  # correctness checks, of which none is timed
MOST_KERNELS = 25  # rows of a table
NONE = "none"
KEPT = ("precision", "compile", "batch_size", "micro_batch_size", "gradient_accumulation", "warmup_steps")
METRICS = ("fraction_of_bound", "power_mean", "energy_per_unit", "peak_allocated_memory", "time_to_first_step")
DECODED = 64  # images of a batch

Json = dict[str, Any]


def tell(**parts: Any) -> None:
    """Print what is known now."""
    print(json.dumps(parts), flush=True)


def figure(values: Sequence[float], unit: str) -> Json:
    """Return the median of values, and how far they spread."""
    median, least, most = statistics.median(values), min(values), max(values)
    return {"value": median, "unit": unit, "least": least, "most": most, "count": len(values)}


def started(argv: Sequence[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of this checkout by this Python; it is killed after some seconds, which raises TimeoutExpired."""
    command = [sys.executable, "-s", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


def required(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a program printed. Raises RuntimeError, with its last words, if it failed."""
    if done.returncode:
        raise RuntimeError("\n".join(done.stderr.strip().splitlines()[-3:]) or f"exit code {done.returncode}")
    return done.stdout


def defaults(workload: str, task: str, device: str, seconds: str, window: str, *options: str) -> None:
    """Compare a workload with a tuned plain loop: ours, plain, and ours once more if there is time.

    A throughput is told for each part of a timed window, and a ratio for each pair of parts of both sides.
    """
    deadline = time.monotonic() + float(seconds)
    words = [MAIN, workload, "--task", task, "--device", device, *options, "--duration", window]
    words += ["--skip-numerics", "--idle-seconds", "0"]
    document = json.loads(required(started(words)))
    ours, per_sample, unit = rates(document)
    configuration = document["configuration"]
    settings = {name: configuration[name] for name in KEPT} | {"execution": document["accelerator"]["execution"]}
    settings["attention_trials"] = (document["accelerator"]["backends"] or {}).get("attention_trials")
    figures: Json = {"throughput": figure(ours, unit)}
    for name in METRICS:
        metric = document["metrics"].get(name, {"value": None, "reason": "its kind of run has none"})
        figures[name] = {key: metric.get(key) for key in ("value", "unit", "reason") if key in metric}
    tell(settings=settings, figures=figures)
    try:
        plain = [rate * per_sample for rate in plain_rates((workload, task), configuration, device, window)]
    except RuntimeError as error:
        tell(figures={"plain": {"value": None, "unit": unit, "reason": str(error)}})
        return
    tell(figures=compared(ours, plain, unit))
    with contextlib.suppress(subprocess.TimeoutExpired):  # what is known is told
        again = started(words, deadline - time.monotonic() - 1)
        more, _, _ = rates(json.loads(required(again)))
        tell(figures=compared(ours + more, plain, unit))


def compared(ours: Sequence[float], plain: Sequence[float], unit: str) -> Json:
    """Return both throughputs and their ratio: above 1 ours is faster."""
    ratios = [rate / other for rate in ours for other in plain]
    return {"throughput": figure(ours, unit), "plain": figure(plain, unit), "over_plain": figure(ratios, "1")}


def rates(document: Json) -> tuple[list[float], float, str]:
    """Return the throughputs of the parts of a timed window, how many units a sample has, and their unit.

    Models that say the next token are told in tokens. Raises RuntimeError if the run did not complete.
    """
    status, metrics, steps = document["status"], document["metrics"], document["steps"]
    if status["state"] != "completed":
        raise RuntimeError(f"{status['state']}: {status['message']}")
    head = cards.load()[document["workload"]["name"]].problem["model"].get("head", {})
    whole = metrics["token_throughput" if head.get("kind") == "next_token" else "throughput"]
    seconds = steps["seconds"][steps["untimed"] :]
    in_step = whole["value"] * statistics.fmean(seconds)
    size = -(-len(seconds) // min(BLOCKS, len(seconds)))
    blocks = [seconds[start : start + size] for start in range(0, len(seconds), size)]
    samples = document["configuration"]["batch_size"]
    return [in_step * len(block) / sum(block) for block in blocks], in_step / samples, whole["unit"]


def plain_rates(what: Sequence[str], configuration: Json, device: str, window: str) -> list[float]:
    """Return samples/s of each part of a timed window of the tuned plain loop. Raises RuntimeError if it failed."""
    size = configuration["batch_size"]
    words = [*what, configuration["precision"], str(size), window]
    words += [str(configuration["threads"]), "--device", device, "--tuned", "--windows", str(BLOCKS)]
    words += ["--warmup-steps", str(configuration["warmup_steps"])]
    words += ["--compile"] if device == "cuda" or configuration["compile"] else []
    if configuration["gradient_accumulation"] > 1:
        words += ["--micro-batch-size", str(configuration["micro_batch_size"])]
    answer = json.loads(required(started([PLAIN, *words])))
    return [steps * size / seconds for steps, seconds in answer["parts"]]


class Profiled:
    """Takes the messages of a run in this process, and profiles its timed window."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.profiler: Any = None
        self.began = self.seconds = 0.0

    def __call__(self, message: Any) -> None:
        """Begin where the timed window begins, and end where it ends."""
        if isinstance(message, Phase) and message.name == "steady":
            from torch.profiler import ProfilerActivity, profile  # late: the run imports the framework first

            gpu = self.device != "cpu"
            self.profiler = profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU])
            self.profiler.start()
            self.began = time.monotonic()
        elif isinstance(message, Scheduled):
            self.profiler.stop()
            self.seconds = message.at - self.began

    def kernels(self) -> Iterator[tuple[str, int, float]]:
        """Yield name, calls and microseconds of each kernel, or on a CPU of each operation."""
        for event in self.profiler.key_averages():
            if self.device == "cpu":
                yield event.key, event.count, event.self_cpu_time_total
            elif event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False):
                yield event.key, event.count, event.self_device_time_total


def kernels(workload: str, task: str, device: str, *options: str) -> None:
    """Tell which kernels a step of a workload takes, the longest first."""
    from entrypoints.worker import child

    words = [workload, "--task", task, "--device", device, "--skip-numerics", *options]
    (configuration,) = plan.plan(arguments.parse(words), cards.load()[workload], None)
    profiled = Profiled(device)
    with contextlib.ExitStack() as cleanup:
        child.run(configuration, ALONE, profiled, cleanup)  # type: ignore[arg-type]
    steps = (configuration.steps or 0) - configuration.warmup_steps
    rows = sorted(profiled.kernels(), key=lambda row: -row[2])
    total = sum(microseconds for _, _, microseconds in rows)
    table = [
        {"kernel": name[:200], "calls_per_step": calls / steps, "ms_per_step": us / steps / 1e3, "share": us / total}
        for name, calls, us in rows[:MOST_KERNELS]
    ]
    figures = {
        "step": {"value": profiled.seconds / steps * 1e3, "unit": "ms", "count": steps},
        "in_kernels": {"value": total / steps / 1e3, "unit": "ms"},
        "kernels_per_step": {"value": sum(calls for _, calls, _ in rows) / steps, "unit": "1"},
    }
    settings = {name: configuration.as_json()[name] for name in KEPT}
    tell(settings=settings, figures=figures, tables={"kernels": table})


def matmul(precision: str, device: str, window: str, largest: str) -> None:
    """Compare the micro-benchmark's products of normally distributed numbers with those of small whole numbers.

    Each size has rounds of a window of each kind, in turn, of which the first warms up.
    """
    import torch

    from entrypoints.workloads.pytorch import kernels as operations

    class Whole(operations.MatrixProducts):
        """Products of the numbers by which results are verified."""

        def fill(self, number: int) -> None:
            """Write both factors."""
            self.write_pattern(number)

    module = importlib.import_module(f"entrypoints.devices.pytorch.{device}")
    module.prepare(precision, host.usable_cores())
    given = cards.load()[MATMUL].problem["input"]
    sizes = [size for size in given["sizes"] if size <= int(largest)]
    points = [Point(MATMUL, size, point_loop.calls_of(given["calls"], 2 * size**3)) for size in sizes]
    dtype = getattr(torch, given["elements"][precision])
    kinds = {"whole": Whole, "normal": operations.MatrixProducts}
    sides = {name: kind(points, torch.device(device), dtype) for name, kind in kinds.items()}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    meter = Power(device)
    tell(settings={"precision": precision, "meter": meter.source})
    for number, size in enumerate(sizes):
        rounds: dict[str, list[tuple[float, float | None]]] = {name: [] for name in sides}
        for turn in range(1 + ROUNDS):
            for name, side in list(sides.items())[:: 1 if turn % 2 else -1]:
                side.fill(number)
                done = meter.over(partial(products, side, number, points[number], float(window), wait))
                if turn:
                    rounds[name].append(done)
        tell(figures=dict(_of_operands(size, rounds)))


def _of_operands(size: int, rounds: Mapping[str, Sequence[tuple[float, float | None]]]) -> Iterator[tuple[str, Json]]:
    """Yield the figures of a size: FLOP/s and power of each kind of operands, and their ratio."""
    speeds = {name: [flops for flops, _ in each] for name, each in rounds.items()}
    for name, each in rounds.items():
        yield f"{name}_{size}", figure(speeds[name], "FLOP/s")
        watts = [power for _, power in each if power is not None]
        if watts:
            yield f"{name}_{size}_power", figure(watts, "W")
    pairs = zip(speeds["normal"], speeds["whole"], strict=True)
    yield f"normal_over_whole_{size}", figure([normal / whole for normal, whole in pairs], "1")


def products(side: Any, number: int, point: Point, window: float, wait: Callable[[], None]) -> float:
    """Return the FLOP/s of matrix products, in a window of seconds."""
    wait()
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < window:
        for _ in range(point.calls):
            side.call(number)
        wait()
        calls += point.calls
    return calls * point.work / (time.perf_counter() - began)


class Power:
    """Mean power over a window, if a meter answers."""

    def __init__(self, device: str) -> None:
        opened = open_meter("auto", device)
        self.meter = None if isinstance(opened, Absence) else opened
        self.source = opened.reason if isinstance(opened, Absence) else opened.facts.source

    def over(self, measured: Callable[[], float]) -> tuple[float, float | None]:
        """Return what a measurement returns, and the mean power in W of its second half; None without a meter."""
        if self.meter is None:
            return measured(), None
        sampler = Sampler(self.meter, 0.02)
        with sampler.running():
            value = measured()
        watts = [statistics.fmean(column[len(column) // 2 :]) for column in sampler.recording().watts if len(column)]
        return value, sum(watts) if watts else None


def attention(precision: str, device: str, tokens: str, *workloads: str) -> None:
    """Compare the kernels that can compute the attention of a layer of workloads, forward and backward.

    Rounds of calls of each kernel in turn, of which the first warms up, for so many tokens in texts of the workload.
    """
    import torch

    from entrypoints.devices.pytorch.shared import attention as choice
    from entrypoints.workloads.pytorch.transformer import SelfAttention

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    dtype, hardware = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision], torch.device(device)
    tell(settings={"precision": precision, "tokens": int(tokens)})
    for workload in workloads:
        problem = cards.load()[workload].problem
        length = problem["input"]["length"]
        layer = SelfAttention(problem["model"]).to(hardware)
        call = choice.trial(layer, max(int(tokens) // length, 1), length, not layer.causal, hardware, dtype)
        rounds: dict[str, list[float]] = {}
        for turn in range(1 + ROUNDS):
            measured = choice.seconds_of_kernels(call, partial(seconds_of_call, wait))
            for name, seconds in measured.items() if turn else ():
                rounds.setdefault(name, []).append(1e3 * seconds)
        tell(figures={f"{workload}_{name}": figure(each, "ms") for name, each in rounds.items()})


def seconds_of_call(wait: Callable[[], None], call: Callable[[], Any], calls: int = 10) -> float:
    """Return the seconds of a call, of which several are timed together after one that is not."""
    call()
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - began) / calls


def check(precision: str, device: str, seconds: str, *workloads: str) -> None:
    """Run the correctness check of workloads in a precision, several at a time on a GPU."""
    deadline = time.monotonic() + float(seconds) - 2
    table: list[Json] = []
    with ThreadPoolExecutor(AT_ONCE.get(device, 1)) as pool:
        pending = [pool.submit(_checked, name, precision, device, deadline) for name in workloads]
        for each in as_completed(pending):
            table.append(each.result())
            states = [row["state"] for row in table]
            figures = {state: {"value": states.count(state), "unit": "workloads"} for state in sorted(set(states))}
            tell(figures=figures, tables={"checks": table})
    late = [row["workload"] for row in table if row["state"] == "not_run"]
    if late:
        tell(unfinished=f"no time was left for {', '.join(late)}")


def _checked(workload: str, precision: str, device: str, deadline: float) -> Json:
    """Return how the check of a workload went, by its exit code, and its own words."""
    try:
        left = deadline - time.monotonic()
        words = [MAIN, workload, "--check", "--device", device, "--precision", precision]
        done = started(words, max(left, 0.001))
    except subprocess.TimeoutExpired:
        return {"workload": workload, "state": "not_run", "text": "no time was left"}
    said = next((line for line in done.stderr.splitlines() if "check of" in line), done.stderr[-300:].strip())
    state = {0: "passed", 3: "unsupported"}.get(done.returncode, "failed")
    return {"workload": workload, "state": state, "text": said.removeprefix("sifmark: ")}


def images(device: str, window: str) -> None:
    """Compare DALI on the device with Pillow on one processor: JPEGs of ILSVRC's size, decoded and cut for training."""
    import images as jpegs
    import numpy as np

    from entrypoints.data.images import decoding

    rule, contents = (
        cards.load()["resnet50"].problem["input"],
        [jpegs.photograph((500, 375), seed) for seed in range(8)],
    )
    contents *= DECODED // len(contents)

    def pillow() -> None:
        for seed, content in enumerate(contents):
            decoding.pixels_of_file(content, rule, "training", np.random.default_rng(seed))

    tell(figures={"pillow": figure(_batches(pillow, float(window)), "images/s")})
    try:
        dali = jpegs.Dali(contents, "training", device)
    except ImportError as error:
        tell(figures={"dali": {"value": None, "unit": "images/s", "reason": str(error)}})
        return
    tell(figures={"dali": figure(_batches(dali.batch, float(window)), "images/s")})


def _batches(make: Callable[[], object], window: float) -> list[float]:
    """Return the images per second in each part of a window, after a batch to warm up."""
    make()
    rates = []
    for _ in range(BLOCKS):
        began, count = time.perf_counter(), 0
        while not count or time.perf_counter() - began < window / BLOCKS:
            make()
            count += DECODED
        rates.append(count / (time.perf_counter() - began))
    return rates


def strategies(
    workload: str, device: str, precision: str, batch: str, steps: str, warmup: str, seconds: str, *named: str
) -> None:
    """Compare the strategies of one rank with none at all: what hooks, copies and collectives cost, if nothing is sent.

    Rounds go on while there is time for another as long as the longest so far.
    """
    deadline, longest = time.monotonic() + float(seconds) - 2, 0.0
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name need not resolve
    steps_of: dict[str, list[float]] = {name: [] for name in (NONE, *named)}
    memory_of: dict[str, float] = {}
    tell(settings={"workload": workload, "precision": precision, "batch_size": int(batch), "steps": int(steps)})
    for turn in range(ROUNDS):
        began = time.monotonic()
        if began + longest > deadline:
            break
        for name in list(steps_of)[:: -1 if turn % 2 else 1]:
            words = [__file__, "rank", name, workload, device, precision, batch, steps, warmup]
            answer = json.loads(required(started(words)))
            steps_of[name].append(statistics.median(answer["seconds"]))
            if not isinstance(answer["memory"], str):
                memory_of[name] = answer["memory"]
        tell(figures=_of_strategies(steps_of, memory_of))
        longest = max(longest, time.monotonic() - began)


def _of_strategies(steps_of: Mapping[str, Sequence[float]], memory_of: Mapping[str, float]) -> Json:
    figures = {"step_none": figure([1e3 * seconds for seconds in steps_of[NONE]], "ms")}
    for name, seconds in steps_of.items():
        if name != NONE:
            ratios = [ours / none for ours, none in zip(seconds, steps_of[NONE], strict=True)]
            figures[f"step_{name}_over_none"] = figure(ratios, "1")
    figures |= {f"memory_{name}": {"value": mib, "unit": "MiB"} for name, mib in memory_of.items()}
    return figures


def rank(strategy: str, workload: str, kind: str, precision: str, *numbers: str) -> None:
    """Train as the only member of a group, or without one, and print seconds of the timed steps, and memory in MiB.

    Each step ends when its loss is on the host.
    """
    from entrypoints.devices.pytorch.strategies import group
    from entrypoints.workloads.pytorch import build, loader

    batch_size, steps, warmup = map(int, numbers)
    device = importlib.import_module(f"entrypoints.devices.pytorch.{kind}")
    device.prepare(precision, host.usable_cores())
    joined = {} if strategy == NONE else {"group": group.join(ALONE, kind, Parallelism(strategy), lambda _: None)}
    card = cards.load()[workload]
    rule, model = rule_of(card.problem, batch_size), build.model(card, 0)
    session = device.open_session(model, rule, precision, None, BatchPartition(batch_size), **joined)
    batch = session.to_device(loader.synthetic_batch(card, batch_size, 0))
    seconds, last = [], time.perf_counter()
    for _ in range(steps):
        loss = session.train(batch).loss
        assert loss is not None
        loss()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    print(json.dumps({"seconds": seconds[warmup:], "memory": session.usage().peak_allocated}))
    session.close()
    for each in joined.values():
        each.close()


EXPERIMENTS: Mapping[str, Callable[..., None]] = {
    "defaults": defaults,
    "kernels": kernels,
    "matmul": matmul,
    "attention": attention,
    "check": check,
    "images": images,
    "strategies": strategies,
    "rank": rank,
}

if __name__ == "__main__":
    EXPERIMENTS[sys.argv[1]](*sys.argv[2:])
