"""The most of a few minutes with a device: experiments in the order of their value. README.md has more.

Run it by the Python that has PyTorch: it needs nothing else than that and jsonschema, and no network.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from entrypoints.contract import cards
from entrypoints.contract.points import MATMUL, MICROBENCHMARK
from entrypoints.metering import present_device
from entrypoints.metering.meter import MeterError
from entrypoints.metering.nvidia.conditions import conditions
from entrypoints.runs.output import draft_file, indented_text
from entrypoints.system import host

CHECKOUT = Path(__file__).resolve().parent.parent
KEPT = CHECKOUT / "measured"  # results that are in the repository
ON_DEVICE = CHECKOUT / "benchmarks" / "on_device.py"
RESERVE = 2.0  # seconds at the end, to write and to leave
SOFTWARE = ("torch", "triton", "torchvision", "transformers")
COMPLETED, UNFINISHED, KILLED, FAILED = "completed", "unfinished", "killed", "failed"
LAST_WORDS = 5  # lines of a failed experiment
# What decides no figure, and the parts of other frameworks and devices.
ELSEWHERE = ("tensorflow", "proof", "rules", "cli", "graphcore", "xpu.py", "hpu.py", "ipu.py", "amd", "amd.py")
ENGINE = "entrypoints/**/*.py"
SUPPORT = ("tests/inside/support/of_transformers.py", "tests/inside/support/written*.py")
PRECISIONS = {"cuda": ("bf16", "fp16", "tf32", "fp32"), "cpu": ("fp32",)}
PATIENCE = {"cuda": 1, "cpu": 10}  # times the seconds that an experiment may take: nobody waits for a CPU
WINDOW = {"cuda": 4.0, "cpu": 0.3}  # seconds that a throughput is timed for
OPERANDS = {"cuda": (0.5, 1 << 20), "cpu": (0.05, 512)}  # seconds of a window of matrix products, and the largest size
OF_KERNELS = {"cuda": ("--warmup-steps", "5", "--steps", "8"), "cpu": ("--warmup-steps", "1", "--steps", "3")}
# Tokens in texts of a workload whose attention is computed at once, and the workloads.
ATTENTION = {"cuda": ("16384", "gpt_117m", "gpt_800m", "bert_large_pretraining_128"), "cpu": ("256", "gpt_117m")}
KERNELS_OF_ATTENTION = (
    "entrypoints/devices/pytorch/shared/attention.py",
    "entrypoints/workloads/pytorch/transformer.py",
)
# Of strategies: workload, precision, batch, steps and how many of them are warm-up.
STRATEGIES = {"cuda": ("gpt2_medium", "cuda", "bf16", "16", "30", "10"), "cpu": ("lstm", "cpu", "fp32", "8", "6", "2")}

Json = dict[str, Any]


class Workload(NamedTuple):
    """A workload in its defaults, the seconds it may take with its plain loop, and what a small device is spared."""

    name: str
    task: str
    seconds: float
    options: tuple[str, ...] = ()


# On a CPU the smallest of each kind, and small: to see that the experiments work.
SMALL = ("--batch-size", "2", "--warmup-steps", "1")
WORKLOADS = {
    "cuda": (
        Workload("resnet50", "training", 80, ("--warmup-steps", "10")),
        Workload("gpt_117m", "training", 80, ("--warmup-steps", "10")),
        Workload("bert_large_pretraining_128", "training", 90, ("--warmup-steps", "10")),
        Workload("gpt_800m", "training", 100, ("--warmup-steps", "5")),
        Workload("resnext101_32x4d", "inference", 70, ("--warmup-steps", "10")),
        Workload("gpt_117m", "inference", 60, ("--warmup-steps", "2")),
        Workload("gpt_800m", "inference", 60, ("--warmup-steps", "2")),
    ),
    "cpu": (
        Workload("lstm", "training", 60, SMALL),
        Workload("mobilenet_v3_small", "training", 60, SMALL),
        Workload("mobilenet_v3_small", "inference", 60, SMALL),
        Workload("gpt_117m", "inference", 60, ("--batch-size", "1", "--warmup-steps", "1")),
    ),
}
# What the defaults of a device are held against, by the experiment: units/s.
TARGETS = {
    "NVIDIA H200": {
        "defaults-resnet50-training": (5500.0, "images/s"),
        "defaults-bert_large_pretraining_128-training": (1500.0, "sequences/s"),
        "defaults-gpt_117m-training": (450_000.0, "tokens/s"),
        "defaults-gpt_800m-training": (80_000.0, "tokens/s"),
        "defaults-resnext101_32x4d-inference": (12_000.0, "images/s"),
    }
}


class Experiment(NamedTuple):
    """A program that prints what it finds, the seconds after which it is killed, and the files that decide what it
    finds: globs below the checkout."""

    name: str
    seconds: float
    command: Sequence[str]
    files: Sequence[str]


class Device(NamedTuple):
    """The device that is here; `driver` is None where there is none, or nobody says which."""

    kind: str
    name: str
    driver: str | None

    @property
    def folder(self) -> str:
        """The name of its folder: of an NVIDIA H200 nvidia-h200."""
        return re.sub("[^a-z0-9]+", "-", self.name.lower()).strip("-")


def experiments(kind: str) -> Iterator[Experiment]:
    """Yield the experiments of a kind of device, the most valuable first."""
    words: Sequence[str]
    files: Sequence[str]
    patience = PATIENCE[kind]
    for workload in WORKLOADS[kind]:
        seconds = workload.seconds * patience
        words = (workload.name, workload.task, kind, f"{seconds:g}", f"{WINDOW[kind]:g}", *workload.options)
        files = (ENGINE, _of_card(workload.name), "benchmarks/plain.py", *SUPPORT)
        yield _experiment(f"defaults-{workload.name}-{workload.task}", seconds, words, files)
    window, largest = OPERANDS[kind]
    for precision in PRECISIONS[kind]:
        files = (_of_card(MATMUL), "entrypoints/workloads/pytorch/kernels.py")
        yield _experiment(f"matmul-{precision}", 45 * patience, (precision, kind, f"{window:g}", f"{largest}"), files)
    for workload in WORKLOADS[kind]:
        options = (*workload.options[:-2], *OF_KERNELS[kind])
        words, files = (workload.name, workload.task, kind, *options), (ENGINE, _of_card(workload.name))
        yield _experiment(f"kernels-{workload.name}-{workload.task}", 60 * patience, words, files)
    files = (*map(_of_card, ATTENTION[kind][1:]), *KERNELS_OF_ATTENTION)
    yield _experiment("attention", 40 * patience, ("bf16", kind, *ATTENTION[kind]), files)
    files = (ENGINE, "entrypoints/references/*.json", "entrypoints/workloads/*.json")
    for precision in PRECISIONS[kind]:
        words = (precision, kind, f"{120 * patience}", *_checked(kind))
        yield _experiment(f"check-{precision}", 120 * patience, words, files)
    files = (_of_card("resnet50"), "benchmarks/images.py", "entrypoints/data/images/decoding.py")
    yield _experiment("images", 40 * patience, (kind, f"{WINDOW[kind]:g}"), files)
    words = (*STRATEGIES[kind], f"{120 * patience}", "ddp", "fsdp", "zero1")
    yield _experiment("strategies", 120 * patience, words, (ENGINE, _of_card(STRATEGIES[kind][0])))


def _experiment(name: str, seconds: float, words: Sequence[str], files: Sequence[str]) -> Experiment:
    command = [sys.executable, "-s", str(ON_DEVICE), name.split("-", 1)[0], *words]
    return Experiment(name, seconds, command, ("benchmarks/on_device.py", *files))


def _of_card(workload: str) -> str:
    return f"entrypoints/workloads/{workload}.json"


def _checked(kind: str) -> list[str]:
    """Return the workloads to check, small ones first; on a CPU those that are small enough for it."""
    every = [card for card in cards.load().values() if MICROBENCHMARK not in card.tasks]
    every.sort(key=lambda card: int(card.problem["parameters"]))
    named = {workload.name for workload in WORKLOADS["cpu"] if workload.task == "training"}
    return [card.name for card in every if kind != "cpu" or card.name in named]


def code_of(experiment: Experiment) -> str:
    """Return the hash of what decides an experiment's figures: its words, the code of its files, PyTorch's version.

    Comments and docstrings decide nothing.
    """
    paths = sorted({path for pattern in experiment.files for path in CHECKOUT.glob(pattern)})
    digest = hashlib.sha256(repr([*experiment.command[3:], _version("torch")]).encode())
    for path in paths:
        relative = path.relative_to(CHECKOUT)
        if not set(relative.parts) & set(ELSEWHERE):
            digest.update(f"{relative}\n{_text(path)}\n".encode())
    return digest.hexdigest()


@cache  # of all experiments, which share most of their files
def _text(path: Path) -> str:
    text = path.read_text("utf-8")
    return code(text) if path.suffix == ".py" else text


def code(source: str) -> str:
    """Return Python source without its comments, docstrings and blank lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            for row in range(first.lineno - 1, first.end_lineno or first.lineno):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


