"""The job script of an array that does not depend on this host: a golden text."""

from collections.abc import Iterator
from pathlib import Path

from sifmark.core import paths
from sifmark.studies.slurm.jobs import ArrayTask, JobArray, JobShape, StartedImage
from sifmark.studies.slurm.options import JobOptions
from sifmark.studies.slurm.script import script_of

_RESULTS = Path("/scratch/results/turing")
_WORK = Path("/home/user/my studies")
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
        f"sha256:{'0' * 64}",
        flags=("--bind", "/scratch/imagenet:/scratch/imagenet:ro"),
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
    """Yield the golden file with its text."""
    yield paths.GOLDEN / "studies" / "slurm-whole.sh", script_of(_WHOLE)
