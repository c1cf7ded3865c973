"""Facts about the host and the conditions of a run, each a value or the reason why there is none. Linux."""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from pathlib import Path
from typing import Callable, Mapping

from entrypoints.system import allocator, cgroups
from entrypoints.system.cgroups import control_groups
from entrypoints.system.facts import Fact, fact

PROC = Path("/proc")
SYS_CPU = Path("/sys/devices/system/cpu")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
BOOST = {"intel_pstate/no_turbo": "0", "cpufreq/boost": "1"}  # files of the drivers, and their content when boost is on

UNITS_OF_CACHES = {"K": 2**10, "M": 2**20}


def facts() -> dict[str, Fact]:
    """Return what the host is."""
    return {
        "hostname": fact(socket.gethostname),
        "os": fact(operating_system),
        "kernel": fact(platform.release),
        "architecture": fact(platform.machine),
        "cpu_model": fact(cpu_model),
        "microcode": fact(lambda: cpuinfo().get("microcode")),
        "hypervisor": fact(hypervisor),
        "sockets": fact(lambda: len({package for package, _ in topology(online())}), "sockets"),
        "cores": fact(lambda: len(topology(online())), "cores"),
        "threads": fact(lambda: len(online()), "threads"),
        "threads_usable": fact(usable_threads, "threads"),
        "memory": fact(memory_mib, "MiB"),
    }


def conditions(power_cap: Callable[[], float]) -> dict[str, Fact]:
    """Return the host's conditions before a run, which may make runs differ. `power_cap`: the processors', in W."""
    return {
        "cpu_affinity": fact(lambda: ranges(os.sched_getaffinity(0))),
        "cpu_quota": fact(cpu_quota, "processors"),
        "cpu_governor": fact(lambda: frequency_setting("scaling_governor")),
        "cpu_clock_max": fact(lambda: clocks("scaling_max_freq"), "MHz"),
        "cpu_boost": fact(boost),
        "cpu_power_cap": fact(power_cap, "W"),
        "smt": fact(smt),
        "mitigations": fact(mitigations),
        "numa_nodes": fact(numa_nodes, "nodes"),
        "numa_nodes_allowed": fact(lambda: process_status("Mems_allowed_list")),
        "numa_policy": fact(numa_policy),
        "transparent_huge_pages": fact(transparent_huge_pages),
        "memory_limit": fact(memory_limit, "MiB"),
        "memory_allocator": fact(lambda: allocator.described(os.environ)),
        **state(),
    }


