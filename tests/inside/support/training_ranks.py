"""Ranks that train a small network together, each a process of its own, without the parent of a run.

`python tests/inside/support/training_ranks.py JOB` is a rank: JOB is a JSON object, with its number in `rank`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

WORLD, SAMPLES = 2, 4  # samples of the global batch
SMALL_IMAGES: dict[str, dict[str, Any]] = {
    "resnet50": {"layers": [1, 1, 1, 1], "stem_width": 8},
    "image_compression": {"channels": [4, 8, 16]},
}


def trained(workload, strategy, steps, **options):
    """Loss of each step, the mean over ranks, and what else each rank reports; without a strategy one rank trains."""
    reports = ranks_of("train", workload, strategy, steps=steps, **options)
    return [sum(losses) / len(losses) for losses in zip(*(report["losses"] for report in reports))], reports


def probed(workload, strategy, **options):
    """The quantities of the correctness check, as the first rank reports them."""
    return ranks_of("probe", workload, strategy, **options)[0]


def ranks_of(task, workload, strategy, **options):
    """What each rank reports of a task. One that trains alone is this process: no other has to import PyTorch."""
    world = options.get("world", WORLD) if strategy else 1
    job = {"task": task, "workload": workload, "strategy": strategy, **options, "world": world}
    if not strategy and task == "train":
        return [train({**job, "rank": 0})]
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(started({**job, "rank": rank})) for rank in range(world)]
        if strategy:
            first = json.loads(ranks[0].stdout.readline())
            everyone = first[-1]  # as Rendezvous says
            points = [first, *(json.loads(rank.stdout.readline()) for rank in ranks[1:] if everyone)]
            for rank in ranks if everyone else ranks[1:]:
                rank.stdin.write(json.dumps(points) + "\n")
                rank.stdin.flush()
        # The end of its input lets the first rank leave, after the others.
        outputs = [rank.communicate(timeout=240) for rank in reversed(ranks)][::-1]
        if any(rank.returncode for rank in ranks):
            raise AssertionError("\n".join(errors[-3000:] for _, errors in outputs))
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


@contextlib.contextmanager
def started(job):
    """A rank that is ended at last."""
    words = [sys.executable, __file__, json.dumps(job)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def small_card(workload):
    """A card with a small network."""
    from small_networks import family_of, smaller

    from entrypoints.contract import cards

    card = cards.load()[workload]
    if workload not in SMALL_IMAGES:
        return smaller(card)
    problem = {**card.problem, "model": {**card.problem["model"], **SMALL_IMAGES[workload]}}
    if workload == "resnet50":
        problem["input"] = {**problem["input"], "shape": [3, 64, 64]}
    problem["parameters"] = sum(p.numel() for p in family_of(card).network(problem["model"]).parameters())
    return card._replace(problem=problem)


def modules(job):
    """The framework's device, `build`, `loader` and `strategies.group`."""
    framework = job.get("framework", "pytorch")
    workloads, devices = f"entrypoints.workloads.{framework}", f"entrypoints.devices.{framework}"
    names = (f"{devices}.cpu", f"{workloads}.build", f"{workloads}.loader", f"{devices}.strategies.group")
    return [importlib.import_module(name) for name in names]


def joined(job):
    """The group of the ranks, as an argument of a session; no argument for one rank."""
    from entrypoints.contract.group import Place

    *_, groups = modules(job)
    how = parallelism(job)

    def tell(where):
        sys.stdout.write(json.dumps(where) + "\n")
        sys.stdout.flush()

    if not job["strategy"]:
        return {}
    place = Place(job["rank"], job["world"], job["rank"], job["world"])
    return {"group": groups.join(place, "cpu", how, tell)}


def parallelism(job):
    """How the ranks of a job train together. A strategy may have degrees, as in `fsdp tensor=2`."""
    from entrypoints.contract.group import Parallelism

    name, *degrees = (job["strategy"] or "none").split()
    return Parallelism(
        name, offload=job.get("offload", False), **{k: int(v) for k, v in (d.split("=") for d in degrees)}
    )


def data_place(job):
    """Where a rank is among those with other samples."""
    from entrypoints.contract.group import ALONE, Place

    if not job["strategy"]:
        return ALONE
    how = parallelism(job)
    replicas = job["world"] // how.stages // how.tensor
    rank = job["rank"] // how.tensor % replicas
    return Place(rank, replicas, rank, replicas)


