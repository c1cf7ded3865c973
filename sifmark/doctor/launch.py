"""What the ranks of a run need of this node: the launcher's variables, shared memory, network interfaces. Linux."""

import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sifmark.core.checks import Check, Status
from sifmark.core.files import human_size
from sifmark.core.paths import import_shared
from sifmark.core.settings import Settings

PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is looked at, and no file is written there
LEAST_SHARED = 1 << 30  # bytes: Docker's own default of 64 MiB ends data workers and ranks
IPV6 = Path("/proc/net/if_inet6")  # address, index, prefix length, scope, flags and name of each
INFINIBAND = Path("/sys/class/infiniband")
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
SIOCGIFADDR = 0x8915  # linux/sockios.h
CLEANING = ("APPTAINER_CLEANENV", "SINGULARITY_CLEANENV")
_STEP = re.compile(r"/job_(\d+)/step_")  # of Slurm's control groups
_START_AGAIN = "start it by the launcher, without --cleanenv and without env -i"
Interfaces = Mapping[str, list[str]]  # addresses by name


def check_launch(_settings: Settings) -> Iterator[Check]:
    """Check what ranks need of this node; a launcher's task also sees its own number."""
    environment = os.environ
    yield from check_launcher(environment)
    yield from check_clean_environment(environment)
    yield from check_shared_memory()
    yield from check_network(environment)


def launch_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a task finds the others of its launch; none if no launcher started this process."""
    launcher = import_shared("runs.launch").launcher_of(environment)
    if launcher is None:
        return {}
    names = (launcher.task, launcher.tasks, launcher.local_task, launcher.local_tasks, *launcher.step)
    return {name: environment[name] for name in filter(None, names) if name in environment}


def check_launcher(environment: Mapping[str, str]) -> Iterator[Check]:
    """Say which launcher started this process as which of its tasks."""
    job = environment.get("SLURM_JOB_ID")
    variables = ", ".join(f"{name}={value}" for name, value in launch_variables(environment).items())
    try:
        launch = import_shared("runs.launch").launch_of(environment)
    except ValueError as error:
        remedy = f"{_START_AGAIN}; or unset these variables: {variables}"
        yield Check("launcher", Status.FAILED, str(error), remedy)
        return
    if launch is not None:
        detail = f"{launch.launcher}: task {launch.task} of {launch.tasks}, {launch.local_task} on its node"
        yield Check("launcher", Status.PASSED, f"{detail} ({variables})")
    elif job is not None:
        remedy = "needed only for several ranks: srun --ntasks-per-node=1 sifmark doctor"
        yield Check("launcher", Status.WARNING, f"none: in job {job} of Slurm, but in none of its steps", remedy)
    else:
        yield Check("launcher", Status.PASSED, "none: this process was started alone")


def check_clean_environment(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check whether something hides the launcher's variables: then each task believes that it is alone."""
    variables = launch_variables(environment)
    if cleaning := next((name for name in CLEANING if environment.get(name, "").lower() in ("1", "true", "yes")), None):
        hidden = f": {', '.join(variables)}" if variables else ""
        detail = f"{cleaning} hides the variables of launchers from images{hidden}"
        yield Check("environment", Status.WARNING, detail, f"needed only for several ranks: unset {cleaning}")
    if not variables and "SLURM_JOB_ID" not in environment and (job := _job_around()):
        detail = f"in job {job} of Slurm, but without its variables: each task believes that it is alone"
        yield Check("environment", Status.WARNING, detail, _START_AGAIN)


def check_shared_memory() -> Iterator[Check]:
    """Check the size of the memory by which ranks and data workers of a node exchange data."""
    name = str(SHARED_MEMORY)
    remedy = "in Docker: --shm-size=8g or --ipc=host; elsewhere: mount -o remount,size=8G /dev/shm"
    try:
        figures = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        yield Check(name, Status.WARNING, f"{error.strerror}", remedy)
        return
    size, free = figures.f_frsize * figures.f_blocks, figures.f_frsize * figures.f_bavail
    detail = f"{human_size(size)}, of which {human_size(free)} are free"
    if free < LEAST_SHARED:
        yield Check(name, Status.WARNING, f"{detail}: ranks and data workers may need more", remedy)
    else:
        yield Check(name, Status.PASSED, detail)


