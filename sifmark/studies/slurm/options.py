"""Job options: `[slurm]` of the settings, overridden by a system's own table in the study file."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sifmark.core.schemas import check_document

# Time limits are of these lengths, so that runs of nearly equal lengths share an array. Seconds.
TIME_CLASSES = tuple(60 * minutes for minutes in (10, 20, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 10080))
MARGIN = 2.0  # a time limit is so many times the estimate ...
START_SECONDS = 300.0  # ... and this, for an image that is read for the first time and for the correctness check
UNKNOWN_SECONDS = 3600  # the limit of a run without an estimate
ARRAY_SIZE = 1000  # Slurm's own MaxArraySize is 1001, which the largest index stays below


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a site asks of Slurm for every run on a system."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gpus_per_node: str = ""  # a number, or TYPE:NUMBER
    gres: str = ""
    cpus_per_task: int | None = None
    mem: str = ""
    seconds: int | None = None  # the time limit of every run; None: by estimate
    exclusive: bool = True
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    max_jobs_in_flight: int | None = None
    max_array_size: int = ARRAY_SIZE
    start_with: str = "sifmark"
    sifmark: str = ""  # "": the one that submits


def job_options(settings: Mapping[str, Any], own: Mapping[str, Any], where: str) -> JobOptions:
    """Return the options of a system: the site's, with the keys that the system has of its own replaced.

    Raises UsageError, naming `where`, for a key or a value of the system's that is not allowed.
    """
    check_document("settings-1.0", {"slurm": dict(own)}, where)
    values: dict[str, Any] = {**settings, **own}
    if time := values.pop("time", None):
        values["seconds"] = seconds_of(time)
    if "gpus_per_node" in values:
        values["gpus_per_node"] = str(values["gpus_per_node"])
    lists: dict[str, Any] = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return JobOptions(**{**values, **lists})


def seconds_of(limit: str) -> int:
    """Return the seconds of a time limit in Slurm's form: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    days, dash, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return int(days or 0) * 86400 + sum(part * unit for part, unit in zip(parts, units, strict=False))


def clock_of(seconds: int) -> str:
    """Return a time limit in Slurm's form: H:M:S, with days in front from one day on."""
    days, rest = divmod(seconds, 86400)
    return f"{days}-{hours_of(rest)}" if days else hours_of(rest)


def hours_of(seconds: int) -> str:
    """Return a time limit as H:M:S, with as many hours as it has."""
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def limit_of(estimate: float | None, options: JobOptions, at_least: float = 0.0) -> int:
    """Return a run's time limit in seconds: the site's, or one of the classes that leaves a margin.

    `at_least` is more than a limit that has been too short before, which counts more than the site's.
    """
    if options.seconds is not None and options.seconds >= at_least:
        return options.seconds
    wanted = UNKNOWN_SECONDS if estimate is None else estimate * MARGIN + START_SECONDS
    return time_class(max(wanted, at_least))


def time_class(seconds: float) -> int:
    """Return the shortest class that is long enough; beyond the longest whole days."""
    fitting = next((limit for limit in TIME_CLASSES if limit >= seconds), None)
    return math.ceil(seconds / 86400) * 86400 if fitting is None else fitting


def devices_requested(options: JobOptions, devices: int) -> str:
    """Return what is requested of each node: as the site wrote it, or of a shared node what the run computes on."""
    if options.exclusive or not options.gpus_per_node:
        return options.gpus_per_node
    kind = re.sub(r"\d+$", "", options.gpus_per_node)
    return f"{kind}{devices}"
