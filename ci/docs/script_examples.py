"""Job scripts of two arrays that do not depend on this host: golden texts."""

from collections.abc import Iterator
from pathlib import Path

from sifmark.core import paths
from sifmark.studies.slurm.jobs import ArrayTask, JobArray, JobShape, StartedImage
from sifmark.studies.slurm.options import JobOptions
from sifmark.studies.slurm.script import script_of

_RESULTS = Path("/scratch/results/turing")
_WORK = Path("/home/user/my studies")
# On one node, with what sifmark chooses where a site says nothing.
_SIMPLE = JobArray(
    name="20261127-091500-1-alpha-1x1-10min",
    study="turing",
    shape=JobShape("alpha", nodes=1, devices=1, seconds=600),
    options=JobOptions(),
    image=StartedImage(Path("/scratch/dist/cuda.sif"), "1234 1764234900", sifmark=("/opt/sifmark/bin/sifmark",)),
    folder=_RESULTS / "jobs",
    work=_WORK,
    tasks=(ArrayTask("0123456789abcdef", _RESULTS / "alpha" / "0123456789abcdef.json", ("resnet50",)),),
)
# On two nodes, with every option of a site, by plain Apptainer.
_WHOLE = JobArray(
    name="20261127-091500-2-beta-2x4-1440min",
    study="turing",
    shape=JobShape("beta", nodes=2, devices=4, seconds=86400),
    options=JobOptions(
        partition="gpu",
        account="project1",
        qos="bench",
        constraint="a100&nvme",
        gpus_per_node="a100:4",
        cpus_per_task=64,
        mem="480G",
        modules=("Apptainer",),
        setup=("export NCCL_DEBUG=WARN",),
        extra=("--reservation=bench",),
        max_jobs_in_flight=2,
        start_with="apptainer",
    ),
    image=StartedImage(
        Path("/scratch/my dist/cuda.sif"),
        "1234 1764234900",
        binds=("/scratch/imagenet", "/scratch/text"),
        device_files=("/dev/nvidia?", "/dev/nvidia1?"),
        device_flags=("--nv",),
        facts='{"identity": "sha256:0123"}',
    ),
    folder=_RESULTS / "jobs",
    work=_WORK,
    tasks=tuple(
        ArrayTask(f"{number:016x}", _RESULTS / "beta" / f"{number:016x}.json", ("resnet50", "--replicas", "8"))
        for number in range(4)
    ),
)


def script_examples() -> Iterator[tuple[Path, str]]:
    """Yield the golden file of each example with its text."""
    for name, array in (("simple", _SIMPLE), ("whole", _WHOLE)):
        yield paths.GOLDEN / "studies" / f"slurm-{name}.sh", script_of(array)