def conditions_after(before: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the host's conditions after a run, and what the `counters` gained since they were read as `before`.

    The counters are read first, so that the time that the rest takes is not among what they gained.
    """
    gained = {}
    for name, after in counters().items():
        unknown = next((record for record in (before[name], after) if record["value"] is None), None)
        gained[name] = unknown or {**after, "value": round(after["value"] - before[name]["value"], 6)}
    return {**state(), **gained}


def state() -> dict[str, Fact]:
    """Return conditions that change at any time, with other users of the host or with the run itself."""
    return {
        "cpu_clock": fact(clock, "MHz"),
        "load_average_1min": fact(lambda: os.getloadavg()[0], "runnable processes"),
        "runnable_others": fact(runnable_others, "threads"),
        "cpu_pressure": fact(lambda: pressure("cpu"), "%"),
        "memory_pressure": fact(lambda: pressure("memory"), "%"),
        "memory_available": fact(lambda: meminfo("MemAvailable"), "MiB"),
        "swap_used": fact(lambda: meminfo("SwapTotal") - meminfo("SwapFree"), "MiB"),
    }


def counters() -> dict[str, Fact]:
    """Return what the kernel counts all the time: the difference is the run's."""
    return {
        "cpu_throttled": fact(throttle_events, "events"),
        "cpu_quota_waited": fact(quota_waited, "s"),
        "cpu_stolen": fact(stolen, "s"),
        "elapsed_monotonic": fact(time.monotonic, "s"),
        "elapsed_kernel": fact(uptime, "s"),
    }


def operating_system() -> str:
    """Return the pretty name of the distribution; in a container the container's."""
    lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["PRETTY_NAME"].strip("\"'")


def cpuinfo() -> dict[str, str]:
    """Return the first processor's entry of /proc/cpuinfo."""
    first = (PROC / "cpuinfo").read_text("utf-8", "replace").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_model() -> str | None:
    """Return the marketing name of the processor; many ARM kernels have none."""
    return cpuinfo().get("model name")


def cpu_vendor() -> str | None:
    """Return the vendor in the processor's own words: GenuineIntel, AuthenticAMD; a number on ARM."""
    info = cpuinfo()
    return info.get("vendor_id") or info.get("CPU implementer")


def online() -> set[int]:
    """Return the numbers of the logical processors that are switched on."""
    return parse_ranges((SYS_CPU / "online").read_text())


def topology(processors: set[int]) -> set[tuple[int, int]]:
    """Return (package, core) of the cores that have one of these logical processors."""

    def read(processor: int, name: str) -> int:
        return int((SYS_CPU / f"cpu{processor}" / "topology" / name).read_text())

    return {(read(p, "physical_package_id"), read(p, "core_id")) for p in processors}


def last_level_cache() -> int:
    """Return the bytes of all last-level caches of the processors that this process may use.

    Raises OSError or ValueError where the kernel does not say, as in some virtual machines.
    """
    return sum(dict(map(_last_cache, os.sched_getaffinity(0))).values())


def _last_cache(processor: int) -> tuple[str, int]:
    """Return what tells a processor's last cache from others, and its bytes."""
    folders = (SYS_CPU / f"cpu{processor}" / "cache").glob("index*")
    level, last = max((int((folder / "level").read_text()), folder) for folder in folders)
    size = (last / "size").read_text().strip()
    return f"{level} {(last / 'shared_cpu_list').read_text()}", int(size[:-1]) * UNITS_OF_CACHES[size[-1]]


def usable_threads() -> int:
    """Return the number of logical processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def usable_cores() -> int:
    """Return the number of cores that this process may run on, within the control group's quota, at least 1."""
    try:
        cores = len(topology(os.sched_getaffinity(0)))
    except (OSError, ValueError):
        cores = usable_threads()
    quota = fact(cpu_quota)["value"]
    return cores if quota is None else max(1, min(cores, int(quota)))


def hypervisor() -> str:
    """Return whether this is a virtual machine: yes or no, on x86. Raises LookupError elsewhere."""
    if "flags" not in cpuinfo():
        raise LookupError("only x86 processors say whether a hypervisor runs")
    return "yes" if "hypervisor" in cpuinfo()["flags"].split() else "no"


def frequency_settings(name: str) -> list[str]:
    """Return a cpufreq setting for each logical processor of this process. Raises LookupError if there are none."""
    folders = (SYS_CPU / f"cpu{number}" / "cpufreq" for number in sorted(os.sched_getaffinity(0)))
    settings = [(folder / name).read_text().strip() for folder in folders if (folder / name).exists()]
    if not settings:
        raise LookupError("no cpufreq below /sys: a virtual machine, or no driver for it")
    return settings


def frequency_setting(name: str) -> str:
    """Return a cpufreq setting; different values of processors are joined."""
    return ", ".join(sorted(set(frequency_settings(name))))


def clocks(name: str) -> float:
    """Return the mean over the processors of a frequency in cpufreq, in MHz."""
    settings = frequency_settings(name)
    return sum(int(kilohertz) for kilohertz in settings) / len(settings) / 1000


def clock() -> float:
    """Return the mean clock in MHz of this process's processors; without cpufreq, of all in /proc/cpuinfo."""
    try:
        return clocks("scaling_cur_freq")
    except (OSError, LookupError):
        text = (PROC / "cpuinfo").read_text("utf-8", "replace")
    megahertz = [float(value) for value in re.findall(r"^cpu MHz\s*: ([0-9.]+)$", text, re.MULTILINE)]
    if not megahertz:
        raise LookupError("neither cpufreq nor /proc/cpuinfo has a clock")
    return sum(megahertz) / len(megahertz)


def boost() -> str:
    """Return whether processors may exceed their nominal clock: on or off. Raises LookupError if it is unknown."""
    for name, when_on in BOOST.items():
        if (SYS_CPU / name).exists():
            return "on" if (SYS_CPU / name).read_text().strip() == when_on else "off"
    raise LookupError("the frequency driver has no switch for it, or there is no driver")


def smt() -> str:
    """Return whether cores run several threads each: on or off."""
    return {"1": "on", "0": "off"}[(SYS_CPU / "smt" / "active").read_text().strip()]


def mitigations() -> str:
    """Return the flaws of this processor, each with the kernel's word: vulnerable, or a mitigation."""
    texts = {path.name: path.read_text().strip() for path in sorted((SYS_CPU / "vulnerabilities").iterdir())}
    words = {name: re.split("[:;]", text.replace("KVM: ", ""))[0].lower() for name, text in texts.items()}
    return ", ".join(f"{name}: {word}" for name, word in words.items() if word != "not affected") or "none needed"


def throttle_events() -> int:
    """Return how often cores have lowered their clocks because of heat since boot, over all cores (x86)."""
    by_core = {}
    for number in online():
        counter = SYS_CPU / f"cpu{number}" / "thermal_throttle" / "core_throttle_count"
        if not counter.exists():
            raise LookupError("the kernel does not count it: another vendor's processor, or a virtual machine")
        (core,) = topology({number})
        by_core[core] = int(counter.read_text())  # the threads of a core show the same counter
    return sum(by_core.values())


def quota_waited() -> float | None:
    """Return the seconds that threads of this control group waited for the next slice of its quota (cgroup v2)."""
    lines = "".join(control_groups("cpu.stat")[:1]).splitlines()
    waited = dict(line.split() for line in lines).get("throttled_usec")
    return None if waited is None else int(waited) / 1e6


def stolen() -> float:
    """Return the seconds that a hypervisor gave to others while this machine had work, over all its processors."""
    fields = (PROC / "stat").read_text().splitlines()[0].split()  # cpu user nice system idle iowait irq softirq steal
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def uptime() -> float:
    """Return the seconds since the system was started, to a hundredth, by the kernel itself: no library that replaces
    the clocks of a process changes it."""
    return float((PROC / "uptime").read_text().split()[0])


def runnable_others() -> int:
    """Return the number of runnable threads of the whole host, without the calling one."""
    return int((PROC / "loadavg").read_text().split()[3].split("/")[0]) - 1


def pressure(resource: str) -> float:
    """Return the percentage of the last ten seconds in which some thread of the host had to wait for a resource."""
    some = (PROC / "pressure" / resource).read_text().splitlines()[0].split()  # some avg10=0.00 avg60=...
    return float(dict(pair.split("=") for pair in some[1:])["avg10"])


def process_status(key: str) -> str:
    """Return one line of /proc/self/status."""
    lines = (PROC / "self" / "status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)[key].strip()


def numa_policy() -> str:
    """Return this process's memory policy, as numactl may have set it: default, bind:0, interleave:0-1."""
    return (PROC / "self" / "numa_maps").read_text().split(None, 2)[1]


def transparent_huge_pages() -> str:
    """Return when memory comes in huge pages without a request: always, madvise or never."""
    return re.findall(r"\[(\w+)\]", HUGE_PAGES.read_text())[0]


def numa_nodes() -> int:
    """Return the number of memory nodes that are switched on."""
    return len(parse_ranges(Path("/sys/devices/system/node/online").read_text()))


def meminfo(key: str) -> float:
    """Return one line of /proc/meminfo in MiB."""
    lines = (PROC / "meminfo").read_text().splitlines()
    values: Mapping[str, str] = dict(line.split(":", 1) for line in lines)
    return int(values[key].split()[0]) / 1024


def memory_mib() -> float:
    """Return the physical memory in MiB."""
    return meminfo("MemTotal")


def cpu_quota() -> float:
    """Return the processors' worth of time that the control groups allow (cgroup v2)."""
    limits = [line.split() for line in control_groups("cpu.max")]
    return cgroups.min_limit(int(quota) / int(period) for quota, period in limits if quota != "max")


def memory_limit() -> float:
    """Return the memory in MiB that the control groups allow, of either version."""
    return cgroups.min_limit(group.limit for group in cgroups.memory_cgroups())


def oom_kills() -> int:
    """Return how many processes the out-of-memory killer has killed in this control group, otherwise on this host."""
    try:
        return cgroups.oom_kills()
    except LookupError:
        counters = (PROC / "vmstat").read_text()
        return int(dict(line.split() for line in counters.splitlines()).get("oom_kill", 0))


def ranges(numbers: set[int]) -> str:
    """Return `0-3,8` for {0, 1, 2, 3, 8}."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def parse_ranges(text: str) -> set[int]:
    """Return {0, 1, 2, 3, 8} for `0-3,8`."""
    bounds = [[int(end) for end in part.split("-")] for part in text.strip().split(",")]
    return {number for bound in bounds for number in range(bound[0], bound[-1] + 1)}