class Series:
    """Experiments until a moment of the monotonic clock; results go to a folder, as soon as they are there."""

    def __init__(self, device: Device, folder: Path, deadline: float, about: Json, kept: Path) -> None:
        self.device, self.deadline, self.about = device, deadline, about
        self.folder = folder / device.folder
        self.folders = (self.folder, kept / device.folder)

    def run(self, planned: Sequence[Experiment]) -> list[Json]:
        """Make each experiment that has no result yet, if there is time; those that ended badly before come last."""
        codes = {experiment.name: code_of(experiment) for experiment in planned}
        states = {experiment.name: self.state(experiment.name, codes[experiment.name]) for experiment in planned}
        records = []
        for experiment in sorted(planned, key=lambda each: states[each.name] is not None):
            left = self.deadline - time.monotonic() - RESERVE
            if states[experiment.name] == COMPLETED:
                say(f"{experiment.name}: skipped, it was measured with this code")
            elif experiment.seconds > left:
                say(f"{experiment.name}: skipped, it may take {experiment.seconds:.0f} s, and {left:.0f} s are left")
            else:
                records.append(self.attempt(experiment, codes[experiment.name]))
                say(line_of(records[-1]))
        return records

    def state(self, name: str, code: str) -> str | None:
        """Return how an experiment ended with this code; None if it was not made."""
        states = [record["state"] for record in self.records(name) if record["code"] == code]
        return COMPLETED if COMPLETED in states else next(iter(states), None)

    def records(self, name: str) -> Iterator[Json]:
        """Yield the results of an experiment that are here."""
        for path in (folder / file for folder in self.folders for file in (f"{name}.json", _draft(name))):
            with contextlib.suppress(OSError, ValueError):
                yield json.loads(path.read_text("utf-8"))

    def attempt(self, experiment: Experiment, code: str) -> Json:
        """Make an experiment; what it has found so far is always in a file, which gets its name when it is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record: Json = {"experiment": experiment.name, "state": UNFINISHED, "reason": "it has not ended", "code": code}
        record |= {**self.about, "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "seconds": None}
        record |= {"command": list(experiment.command[3:]), "settings": {}, "figures": {}, "tables": {}}
        self.keep(record)
        began = time.monotonic()
        record["state"], record["reason"] = self.watched(experiment, record)
        record["seconds"] = round(time.monotonic() - began, 1)
        self.keep(record)
        if record["state"] == COMPLETED:
            (self.folder / _draft(experiment.name)).replace(self.folder / f"{experiment.name}.json")
        return record

    def watched(self, experiment: Experiment, record: Json) -> tuple[str, str | None]:
        """Run an experiment to its end, or kill it after its time; return how it ended and why."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                experiment.command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
            assert process.stdout
            reader = threading.Thread(target=self.read, args=(process.stdout, record), daemon=True)
            reader.start()
            try:
                process.wait(experiment.seconds)
            except subprocess.TimeoutExpired:
                return KILLED, f"it had not ended after {experiment.seconds:g} s"
            finally:  # also after an order to end
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                reader.join(RESERVE)
            errors.seek(0)
            words = errors.read().decode("utf-8", "replace").strip().splitlines()[-LAST_WORDS:]
        if process.returncode:
            return FAILED, "\n".join(words) or f"exit code {process.returncode}"
        reason = record.pop("unfinished", None)
        return (UNFINISHED if reason else COMPLETED), reason

    def read(self, lines: IO[str], record: Json) -> None:
        """Take what an experiment prints, and keep it."""
        for line in lines:
            with contextlib.suppress(ValueError):  # words of a library
                message = json.loads(line)
                if isinstance(message, dict):
                    for part in ("settings", "figures", "tables"):
                        record[part].update(message.get(part, {}))
                    record.update({name: message[name] for name in ("unfinished",) if name in message})
                    self.target(record)
                    self.keep(record)

    def target(self, record: Json) -> None:
        """Add which part of a target was reached."""
        target = TARGETS.get(self.device.name, {}).get(record["experiment"])
        reached = record["figures"].get("throughput")
        if target and reached and reached["unit"] == target[1]:
            record["figures"]["over_target"] = {"value": reached["value"] / target[0], "unit": "1", "target": target[0]}

    def keep(self, record: Json) -> None:
        """Write a result that may not be complete."""
        with draft_file(self.folder, indented_text(record)) as draft:
            draft.replace(self.folder / _draft(record["experiment"]))


