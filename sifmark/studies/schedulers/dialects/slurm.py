"""Scripts for Slurm."""

from collections.abc import Iterator

from sifmark.studies.schedulers.dialects.script import WARNING_SECONDS, Dialect, option_lines, render
from sifmark.studies.schedulers.jobs import JobArray
from sifmark.studies.schedulers.options import clock_of, devices_requested

SLURM = Dialect(
    name="Slurm",
    index="SLURM_ARRAY_TASK_ID",
    job='"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"',
    restarts="${SLURM_RESTART_COUNT:-0}",
    node='"${SLURMD_NODENAME:-$HOSTNAME}"',
    # --cpus-per-task: a step does not inherit the job's processors, and would run on one.
    launch=(
        *("srun", "--nodes={}", "--ntasks={}", "--ntasks-per-node=1"),
        '--cpus-per-task="${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}"',
    ),
)


def job_name(array: str) -> str:
    """Return the name of a job in Slurm's lists."""
    return f"sifmark-{array}"


def slurm_script(array: JobArray) -> str:
    """Return the script of an array for sbatch."""
    return render(array, SLURM, _options(array))


def _options(array: JobArray) -> Iterator[str]:
    shape, options, count = array.shape, array.options, len(array.elements)
    limit = options.max_jobs_in_flight
    # In a path Slurm replaces what follows a percent sign.
    log = str(array.logs / "INDEX.log").replace("%", "%%").replace("INDEX", "%a")
    values = {
        "job-name": job_name(array.name),
        "array": f"1-{count}%{limit}" if limit and limit < count else f"1-{count}",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "nodes": shape.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": options.cpus_per_task,
        "gpus-per-node": "" if options.gres else devices_requested(options, shape.devices),
        "gres": options.gres,
        "exclusive": options.exclusive,
        "mem": options.mem or ("0" if options.exclusive else ""),
        "time": clock_of(shape.seconds),
        "signal": f"TERM@{min(WARNING_SECONDS, shape.seconds // 4)}",
        "requeue": True,
        "open-mode": "append",
        "chdir": array.work,
        "output": log,
    }
    yield from option_lines("#SBATCH", values)
    yield from (f"#SBATCH {line}" for line in options.extra)
