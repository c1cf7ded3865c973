"""Scripts for LSF. Rendered and compared with texts; never run on a cluster of ours."""

from collections.abc import Iterator

from sifmark.studies.schedulers.dialects.script import Dialect, quoted, render
from sifmark.studies.schedulers.jobs import JobArray
from sifmark.studies.schedulers.options import devices_requested

LSF = Dialect(
    name="LSF",
    index="LSB_JOBINDEX",
    job='"${LSB_JOBID}[$LSB_JOBINDEX]"',
    restarts="0",
    node='"$HOSTNAME"',
    launch=("mpirun", "-np", "{}", "--npernode", "1"),
)


def lsf_script(array: JobArray) -> str:
    """Return the script of an array for `bsub <`."""
    return render(array, LSF, _options(array))


def _options(array: JobArray) -> Iterator[str]:
    shape, options, count = array.shape, array.options, len(array.elements)
    limit = options.max_jobs_in_flight
    yield f'#BSUB -J "sifmark-{array.study}[1-{count}]{f"%{limit}" if limit else ""}"'
    if options.partition:
        yield f"#BSUB -q {options.partition}"
    if options.account:
        yield f"#BSUB -P {options.account}"
    yield f"#BSUB -n {shape.nodes}"
    yield '#BSUB -R "span[ptile=1]"'
    if options.constraint:
        yield f'#BSUB -R "select[{options.constraint}]"'
    if options.exclusive:
        yield "#BSUB -x"
    if devices := devices_requested(options, shape.devices):
        yield f'#BSUB -gpu "num={devices.rpartition(":")[2]}"'
    yield f"#BSUB -W {shape.seconds // 3600}:{shape.seconds % 3600 // 60:02}"
    yield "#BSUB -wt 1 -wa TERM"
    yield "#BSUB -r"
    yield f"#BSUB -cwd {quoted(array.work)}"
    yield f"#BSUB -o {quoted(array.logs / '%I.log')}"
    yield from (f"#BSUB {line}" for line in options.extra)
