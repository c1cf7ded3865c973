"""Facts about the host and the conditions of a run, each a value or the reason why there is none. Linux."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Union

Value = Union[str, int, float]
Fact = Dict[str, Any]  # value, unit, reason, as the result's schema has it

SYS_CPU = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")
MIB = 2**20


def facts() -> dict[str, Fact]:
    """What the host is."""
    return {
        "hostname": fact(socket.gethostname),
        "os": fact(operating_system),
        "kernel": fact(platform.release),
        "architecture": fact(platform.machine),
        "cpu_model": fact(cpu_model),
        "sockets": fact(lambda: len({package for package, _ in topology(online())}), "sockets"),
        "cores": fact(lambda: len(topology(online())), "cores"),
        "threads": fact(lambda: len(online()), "threads"),
        "threads_usable": fact(usable_threads, "threads"),
        "memory": fact(memory_mib, "MiB"),
    }


def conditions() -> dict[str, Fact]:
    """How the host stands before a run: what may make two runs on it differ."""
    return {
        "cpu_affinity": fact(lambda: ranges(os.sched_getaffinity(0))),
        "cpu_quota": fact(cpu_quota, "processors"),
        "cpu_governor": fact(governor),
        "numa_nodes": fact(numa_nodes, "nodes"),
        "load_average_1min": fact(lambda: os.getloadavg()[0], "runnable processes"),
        "memory_available": fact(lambda: meminfo("MemAvailable"), "MiB"),
        "memory_limit": fact(memory_limit, "MiB"),
        "swap_used": fact(lambda: meminfo("SwapTotal") - meminfo("SwapFree"), "MiB"),
    }


def fact(read: Callable[[], Value | None], unit: str | None = None) -> Fact:
    """What `read` returns, as a fact; null and the reason where it fails or knows nothing."""
    extra = {"unit": unit} if unit else {}
    try:
        value = read()
    except (OSError, LookupError, ValueError) as error:
        return {"value": None, **extra, "reason": str(error)}
    if value is None or value == "":
        return {"value": None, **extra, "reason": "the system does not say"}
    return {"value": value, **extra}


def operating_system() -> str:
    """Pretty name of the distribution whose files these are: in a container the container's."""
    lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["PRETTY_NAME"].strip("\"'")


def cpuinfo() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text("utf-8", "replace").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_model() -> str | None:
    """Marketing name of the processor; many ARM kernels print none."""
    return cpuinfo().get("model name")


def cpu_vendor() -> str | None:
    """Vendor of the processor as it names itself: GenuineIntel, AuthenticAMD; ARM gives a number."""
    info = cpuinfo()
    return info.get("vendor_id") or info.get("CPU implementer")


def online() -> set[int]:
    """Numbers of the logical processors that are switched on."""
    return parse_ranges((SYS_CPU / "online").read_text())


def topology(processors: set[int]) -> set[tuple[int, int]]:
    """(package, core) of the cores that have one of these logical processors."""

    def read(processor: int, name: str) -> int:
        return int((SYS_CPU / f"cpu{processor}" / "topology" / name).read_text())

    return {(read(p, "physical_package_id"), read(p, "core_id")) for p in processors}


def usable_threads() -> int:
    """Logical processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def usable_cores() -> int:
    """Cores that this process may run on, within the control group's quota, at least 1."""
    try:
        cores = len(topology(os.sched_getaffinity(0)))
    except (OSError, ValueError):
        cores = usable_threads()
    quota = fact(cpu_quota)["value"]
    return cores if quota is None else max(1, min(cores, int(quota)))


def governor() -> str:
    """Frequency governors in use, joined where processors differ."""
    found = {path.read_text().strip() for path in SYS_CPU.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    if not found:
        raise LookupError("no cpufreq below /sys: a virtual machine, or no driver for it")
    return ", ".join(sorted(found))


def numa_nodes() -> int:
    """Memory nodes that are switched on."""
    return len(parse_ranges(Path("/sys/devices/system/node/online").read_text()))


def meminfo(key: str) -> float:
    """One line of /proc/meminfo in MiB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    values: Mapping[str, str] = dict(line.split(":", 1) for line in lines)
    return int(values[key].split()[0]) / 1024


def memory_mib() -> float:
    """Physical memory in MiB."""
    return meminfo("MemTotal")


def cpu_quota() -> float:
    """Processors' worth of time that the control groups allow (cgroup v2)."""
    limits = [line.split() for line in control_groups("cpu.max")]
    return min_limit(int(quota) / int(period) for quota, period in limits if quota != "max")


def memory_limit() -> float:
    """Memory that the control groups allow in MiB (cgroup v2)."""
    limits = [line.strip() for line in control_groups("memory.max")]
    return min_limit(int(limit) / MIB for limit in limits if limit != "max")


def oom_kills() -> int:
    """Processes that the kernel's out-of-memory killer has killed in this control group, else on this host."""
    try:
        counters = control_groups("memory.events")[0]
    except (OSError, LookupError):
        counters = Path("/proc/vmstat").read_text()
    return int(dict(line.split() for line in counters.splitlines()).get("oom_kill", 0))


def control_groups(name: str) -> list[str]:
    """A file of this process's control group and of those above it, nearest first (cgroup v2)."""
    if not (CGROUP / "cgroup.controllers").exists():
        raise LookupError("no unified control groups (cgroup v2)")
    own = CGROUP / own_group()
    folders = (folder for folder in (own, *own.parents) if folder == CGROUP or CGROUP in folder.parents)
    return [(folder / name).read_text() for folder in folders if (folder / name).exists()]


def own_group() -> str:
    """This process's control group, as a path below the root of all (cgroup v2)."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")


def min_limit(limits: Iterable[float]) -> float:
    """The tightest of the limits. Raises LookupError where there is none."""
    tightest = min(limits, default=None)
    if tightest is None:
        raise LookupError("no limit is set")
    return tightest


def ranges(numbers: set[int]) -> str:
    """`0-3,8` for {0, 1, 2, 3, 8}."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def parse_ranges(text: str) -> set[int]:
    """{0, 1, 2, 3, 8} of `0-3,8`."""
    bounds = [[int(end) for end in part.split("-")] for part in text.strip().split(",")]
    return {number for bound in bounds for number in range(bound[0], bound[-1] + 1)}
