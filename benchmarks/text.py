"""Decoding and training of texts against their plain formulation. README.md has more.

    python text.py decoding gpt2 --batch-size 4 --precision bf16
    python text.py training gpt_117m --batch-size 8

It runs in an environment with PyTorch. Sides of decoding take turns in one process, token by token; each side of
training is a separate process, whose peak memory is its largest resident set.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from entrypoints.contract import cards
from entrypoints.contract.cards import Card
from entrypoints.contract.session import Batch, rule_of
from entrypoints.devices.pytorch import cpu
from entrypoints.workloads.pytorch import build, loader

TOKENS = 4  # of a side at a time
PLAIN, TRANSPOSED, OURS, COMPILED = "plain", "transposed", "ours", "compiled"


class Eager(cpu.CpuSession):
    """As it was: autocast casts each weight for each token, nothing is packed, texts of all lengths."""

    transposes = False

    def generating_model(self, rows: int) -> build.Objective:  # noqa: ARG002 - others do
        """Return the model, with the layout of this side's weights."""
        model = build.fold_batch_norms(self.model)
        return build.transposed_linear_weights(model) if self.transposes else model


class Transposed(Eager):
    """As it was for one or two texts."""

    transposes = True


def decoding(card: Card, options: argparse.Namespace) -> Mapping[str, list[float]]:
    """Return the seconds of a token of each side, round by round."""
    kinds: dict[str, Any] = {PLAIN: Eager, TRANSPOSED: Transposed, OURS: cpu.CpuSession}
    if options.compile:
        kinds[COMPILED] = cpu.CpuSession
    rule = card.problem["generation"]
    prompt = loader.synthetic_batch(card, options.batch_size, 0).inputs[:, : options.prompt or rule["prompt"]]
    sessions = {}
    for name, kind in kinds.items():
        mode = "default" if name == COMPILED else None
        made: Any = kind(build.model(card, 0), rule_of(card.problem, 1), options.precision, mode, None, None)
        sessions[name] = made, made.begin(Batch(prompt, None), rule["new"])
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    rounds = min(options.rounds + 1, (rule["new"] - 1) // TOKENS)
    for number in range(rounds):
        for name in kinds if number % 2 else reversed(kinds):
            session, state = sessions[name]
            start = options.clock()
            for _ in range(TOKENS):
                state = session.next_state(state)
            seconds[name].append((options.clock() - start) / TOKENS)
            sessions[name] = session, state
    return {name: times[1:] for name, times in seconds.items()}  # the first round warms up


def training(options: argparse.Namespace) -> Mapping[str, list[float]]:
    """Return the peak of memory (MiB) and the seconds of a step of each side."""
    measured: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for side in (PLAIN, OURS) if number % 2 else (OURS, PLAIN):
            argv = [sys.executable, __file__, *sys.argv[1:], "--side", side]
            answer = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
            for quantity, value in answer.items():
                measured.setdefault(f"{side}, {quantity}", []).append(value)
    return measured


def one_side(card: Card, options: argparse.Namespace) -> Mapping[str, float]:
    """Train for some steps, the first of which warms up."""
    session = cpu.open_session(
        build.model(card, 0),
        rule_of(card.problem, options.batch_size),
        options.precision,
        "default" if options.compile else None,
    )
    for layer in session.model.modules():
        if hasattr(layer, "chunked_loss"):
            layer.chunked_loss = options.side == OURS
    batch, seconds = loader.synthetic_batch(card, options.batch_size, 0), []
    for _ in range(options.steps):
        start = options.clock()
        loss = session.train(batch).loss
        assert loss is not None
        loss()
        seconds.append(options.clock() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"memory": peak, "step": statistics.median(seconds[1:] or seconds)}


def main() -> None:
    """Print medians, and ratios to the plain side."""
    grammar = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    grammar.add_argument("what", choices=("decoding", "training"))
    grammar.add_argument("workload")
    grammar.add_argument("--batch-size", type=int, default=4)
    grammar.add_argument("--precision", choices=cpu.PRECISIONS, default="fp32")
    grammar.add_argument("--compile", action="store_true", help="one more side of decoding; training on both sides")
    grammar.add_argument("--rounds", type=int, default=9)
    grammar.add_argument("--prompt", type=int, help="tokens; default the card's")
    grammar.add_argument("--steps", type=int, default=3, help="of training, the first of which warms up")
    grammar.add_argument("--threads", type=int, default=torch.get_num_threads())
    grammar.add_argument("--cpu-time", action="store_true", help="of the process, in place of the clock's time")
    grammar.add_argument("--side", choices=(PLAIN, OURS), help=argparse.SUPPRESS)
    options = grammar.parse_args()
    clock: Callable[[], float] = time.process_time if options.cpu_time else time.perf_counter
    options.clock = clock
    torch.set_num_threads(options.threads)
    card = cards.load()[options.workload]
    if options.side:
        sys.stdout.write(json.dumps(one_side(card, options)) + "\n")
        return
    measured = decoding(card, options) if options.what == "decoding" else training(options)
    for name, values in measured.items():
        reference = measured[name.replace(OURS, PLAIN) if options.what == "training" else PLAIN]
        ratios = [plain / value for plain, value in zip(reference, values, strict=True)]
        sys.stdout.write(
            f"{name:<16} median {statistics.median(values):>12.5f}   plain / this: median "
            f"{statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} rounds\n"
        )


if __name__ == "__main__":
    main()
