"""Template of a study file: workloads on systems, with common options as comments."""

import json
from collections.abc import Sequence

from sifmark.core.console import printable
from sifmark.core.errors import UsageError, unknown_name
from sifmark.core.shell import word
from sifmark.recipes.names import cards
from sifmark.recipes.recipe import recipe_names
from sifmark.studies.images import is_recipe_or_place

_HEAD = """\
# A study: which runs answer a question. The keys are described in docs/reference/studies.md.
#     sifmark study.plan {file}
#     sifmark study.run {file}
title     = {title}
questions = ["Which system is faster, and at which batch size?"]
repeats   = 3 # each in a fresh process; repeats are outermost, so that drifts of a machine hit all runs alike
"""
_SYSTEM = """
[[system]]
name  = {name}
image = {image} # a recipe, the path of a SIF file, or an oras:// address with a digest
# title      = "what tables call it"
# devices    = 4  # of a node
# memory_gib = 80 # of a device
# bind       = ["/scratch/imagenet"] # paths of the host that runs see, read-only; or "SRC:DST", "SRC:DST:rw"
# slurm      = {{ partition = "gpu", gpus_per_node = 4 }}
"""
_RUN = """
[[run]]
workload   = {workload}
task       = {task}
batch_size = {sizes} # a list is an axis; "max" searches for the largest that fits
duration   = "30s" # of the timed window; or steps, or epochs
# precision = ["bf16", "fp32"]
# devices   = [1, 2, 4]
# strategy  = "ddp"
# scaling   = "weak" # batch_size is then that of one device
# except    = [{{ precision = "fp32", batch_size = [256] }}]
"""
_OPERATION = """
[[run]]
workload = {workload}
{devices}# largest_size = "16M"
"""
_OUTPUT = """
[[output]]
name   = "throughput"
title  = "Throughput by batch size"
kind   = "line"
runs   = {runs}
x      = "batch_size"
y      = "throughput"
series = ["system", "workload"]
"""
_SMALL = """
# What a CPU does in minutes, to try the study: --variant small
[variant.small]
repeats = 1

[[variant.small.system]]
name  = "here"
image = "cpu"
"""
_SMALL_RUN = """
[variant.small.run.{name}]
batch_size = [1, 2]
steps      = 6
"""
_SMALL_OPERATION = """
[variant.small.run.{name}]
largest_size = {size}
"""


def study_template(workloads: Sequence[str], systems: Sequence[str], file: str = "study.toml") -> str:
    """Return a study file for workloads and systems, the latter as NAME:IMAGE. Raises UsageError for unknown names."""
    pairs = [_pair(text) for text in systems]
    _require_workloads(workloads)
    titles = " and ".join(workloads) + ": " + ", ".join(name for name, _ in pairs)
    parts = [_HEAD.format(file=printable(word(file)), title=_quoted(titles))]
    parts += [_SYSTEM.format(name=_quoted(name), image=_quoted(image)) for name, image in pairs]
    names = {workload: _name(workload) for workload in workloads}
    batched = [names[workload] for workload in workloads if not _is_operation(workload)]
    parts += [_run(workload) for workload in workloads]
    parts += [_OUTPUT.format(runs=json.dumps(batched))] if batched else []
    parts += [_SMALL, *(_small_run(workload, names[workload]) for workload in workloads)]
    return "".join(parts)


def _pair(text: str) -> tuple[str, str]:
    name, colon, image = text.partition(":")
    if not colon or not name or not image:
        remedy = "write NAME:IMAGE, for example alpha:cuda; images: a recipe, FILE.sif or an oras:// address"
        raise UsageError(f"--systems {text!r}: a system has a name and an image", remedy, code="invalid-option")
    if not is_recipe_or_place(image):
        raise unknown_name("recipe", image, recipe_names())
    return name, image


def _require_workloads(workloads: Sequence[str]) -> None:
    for workload in workloads:
        if workload not in cards():
            raise unknown_name("workload", workload, cards(), listed_by="sifmark list workloads")
    if not workloads or len(set(workloads)) < len(workloads):
        raise UsageError("--workloads names none, or one twice", "for example resnet50,lstm", code="invalid-option")


def _run(workload: str) -> str:
    if _is_operation(workload):
        devices = "devices  = 2\n" if cards()[workload]["family"] == "collectives" else ""
        return _OPERATION.format(workload=_quoted(workload), devices=devices)
    sizes = [16, 64, 256, "max"] if "training" in cards()[workload]["tasks"] else [4]
    return _RUN.format(workload=_quoted(workload), task=_quoted(_task(workload)), sizes=json.dumps(sizes))


def _small_run(workload: str, name: str) -> str:
    if _is_operation(workload):
        sizes = cards()[workload]["problem"]["input"]["sizes"]
        return _SMALL_OPERATION.format(name=name, size=sizes[1])
    return _SMALL_RUN.format(name=name)


def _name(workload: str) -> str:
    return workload if _is_operation(workload) else f"{workload}-{_task(workload)}"


def _task(workload: str) -> str:
    return str(cards()[workload]["tasks"][0])


def _is_operation(workload: str) -> bool:
    return _task(workload) == "microbenchmark"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
