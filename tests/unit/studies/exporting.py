"""A plan that has whatever exports must cope with."""

from collections.abc import Mapping
from pathlib import Path

from sifmark.engines.binds import parse_binds
from sifmark.studies.slurm.jobs import StartedImage
from sifmark.studies.slurm.options import JobOptions
from sifmark.studies.study import PlannedRun, Run, RunState, Scalar, Study, StudyPlan, System

HERE = System("here", "cpu", title="This machine", nodes=2)
CLUSTER = System(
    "cluster-a",
    "images/it's a cuda.sif",
    devices=4,
    nodes=2,
    bind=parse_binds(["/scratch/image net", "/data:/big data:rw"]),
    arguments=("--meter", "nvml"),
)
STUDY = Study(
    name="trial",
    title='A "trial" of\nexports: 100 % # {odd}',
    file=Path("trial.toml"),
    questions=("Does it work?",),
    source=None,
    systems=(HERE, CLUSTER),
    groups=(),
    outputs=(),
    limitations=(),
    variant="",
)
IMAGES = {
    "here": StartedImage(
        Path("/images/cpu.sif"), "1000 1700000000", "sha256:00", flags=("--userns",), facts='{"signer": "it\'s me"}'
    ),
    "cluster-a": StartedImage(
        *(Path("/images/it's a cuda.sif"), "2000 1700000001", "sha256:01"),
        device_files=("/dev/nvidia[0-9]*",),
        device_flags=("--nv",),
        facts="{}",
    ),
}
OPTIONS = {
    "here": JobOptions(),
    "cluster-a": JobOptions(partition="gpu", account="abc", gpus_per_node="4", mem="0", seconds=2400),
}

# Names of folders and files that a script must not take for anything else.
HOSTILE = (
    *("two words", "it's", 'say "so"', "$(touch pwned)", "`touch pwned`", "${HOME}", "$ x$", "a\ttab", "a\nb\n", "\r"),
    *("-dash", "--help", "~", "#no", "*", "[a-z]?", "%j%a%%", "a\\b", "a\\'b\"", "!x;y&z|w>pwned<", "{a,b}(c)", " "),
    *(
        "Jülich",
        "\U0001f600",
        "\x7f\x1b[0m",
        "\u2028\x85",
        "' touch pwned '",
        "'; touch pwned; '",
        '" && touch pwned "',
    ),
    *("EOF", "\ufeff", "b\udcff", "x\n#SBATCH --uid=0\ntouch pwned", "x'\ntouch pwned\n#'"),
)
# One of them that Slurm takes too, for tests with real programs.
WORST = 'it\'s "a" $(touch pwned)`touch pwned`;touch pwned #*~ %j%a Jülich \U0001f600'


def run(system: System, repeat: int = 1, nodes: int = 1, devices: int = 1, **cell: Scalar) -> Run:
    """Return a run of the group `sizes`."""
    words = (
        str(cell["workload"]),
        *(word for key, value in cell.items() if key != "workload" for word in (f"--{key}", str(value))),
    )
    words = tuple(word.replace("_", "-") if word.startswith("--") else word for word in words)
    return Run(system.name, "sizes", cell, (*words, *system.arguments), devices, nodes, repeat, 2)


def plan(folder: Path = Path("results/trial"), state: RunState = RunState.TO_DO, *more: Run) -> StudyPlan:
    """Return a plan of two cells on one system and three on the other, twice each."""
    runs = [
        each
        for repeat in (1, 2)
        for each in (
            run(HERE, repeat, workload="resnet50", batch_size=16),
            run(HERE, repeat, workload="resnet50", batch_size=32),
            run(CLUSTER, repeat, 1, 4, workload="resnet50", batch_size=16, data="/scratch/image net"),
            run(CLUSTER, repeat, 2, 8, workload="resnet50", batch_size=32, data="/scratch/image net"),
        )
    ]
    planned = tuple(_planned(each, folder, state) for each in (*runs, *more))
    return StudyPlan(STUDY, folder, {"here": "sha256:0", "cluster-a": "sha256:1"}, planned)


def _planned(each: Run, folder: Path, state: RunState) -> PlannedRun:
    key = each.key("sha256:0")
    return PlannedRun(each, key, folder / each.system / f"{key}.json", state, seconds=100.0)


def seconds_of(study: StudyPlan) -> Mapping[str, int]:
    """Return the time limits of runs."""
    return {each.key: 2400 for each in study.runs}


def launcher() -> str:
    """Return a program in the place of srun: it starts the words from the program on."""
    return """#!/bin/bash
while [[ ${1##*/} != sifmark && $1 != apptainer ]]; do shift; done
exec "$@"
"""
