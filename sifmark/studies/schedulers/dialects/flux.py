"""Scripts for Flux. Rendered and compared with texts; never run on a cluster of ours."""

from collections.abc import Iterator

from sifmark.studies.schedulers.dialects.script import WARNING_SECONDS, Dialect, option_lines, render
from sifmark.studies.schedulers.jobs import JobArray
from sifmark.studies.schedulers.options import devices_requested

FLUX = Dialect(
    name="Flux",
    index="FLUX_JOB_CC",
    job='"${FLUX_ENCLOSING_ID:-$FLUX_JOB_ID}"',
    restarts="0",
    node='"$HOSTNAME"',
    launch=("flux", "run", "--nodes={}", "--tasks-per-node=1", "--exclusive"),
)


def flux_script(array: JobArray) -> str:
    """Return the script of an array for `flux batch --cc=1-N`. Flux has no limit of an array's jobs in flight."""
    return render(array, FLUX, _options(array))


def _options(array: JobArray) -> Iterator[str]:
    shape, options = array.shape, array.options
    yield f"# Submit it with: flux batch --cc=1-{len(array.elements)} {array.script.name}"
    devices = devices_requested(options, shape.devices).rpartition(":")[2]
    values = {
        "job-name": f"sifmark-{array.study}",
        "queue": options.partition,
        "bank": options.account,
        "requires": options.constraint,
        "nodes": shape.nodes,
        "exclusive": options.exclusive,
        "gpus-per-slot": "" if options.exclusive else devices,
        "time-limit": f"{shape.seconds}s",
        "signal": f"TERM@{min(WARNING_SECONDS, shape.seconds // 4)}s",
        "cwd": array.work,
        "output": array.logs / "{cc}.log",
    }
    yield from option_lines("#flux:", values)
    yield from (f"#flux: {line}" for line in options.extra)