def probe(job):
    """Check correctness in one precision, with a mistake if one is named."""
    from entrypoints.contract import cards
    from entrypoints.worker import probe as checks

    cpu, build, loader, _ = modules(job)
    cpu.prepare("fp32", 1)  # before ranks meet: TensorFlow starts up then
    messages: list[Any] = []
    group = joined(job)
    configuration: Any = SimpleNamespace(
        device="cpu",
        precision=job.get("precision", "fp32"),
        fp8_scaling="tensorwise",
        threads=1,
        seed=0,
        compile=None,
        memory_limit_mib=None,
        gradient_accumulation=1,
        strategy=job["strategy"],
        recomputed_by_framework=False,
        staged=lambda partition, _: partition,
        trained_together=bool(job["strategy"]),
        offload=False,
        data_place=lambda _: data_place(job),
    )
    mistakes = importlib.import_module(job.get("mutants", "mutants_ranks")) if job.get("mutant") else None
    mistake = getattr(mistakes, job["mutant"])() if mistakes else contextlib.nullcontext()
    with mistake:
        checks.run(cards.load()[job["workload"]], configuration, cpu, build, loader, messages.append, group)
    if group:
        group["group"].close()
    return {name: values for precision, name, values in messages if precision == configuration.precision}


def train(job):
    """Train as a rank; return what it has to report."""
    from small_networks import losses_of

    from entrypoints.contract.session import BatchPartition, rule_of
    from entrypoints.devices.pytorch import cpu
    from entrypoints.workloads.pytorch import build, loader

    cpu.prepare(job.get("precision", "fp32"), 1)
    card = small_card(job["workload"])
    group = joined(job)
    model = build.deferred_model(card, 0)  # by ranks as by one, which has it at once if this PyTorch cannot defer it
    if not job.get("dropout"):
        build.without_randomness(model)
    if job.get("precision") == "fp8":
        build.in_float8(model, "cpu", "tensorwise")
    if job.get("recomputed"):
        build.recomputed(model)
    place = data_place(job)
    own = SAMPLES // place.world
    parts = job.get("accumulation", 1)
    partition = BatchPartition(own // parts, parts)
    rule = rule_of({**card.problem, "optimizer": {**card.problem["optimizer"], **job.get("rule", {})}}, SAMPLES)
    compiled = "default" if job.get("compile") else None
    mistake = getattr(importlib.import_module("mutants_ranks"), job["mutant"])() if job.get("mutant") else None
    session = cpu.open_session(model, rule, job.get("precision", "fp32"), compiled, partition, **group)
    batch = loader.slice_of(loader.synthetic_batch(card, SAMPLES, 0), place.rank * own, own)
    with mistake or contextlib.nullcontext():
        losses = losses_of(session, batch, job["steps"])
    session.executed()
    used = session.gradients()
    output = session.infer_request(batch).output
    (after,) = losses_of(session, batch, 1)
    weights = session.weights()
    held = [getattr(weight, "to_local", lambda weight=weight: weight)() for weight in session.model.parameters()]
    report = {
        "losses": [*losses, after],
        "used": used,
        "norm": float(sum((weight.astype("float64") ** 2).sum() for weight in weights.values()) ** 0.5),
        "names": sorted(weights),
        "held": sum(each.numel() for each in held),
        "bytes": sum(each.numel() * each.element_size() for each in held),
        "output": len(output[0] if isinstance(output, tuple) else output),
        "execution": session.facts.execution,
        **(drops(session.model.network) if job.get("dropout") else {}),
    }
    session.close()
    if group:
        group["group"].close()
    return report


def drops(network):
    """Weights that each rank has whole, and what attention drops by the heads of this rank."""
    import torch

    network.train()
    attention = network.blocks[0].attention
    ones = torch.ones(1, attention.heads, 8, 8)
    return {
        "equal": [
            float(weight.double().sum()) for name, weight in network.named_parameters() if "normalisation" in name
        ],
        "dropped": attention.attend(ones, ones, torch.eye(8).expand_as(ones), None).tolist(),
    }


TASKS = {"train": train, "probe": probe}

if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(TASKS[job["task"]](job)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo may outlive its group, and aborts the end of the interpreter