def interfaces() -> Interfaces:
    """Return the addresses of each network interface that has any: IPv4, then IPv6."""
    addresses: dict[str, list[str]] = defaultdict(list)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                addresses[name].append(socket.inet_ntoa(answer[20:24]))
    for line in IPV6.read_text().splitlines() if IPV6.exists() else []:
        digits, *_, name = line.split()
        addresses[name].append(str(ipaddress.IPv6Address(int(digits, 16))))
    return dict(addresses)


def own_addresses() -> list[str]:
    """Return the addresses that this host's name resolves to; none if it does not resolve."""
    with suppress(OSError):
        return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)))
    return []


def check_network(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check where ranks listen: at the interface that a variable names, else at the address of the host's name."""
    existing = interfaces()
    listed = "; ".join(f"{name} {' '.join(addresses)}" for name, addresses in existing.items())
    yield Check("network interfaces", Status.PASSED, listed or "none")
    if INFINIBAND.is_dir() and (devices := sorted(path.name for path in INFINIBAND.iterdir())):
        yield Check("RDMA devices", Status.PASSED, ", ".join(devices))
    for variable in (GLOO, NCCL):
        if chosen := environment.get(variable):
            yield _check_variable(variable, chosen, existing)
    if not environment.get(GLOO):
        yield _check_name(existing)


def _check_variable(variable: str, chosen: str, existing: Interfaces) -> Check:
    if matching := [name for name in existing if _matches(name, chosen, exact=variable == GLOO)]:
        return Check(variable, Status.PASSED, f"{chosen}: {', '.join(matching)}")
    remedy = f"name one of {', '.join(existing)}, or unset {variable}"
    return Check(variable, Status.FAILED, f"{chosen} is no network interface of this host", remedy)


def _matches(name: str, chosen: str, exact: bool) -> bool:
    """Return whether a variable chooses an interface. NCCL takes prefixes, `=` before names, `^` before exceptions."""
    negated, words = chosen.startswith("^"), chosen.lstrip("^=").split(",")
    if exact or chosen.lstrip("^").startswith("="):
        return (name in words) is not negated
    return name.startswith(tuple(words)) is not negated


def _check_name(existing: Interfaces) -> Check:
    host, addresses = socket.gethostname(), own_addresses()
    near = {address: name for name, own in existing.items() for address in own}
    outward = [address for address in addresses if address in near and not _is_loopback(address)]
    if outward and outward == [address for address in addresses if not _is_loopback(address)]:
        detail = ", ".join(f"{address} of {near[address]}" for address in outward)
        return Check("host name", Status.PASSED, f"{host} is {detail}, where gloo listens")
    if not addresses:
        detail = f"{host} does not resolve, so gloo listens at the loopback, which no other node reaches"
    elif strange := [address for address in addresses if address not in near and not _is_loopback(address)]:
        detail = f"{host} is {', '.join(strange)}, which no network interface of this host has"
    else:
        detail = f"{host} is {', '.join(addresses)}: gloo listens at the loopback, which no other node reaches"
    name = _outward(existing)
    remedy = f"needed only for ranks on several nodes: export {GLOO}={name} {NCCL}={name}"
    return Check("host name", Status.WARNING, detail, remedy)


def _outward(existing: Interfaces) -> str:
    """Return the first interface that other nodes may reach."""
    return next((name for name, addresses in existing.items() if _reachable(addresses)), "INTERFACE")


def _reachable(addresses: Iterable[str]) -> bool:
    return any(not _is_loopback(each) and not ipaddress.ip_address(each).is_link_local for each in addresses)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _job_around() -> str | None:
    """Return Slurm's job that this process is in, by its control group or by the environment of what started it."""
    with suppress(OSError):
        if match := _STEP.search((PROC / "self" / "cgroup").read_text()):
            return match[1]
    process = os.getppid()
    while process > 1:
        with suppress(OSError):  # another user's
            variables = (PROC / str(process) / "environ").read_bytes().split(b"\0")
            if job := next((each for each in variables if each.startswith(b"SLURM_JOB_ID=")), None):
                return job.partition(b"=")[2].decode()
        process = _parent(process)
    return None


def _parent(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        # The name, in brackets, may have blanks and brackets: proc_pid_stat(5).
        return int((PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0
