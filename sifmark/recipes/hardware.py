"""Kinds of accelerator, and the CPU: `recipes/hardware/*.toml`, the only place where the host has facts about them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.schemas import read_schema, read_toml

_SCHEMA = "hardware-1.0"
_STEM = re.compile(r"/dev/[A-Za-z_]+")  # of a device file, without its number
_UNKNOWN_FLOPS = 1e13  # FLOP/s assumed of a device that no file describes


@dataclass(frozen=True)
class Access:
    """How a container reaches the device: globs of its files on the host, and the engines' flags."""

    devices: tuple[str, ...]
    apptainer: tuple[str, ...] = ()
    docker: tuple[str, ...] = ()

    def is_allowed(self) -> bool:
        """Return whether hardware that we know may need this access. Labels of a foreign image can ask for anything."""
        only_devices = all(_device_pattern().fullmatch(path) and ".." not in path for path in self.devices)
        return only_devices and set(self.apptainer) <= flags_of("apptainer") and set(self.docker) <= flags_of("docker")

    def is_on_network(self) -> bool:
        """Return whether this host reaches the device over a network."""
        return "--network=host" in self.docker and bool(self.existing_files())

    def existing_files(self) -> list[str]:
        """Return the device files and folders that exist on this host."""
        return sorted(path for pattern in self.devices for path in glob(pattern))  # noqa: PTH207 - from the root

    def groups(self) -> list[int]:
        """Return the groups, but root's, that the device files belong to."""
        paths = [path for name in self.existing_files() for path in (Path(name), *Path(name).rglob("*"))]
        return sorted({path.stat().st_gid for path in paths if path.is_char_device()} - {0})


@dataclass(frozen=True)
class Question:
    """A vendor's program, and the pattern of the lines of its answer. `option` gets the value of `variable`."""

    command: tuple[str, ...]
    pattern: str
    option: str = ""
    variable: str = ""


@dataclass(frozen=True)
class CounterFiles:
    """Files of the kernel that count faults. The first `*` of the glob is the device; the pattern's group the count."""

    name: str
    files: str
    pattern: str


@dataclass(frozen=True)
class Hardware:
    """A kind of accelerator, or the CPU."""

    name: str
    device: str  # the module in entrypoints/devices/<framework>/
    aliases: tuple[str, ...]
    access: Access | None  # None for a CPU, which needs no device files
    selection: tuple[str, ...]  # variables that choose among the devices of a host
    selection_paths: tuple[str, ...]  # those whose value is a path
    share: str  # the variable by which runs side by side get devices of their own; empty: they cannot
    pci_vendor: str
    pci_classes: tuple[str, ...]  # how the classes of its cards begin
    flops: Mapping[str, float]  # FLOP/s of a device in a network by precision, assumed
    processes: Question | None = None  # which processes are on its devices: groups `pid` and `name`
    clocks: Question | None = None  # the clock of each device, in MHz: the group `clock`
    counters: Question | None = None  # faults that its driver counts: the group `device`, and one for each counter
    counter_files: tuple[CounterFiles, ...] = ()  # the same, by files of the kernel
    faults_name: str = ""  # what its vendor calls a fault in the kernel's log
    faults: str = ""  # the pattern of such a line: groups `device` and `code`


@cache
def hardware_names() -> tuple[str, ...]:
    """Return the names of all kinds of hardware, which are their file names."""
    return tuple(sorted(path.stem for path in paths.HARDWARE.glob("*.toml")))


@cache
def all_hardware() -> tuple[Hardware, ...]:
    """Return all kinds of hardware. Raises UsageError naming file, key and remedy."""
    return tuple(map(load_hardware, hardware_names()))


@cache
def load_hardware(name: str) -> Hardware:
    """Read a kind of hardware by name. Raises UsageError naming file, key and remedy."""
    document = read_toml(paths.HARDWARE / f"{name}.toml", _SCHEMA)
    selection, pci, faults = (document.get(name, {}) for name in ("selection", "pci", "faults"))
    return Hardware(
        name=name,
        device=document["device"],
        aliases=tuple(document.get("aliases", ())),
        access=access_of(document),
        selection=tuple(selection.get("variables", ())),
        selection_paths=tuple(selection.get("paths", ())),
        share=selection.get("share", ""),
        pci_vendor=pci.get("vendor", ""),
        pci_classes=tuple(pci.get("classes", ())),
        flops=document.get("flops", {}),
        processes=_question(document, "processes"),
        clocks=_question(document, "clocks"),
        counters=_question(document, "counters"),
        counter_files=tuple(CounterFiles(**table) for table in document.get("counter_files", ())),
        faults_name=faults.get("name", ""),
        faults=faults.get("pattern", ""),
    )


def _question(document: Mapping[str, Any], name: str) -> Question | None:
    if (asked := document.get(name)) is None:
        return None
    share = document.get("selection", {}).get("share", "")
    return Question(tuple(asked["command"]), asked["pattern"], asked.get("option", ""), share)


def access_of(document: Mapping[str, Any]) -> Access | None:
    """Return the access that the table `run` of a file describes, if it has one."""
    run = document.get("run")
    return run and Access(**{key: tuple(words) for key, words in run.items()})


def hardware_of(access: Access) -> Hardware | None:
    """Return the hardware behind device files: of those whose files are all among them, the one with the most."""
    asked = _stems(access)
    candidates = [each for each in all_hardware() if each.access and _stems(each.access) <= asked]
    return max(candidates, key=lambda each: len(_stems(each.access)), default=None)


def assumed_flops(device: str, precision: str) -> float:
    """Return the FLOP/s assumed of a kind of device in a network.

    Of hardware that shares its device, the slowest counts; for a precision without a number, the slowest one.
    """
    tables = [each.flops for each in all_hardware() if each.device == device]
    rates = [flops[precision] for flops in tables if precision in flops]
    return min(rates or (rate for flops in tables for rate in flops.values()), default=_UNKNOWN_FLOPS)


@cache
def flags_of(engine: str) -> frozenset[str]:
    """Return the flags of an engine that a file may ask for."""
    return frozenset(read_schema(_SCHEMA)["properties"]["run"]["properties"][engine]["items"]["enum"])


@cache
def _device_pattern() -> re.Pattern[str]:
    """Return what device files of known hardware are called: no image gets others."""
    stems = {stem for each in all_hardware() for stem in _stems(each.access)}
    return re.compile(rf"(?:{'|'.join(sorted(stems))})[A-Za-z0-9_*?-]*(/[A-Za-z0-9_*?.-]+)*")


def _stems(access: Access | None) -> frozenset[str]:
    """Return the beginnings of the names of device files, such as `/dev/nvidia`."""
    files: Iterable[str] = access.devices if access else ()
    return frozenset(match[0] for match in map(_STEM.match, files) if match)