def _draft(name: str) -> str:
    return f"{name}.unfinished.json"


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def line_of(record: Json) -> str:
    """Return a result in a line: how it ended, and its figures with their spread, the first ones alone of many."""
    figures = [f"{name} {_shown(figure)}" for name, figure in record["figures"].items() if figure["value"] is not None]
    shown = [*figures[:8], *(["..."] if len(figures) > 8 else [])]
    why = f" ({record['reason'].splitlines()[-1]})" if record["reason"] else ""
    return f"{record['experiment']}: {record['state']}{why} in {record['seconds']} s; {'; '.join(shown)}"


def _shown(figure: Mapping[str, Any]) -> str:
    unit = "" if figure["unit"] == "1" else f" {figure['unit']}"
    spread = (
        f" [{figure['least']:.4g}, {figure['most']:.4g}]" if figure.get("count", 0) > 1 and "least" in figure else ""
    )
    return f"{figure['value']:.4g}{spread}{unit}"


def device_here(wanted: str | None) -> Device:
    """Return the device to measure: a GPU if there is one. Exits with what is missing."""
    driver = None
    with contextlib.suppress(MeterError, KeyError):
        driver = conditions(None)["driver"].get("value")
    name = present_device.find("cuda").name
    kind = wanted or ("cuda" if name else "cpu")
    if kind == "cuda" and not name:
        sys.exit("error: no GPU of NVIDIA answers. Is its driver here, and nvidia-ml-py in this Python?")
    return Device("cuda", str(name), driver) if kind == "cuda" else Device("cpu", host.cpu_model() or "cpu", None)


