"""A decoder of the Llama family against Hugging Face's, trained and continued by a plain loop. README.md has more.

    python llama.py training --layers 2 --length 512
    python llama.py inference --precision bf16

It runs in an environment with PyTorch and transformers. Both sides have the same weights and take turns in one process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "inside" / "support"))

import torch
import written  # noqa: F401 - it lets torchvision be imported beside any torch, which transformers does
from of_transformers import Network

from entrypoints.contract import cards
from entrypoints.contract.cards import Card
from entrypoints.contract.session import Batch, OptimizerRule, rule_of
from entrypoints.devices.pytorch import cpu
from entrypoints.workloads.pytorch import build, decoder, loader
from entrypoints.workloads.pytorch.optimizers import parameter_groups

OURS, PLAIN = "ours", "transformers"
Side = Callable[[], object]


def shortened(card: Card, options: argparse.Namespace) -> Card:
    """Return the card of fewer blocks and tokens."""
    model = {**card.problem["model"], "layers": options.layers, "vocabulary": options.vocabulary}
    with torch.device("meta"):
        parameters = sum(each.numel() for each in decoder.network(model).parameters())
    text = {**card.problem["input"], "length": options.length}
    return card._replace(problem={**card.problem, "model": model, "input": text, "parameters": parameters})


def training(card: Card, options: argparse.Namespace, ours: build.Objective, plain: Network) -> dict[str, Side]:
    """Return a step of each side."""
    rule = OptimizerRule.from_problem(card.problem["optimizer"], options.batch_size)
    batch = loader.synthetic_batch(card, options.batch_size, 0)
    session = cpu.open_session(ours, rule, options.precision)
    optimizer = torch.optim.AdamW(
        parameter_groups(plain, rule), lr=rule.learning_rate, betas=rule.settings["betas"], eps=rule.settings["epsilon"]
    )
    half = {"bf16": torch.bfloat16}.get(options.precision)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=half, enabled=half is not None):
            logits = plain.library(batch.inputs, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), rule.gradient_norm or 1.0)
        optimizer.step()
        return float(loss.item())

    def own() -> float:
        loss = session.train(batch).loss
        assert loss is not None
        return loss()

    return {OURS: own, PLAIN: step}


def inference(card: Card, options: argparse.Namespace, ours: build.Objective, plain: Network) -> dict[str, Side]:
    """Return a text of each side: a prompt, and as many new tokens as are asked for."""
    session = cpu.open_session(ours, rule_of(card.problem, 1, "inference"), options.precision)
    prompt = loader.synthetic_batch(card, options.batch_size, 0).inputs
    plain = plain.to({"bf16": torch.bfloat16}.get(options.precision, torch.float32)).eval()

    def own() -> list[Any]:
        state = session.begin(Batch(prompt, None), options.new)
        tokens = [state.token]
        for _ in range(options.new - 1):
            state = session.next_state(state)
            tokens.append(state.token)
        return tokens

    def other() -> Any:
        lengths = {"max_new_tokens": options.new, "min_new_tokens": options.new}
        mask = torch.ones_like(prompt)
        with torch.no_grad():
            return plain.library.generate(prompt, attention_mask=mask, do_sample=False, pad_token_id=0, **lengths)

    return {OURS: own, PLAIN: other}


def main() -> None:
    """Print the median of each side, and the ratios of the other's time to ours."""
    grammar = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    grammar.add_argument("what", choices=("training", "inference"))
    grammar.add_argument("workload", nargs="?", default="llama_1b")
    grammar.add_argument("--layers", type=int, default=2)
    grammar.add_argument("--vocabulary", type=int, default=8192)
    grammar.add_argument("--length", type=int, default=256, help="tokens of a sequence, or of a prompt")
    grammar.add_argument("--new", type=int, default=16, help="new tokens of inference")
    grammar.add_argument("--batch-size", type=int, default=2)
    grammar.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    grammar.add_argument("--rounds", type=int, default=7)
    grammar.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = grammar.parse_args()
    cpu.prepare(options.precision, options.threads)
    card = shortened(cards.load()[options.workload], options)
    ours, plain = build.model(card, 0), Network(card).float()
    plain.take({name: weight.clone() for name, weight in ours.network.state_dict().items()})
    sides = (training if options.what == "training" else inference)(card, options, ours, plain)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(options.rounds + 1):
        for name in sides if number % 2 else reversed(sides):
            start = time.perf_counter()
            sides[name]()
            seconds[name].append(time.perf_counter() - start)
    for times in seconds.values():
        del times[0]  # it warms up
    ratios = [other / own for own, other in zip(seconds[OURS], seconds[PLAIN], strict=True)]
    for name, times in seconds.items():
        sys.stdout.write(f"{name:<13} median {statistics.median(times):.4f} s\n")
    sys.stdout.write(
        f"{PLAIN} / {OURS}: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}\n"
    )


if __name__ == "__main__":
    main()
