"""Counters of faults on this host: by the kernel's files, vendors' programs, and the kernel's log.

Kernel files: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats, sysfs-devices-edac, sysfs-devices-system-cpu
and stable/sysfs-class-infiniband; the log: Documentation/ABI/testing/dev-kmsg. What vendors count is in
recipes/hardware/*.toml.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from sifmark.doctor.load import answers_of
from sifmark.recipes.hardware import CounterFiles, Hardware

KERNEL_LOG = Path("/dev/kmsg")
_PCI, _EDAC = "/sys/bus/pci/devices/*", "/sys/devices/system/edac/mc/*"
_CPU, _PORT = "/sys/devices/system/cpu/*/thermal_throttle", "/sys/class/infiniband/*/ports/*/counters"
KERNEL_FILES = (
    CounterFiles("pcie_correctable", f"{_PCI}/aer_dev_correctable", r"TOTAL_ERR_COR (\d+)"),
    CounterFiles("pcie_nonfatal", f"{_PCI}/aer_dev_nonfatal", r"TOTAL_ERR_NONFATAL (\d+)"),
    CounterFiles("pcie_fatal", f"{_PCI}/aer_dev_fatal", r"TOTAL_ERR_FATAL (\d+)"),
    CounterFiles("memory_corrected", f"{_EDAC}/ce_count", r"(\d+)"),
    CounterFiles("memory_uncorrected", f"{_EDAC}/ue_count", r"(\d+)"),
    CounterFiles("cpu_throttled", f"{_CPU}/core_throttle_count", r"(\d+)"),
    CounterFiles("link_downed", f"{_PORT}/link_downed", r"(\d+)"),
    CounterFiles("link_recovered", f"{_PORT}/link_error_recovery", r"(\d+)"),
    CounterFiles("link_symbol_errors", f"{_PORT}/symbol_error", r"(\d+)"),
)
# A node is named if one of these rises, or if the log has a fault; the others are only shown.
FATAL = frozenset(("ecc_uncorrected", "memory_uncorrected", "pcie_nonfatal", "pcie_fatal", "link_downed"))
_LONGEST_LINE = 8192  # bytes that one read of the log returns at most
_BOOT = Path("/proc/sys/kernel/random/boot_id")

ByDevice = Mapping[str, int]


@dataclass(frozen=True)
class Counters:
    """What was counted since boot or since a driver was loaded: by name and device, zeros left out."""

    values: Mapping[str, ByDevice]
    missing: tuple[str, ...]  # names that nothing counts here
    sequence: int | None  # of the last line of the kernel's log; None if this user may not read it
    boot: str

    def rises(self, before: "Counters") -> Iterator["Rise"]:
        """Yield the counters that are higher than before. After a boot all count from 0."""
        for name, devices in self.values.items():
            earlier = before.values.get(name, {}) if before.boot == self.boot else {}
            for device, value in devices.items():
                if value > (known := earlier.get(device, 0)):
                    yield Rise(name, device, value - known, name in FATAL)


@dataclass(frozen=True)
class Rise:
    """How much a counter of a device rose."""

    name: str
    device: str
    count: int
    fatal: bool

    def __str__(self) -> str:
        return f"{self.name} of {self.device} rose by {self.count}"


def read_counters(hardware: Sequence[Hardware], root: Path = Path("/"), log: Path = KERNEL_LOG) -> Counters:
    """Return what is counted on this host now; `root` is where its kernel's files are."""
    values: dict[str, dict[str, int]] = defaultdict(dict)
    names: list[str] = []
    counted: set[str] = set()
    for files in (*KERNEL_FILES, *(each for kind in hardware for each in kind.counter_files)):
        names.append(files.name)
        for device, value in _of_files(files, root):
            counted.add(files.name)
            values[files.name][device] = values[files.name].get(device, 0) + value
    for each in hardware:
        names += re.compile(each.counters.pattern).groupindex.keys() - {"device"} if each.counters else ()
        for found in answers_of(each.counters):
            device = found.get("device") or each.name
            for name in found.keys() - {"device"}:
                counted.add(name)
                values[name][device] = values[name].get(device, 0) + int(found[name])
    present = {name: {device: n for device, n in each.items() if n} for name, each in values.items()}
    sequence = max((number for number, _ in _lines(log)), default=None)
    missing = dict.fromkeys(name for name in names if name not in counted)
    return Counters({name: each for name, each in present.items() if each}, tuple(missing), sequence, boot_id())


def faults_since(sequence: int | None, hardware: Iterable[Hardware], log: Path = KERNEL_LOG) -> list[Rise]:
    """Return the faults of devices that the kernel's log has after a line: such as Xids, by device and code."""
    if sequence is None:
        return []
    counts: dict[tuple[str, str], int] = defaultdict(int)
    kinds = [(each.faults_name, re.compile(each.faults)) for each in hardware if each.faults]
    for _, line in ((number, line) for number, line in _lines(log) if number > sequence):
        for name, pattern in kinds:
            if match := pattern.search(line):
                counts[f"{name} {match['code']}", match["device"]] += 1
    return [Rise(name, device, count, fatal=True) for (name, device), count in sorted(counts.items())]


def boot_id() -> str:
    """Return the identifier of this boot; empty where the kernel does not tell."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


def _of_files(files: CounterFiles, root: Path) -> Iterator[tuple[str, int]]:
    """Yield the device and the count of each file, the device being what the first `*` of the glob stands for."""
    pattern = re.compile(re.escape(files.files).replace(r"\*", "([^/]+)"))
    for path in glob(f"{root}{files.files}".replace("//", "/")):  # noqa: PTH207 - from the root
        with suppress(OSError, ValueError):
            place = pattern.search(path)
            if place and (match := re.search(files.pattern, Path(path).read_text())):
                yield place[1], int(match[1])


def _lines(log: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of the kernel's log with their numbers; nothing where this user may not read it."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        while record := _record(descriptor):
            for line in record.splitlines():
                head, _, text = line.partition(";")
                with suppress(ValueError, IndexError):  # the first line of a record is the message
                    yield int(head.split(",")[1]), text
    finally:
        os.close(descriptor)


def _record(descriptor: int) -> str:
    """Return the next record of the log, empty after the last. What was overwritten meanwhile is left out."""
    while True:
        try:
            return os.read(descriptor, _LONGEST_LINE).decode(errors="replace")
        except BrokenPipeError:  # EPIPE: records were overwritten; the next read goes on with the oldest
            continue
        except OSError:  # EAGAIN: no more
            return ""
