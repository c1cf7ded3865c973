"""Networks of medium size, and the memory that training one of them takes.

`python tests/inside/support/measured_memory.py WORKLOAD SAMPLES` prints the bytes that the process grows by at most.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
from small_networks import family_of

from entrypoints.contract import cards
from entrypoints.contract.session import rule_of
from entrypoints.devices.pytorch import cpu
from entrypoints.workloads.pytorch import build, loader

DECODER = {
    "layers": 4,
    "width": 768,
    "heads": 12,
    "kv_heads": 3,
    "head_size": 64,
    "feed_forward": 2112,
    "vocabulary": 500,
}
# With more layers, a gradient of all experts of one, which is in the making, is a smaller part.
MIXTURE = {**DECODER, "layers": 6, "width": 512, "heads": 8, "kv_heads": 2, "feed_forward": 352}
MEDIUM: dict[str, dict[str, Any]] = {
    "llama_1b": DECODER,
    "llama_8b_lora": DECODER,
    "olmoe_1b_7b": MIXTURE,
    "qwen3_30b_a3b": MIXTURE,
    "gpt_oss_20b": MIXTURE,
    "vit_l16": {"image": 112, "layers": 4, "width": 512, "heads": 8, "feed_forward": 2048},
    "dit_xl_2": {"latents": [4, 32, 32], "layers": 3, "width": 576, "heads": 8, "feed_forward": 2304},
    "flux_1": {
        "latents": [16, 16, 16],
        "double_layers": 2,
        "single_layers": 2,
        "width": 384,
        "heads": 3,
        "feed_forward": 1536,
        "condition": {"kind": "text", "text_length": 32, "text_width": 256, "vector": 64},
    },
}
EXPERTS = {"count": 8, "per_token": 2}
LENGTH = 256


def medium(card):
    """The same card with a network that takes some hundred MiB in training, whose parameters are counted."""
    model, given = {**card.problem["model"], **MEDIUM[card.name]}, dict(card.problem["input"])
    if "experts" in model:
        model["experts"] = {**model["experts"], **EXPERTS}
    if "length" in given:
        given["length"] = LENGTH
    if "shape" in given:
        given["shape"] = model.get("latents") or [3, *[model["image"]] * 2]
    problem = {**card.problem, "model": model, "input": given}
    parameters = list(family_of(card).network(model).parameters())
    problem["parameters"] = sum(each.numel() for each in parameters)
    if "trained" in problem:
        problem["trained"] = sum(each.numel() for each in parameters if each.requires_grad)
    return card._replace(problem=problem)


def train(card, samples):
    """Two steps, the second of which has the states of the optimizer from its beginning."""
    model = build.with_chunked_loss(build.model(card, seed=3))
    session = cpu.open_session(model, rule_of(card.problem, samples), "fp32")
    for _ in range(2):
        session.train(loader.synthetic_batch(card, samples, seed=1))


def resident(field):
    """VmRSS, or the most since it was reset, VmHWM, in bytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text("utf-8").splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = medium(cards.load()[sys.argv[1]])
    train(chosen, 1)  # loads and makes what stays
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # resets the most
    train(chosen, int(sys.argv[2]))
    sys.stdout.write(f"{resident('VmHWM') - before}\n")