def commit_here() -> str | None:
    """Return the commit of this checkout, with `-dirty` if files differ from it; None where there is no git."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        head = _git("rev-parse", "HEAD")
        return f"{head}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else head
    return None


def _git(*words: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _options() -> argparse.Namespace:
    grammar = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = grammar.add_argument
    add("--minutes", type=float, required=True, metavar="N", help="after which it has ended")
    add("--output", type=Path, required=True, metavar="DIR", help="results are DIR/DEVICE/EXPERIMENT.json")
    add("--only", nargs="+", metavar="NAME", help="these experiments; * stands for any part of a name")
    add("--device", choices=tuple(WORKLOADS), help="default: cuda if there is a GPU")
    add("--commit", metavar="HASH", help="of this code, where git is missing")
    return grammar.parse_args()


def _stop(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    """Make the experiments that there is time for. Exits with an error if there is nothing to measure or by."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, _stop)  # so that no experiment outlives this
    options = _options()
    if _version("torch") is None:
        sys.exit(f"error: {sys.executable} has no PyTorch. Run this by the Python that has it")
    device = device_here(options.device)
    planned = list(experiments(device.kind))
    meant = [each for each in planned if not options.only or any(fnmatch(each.name, only) for only in options.only)]
    if not meant:
        sys.exit(f"error: no experiment is called {' or '.join(options.only)}. There are: "
                 f"{', '.join(each.name for each in planned)}")  # fmt: skip
    versions = {"python": platform.python_version(), **{name: _version(name) for name in SOFTWARE}}
    about = {"device": device.name, "driver": device.driver, "versions": versions}
    about["commit"] = options.commit or commit_here()
    kept = options.output if device.kind == "cpu" else KEPT  # which has none of a CPU: they show that this works
    series = Series(device, options.output, began + options.minutes * 60, about, kept)
    say(f"{device.name}, {options.minutes:g} minutes, results in {series.folder}")
    series.run(meant)


if __name__ == "__main__":
    main()
