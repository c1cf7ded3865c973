"""The schedulers that scripts can be rendered for, by name."""

from collections.abc import Callable

from sifmark.core.errors import unknown_name
from sifmark.studies.schedulers.dialects.flux import flux_script
from sifmark.studies.schedulers.dialects.lsf import lsf_script
from sifmark.studies.schedulers.dialects.pbs import pbs_script
from sifmark.studies.schedulers.dialects.slurm import slurm_script
from sifmark.studies.schedulers.jobs import JobArray

SLURM = "slurm"
# Only Slurm's are submitted by sifmark, and proven on a cluster.
SCRIPTS: dict[str, Callable[[JobArray], str]] = {
    SLURM: slurm_script,
    "flux": flux_script,
    "lsf": lsf_script,
    "pbs": pbs_script,
}


def script_of(array: JobArray, scheduler: str) -> str:
    """Return the script of an array for a scheduler. Raises UsageError for an unknown one."""
    if scheduler not in SCRIPTS:
        raise unknown_name("scheduler", scheduler, SCRIPTS)
    return SCRIPTS[scheduler](array)
