"""Scripts for PBS Professional and OpenPBS. Rendered and compared with texts; never run on a cluster of ours."""

from collections.abc import Iterator

from sifmark.studies.schedulers.dialects.script import Dialect, quoted, render
from sifmark.studies.schedulers.jobs import JobArray
from sifmark.studies.schedulers.options import devices_requested, hours_of

PBS = Dialect(
    name="PBS",
    index="PBS_ARRAY_INDEX",
    job='"$PBS_JOBID"',
    restarts="0",
    node='"$HOSTNAME"',
    launch=("mpiexec", "-n", "{}", "--ppn", "1"),
)


def pbs_script(array: JobArray) -> str:
    """Return the script of an array for qsub."""
    return render(array, PBS, _options(array))


def _options(array: JobArray) -> Iterator[str]:
    shape, options, count = array.shape, array.options, len(array.elements)
    limit = options.max_jobs_in_flight
    yield f"#PBS -N sifmark-{array.study}"
    if count > 1:  # a single run is no array to PBS
        yield f"#PBS -J 1-{count}{f'%{limit}' if limit else ''}"
    if options.partition:
        yield f"#PBS -q {options.partition}"
    if options.account:
        yield f"#PBS -A {options.account}"
    yield f"#PBS -l select={':'.join(_chunk(array))}"
    yield f"#PBS -l place=scatter{':exclhost' if options.exclusive else ''}"
    yield f"#PBS -l walltime={hours_of(shape.seconds)}"
    yield "#PBS -r y"
    yield "#PBS -j oe"
    yield f"#PBS -o {quoted(f'{array.logs}/')}"
    yield from (f"#PBS {line}" for line in options.extra)
    yield f"cd {quoted(array.work)} || exit 1"


def _chunk(array: JobArray) -> Iterator[str]:
    """Yield what is requested of each node."""
    options = array.options
    yield str(array.shape.nodes)
    if options.cpus_per_task:
        yield f"ncpus={options.cpus_per_task}"
    if devices := devices_requested(options, array.shape.devices):
        yield f"ngpus={devices.rpartition(':')[2]}"
    if options.mem and options.mem != "0":
        yield f"mem={options.mem}"
    if options.constraint:
        yield options.constraint
