"""The session that a run belongs to: the boot of its host, and the scheduler's job. Linux."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Mapping

from entrypoints.system.facts import Fact, FactError, fact

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4); a container reads that of its host
BOOT_FORM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Of Slurm, PBS, LSF and Flux. Flux comes last: inside another scheduler's job it numbers what runs within that.
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
JOB_FORM = re.compile(r"[!-~ƒ]{1,255}")  # Flux writes f in its identifiers as U+0192


def facts(environment: Mapping[str, str]) -> dict[str, Fact]:
    """Return the boot and the job of this process."""
    return {"boot": fact(boot), "job": fact(lambda: job(environment))}


def boot() -> str:
    """Return the identifier that the kernel drew when it started. Raises OSError or FactError if there is none."""
    text = BOOT_ID.read_text("utf-8", "replace").strip()
    if not BOOT_FORM.fullmatch(text):
        raise FactError(f"{BOOT_ID} has no identifier")
    return text


def job(environment: Mapping[str, str]) -> str:
    """Return the identifier of the scheduler's job. Raises FactError outside of one."""
    name = next((name for name in JOB_VARIABLES if environment.get(name)), None)
    if name is None:
        raise FactError(f"not in a job: none of {', '.join(JOB_VARIABLES)} is set")
    if not JOB_FORM.fullmatch(environment[name]):
        raise FactError(f"{name} is not an identifier of a job")
    return environment[name]
