"""What an image sees of this host: told by a run of seconds inside it, whose result has it all."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sifmark.core.errors import SifmarkError
from sifmark.core.process import run
from sifmark.core.settings import settings
from sifmark.doctor.finding import BAD, GOOD, POOR, Finding
from sifmark.engines.locate import device_options, locate, require_signed
from sifmark.recipes.plan import DRIVER, WORKLOADS
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import load_text

PCI = Path("/sys/bus/pci/devices")
# By kind and vendor (NVIDIA, AMD, Intel) the classes of PCI: displays, among them controllers without one, and for AMD
# processing accelerators, which Intel's neural units are too.
CARDS = {("cuda", "0x10de"): ("0x03",), ("cuda", "0x1002"): ("0x03", "0x12"), ("xpu", "0x8086"): ("0x03",)}
_NUMBER = re.compile(r"\d+")
SMALLEST = "image_compression"
UNHINDERED = "throttling none"
# Parts of a result by what they are about, in the order in which they are told.
SECTIONS = {
    "driver": ("device_conditions.driver",),
    "clocks": ("device_conditions.clock", "device_conditions.clock_max", "device_conditions.memory_clock"),
    "power limit": ("device_conditions.power_cap", "conditions.cpu_power_cap"),
    "throttling": ("device_conditions.throttling",),
    "partitioning": ("device_conditions.partitioning",),
    "other tenants": (
        "device_conditions.other_processes",
        "device_conditions.memory_used",
        "conditions.runnable_others",
        "conditions.cpu_pressure",
    ),
    "topology": ("host.sockets", "host.cores", "conditions.numa_nodes_allowed", "conditions.cpu_affinity"),
}


def check_image(name: str) -> Iterator[Finding]:
    """The image's device, its driver and how it stands, its meter and its framework. Raises SifmarkError."""
    tool, address = locate(name if name not in recipe_names() else f"{SMALLEST}-{name}")
    seen = tool.image_info(address)
    if seen is None or SMALLEST not in seen.labels.get(WORKLOADS, "").split(","):
        raise SifmarkError(f"{address} has no {SMALLEST}, which this would run", "is it an image that sifmark built?")
    if settings().require_signature:
        require_signed(tool.inspect(address))
    options = [*tool.isolation_flags(), *device_options(tool, address)]
    argv = tool.command(address, "run", [SMALLEST, "--smoke"], options)
    done = run(argv, time_limit=settings().time_limit, check=False)
    result, problems = load_text(done.output.encode())
    if problems:
        raise SifmarkError(f"{address} answered with what is no result: {problems[0]}", "check it: inv verify")
    yield from check_result(result, seen.labels.get(DRIVER, ""))
    yield from check_host_devices(result["accelerator"]["kind"])


def check_result(result: dict[str, Any], driver: str = "") -> Iterator[Finding]:
    """What one result tells of the place where it was made; `driver` is the oldest that the image takes."""
    status, software = result["status"], result["provenance"]["software"]
    ended = GOOD if status["state"] == "completed" else BAD
    remedy = "" if ended == GOOD else "the README's table of failures has a remedy for each"
    yield Finding("run", ended, f"{status['state']}: {status['message']}", remedy)
    version = software["framework_version"] or "of a version that was not told"
    with_it = {"Python": software["python"], **software["libraries"]}
    versions = ", ".join(f"{name} {number}" for name, number in with_it.items())
    yield Finding("framework", GOOD, f"{software['framework']} {version}, {versions}")
    yield _device(result["accelerator"])
    for subject, fields in SECTIONS.items():
        told = list(filter(None, (_said(result, field) for field in fields)))
        held_back = subject == "throttling" and told != [UNHINDERED]
        if told:
            yield Finding(subject, POOR if held_back else GOOD, ", ".join(told))
    yield from _old_driver(result["device_conditions"].get("driver") or {}, driver, POOR if ended == GOOD else BAD)
    power = result["power"]
    if "source" in power:
        metered = ", ".join(device["name"] for device in power.get("devices", ()))
        yield Finding("meter", GOOD, f"{power['source']}, each {power['scope']}{metered and f': {metered}'}")
    else:
        yield Finding("meter", POOR, power["reason"], "without a meter a result has no energy; --meter names another")


def check_host_devices(kind: str) -> Iterator[Finding]:
    """The accelerators of this kind that the host has, by PCI address and NUMA node, in use or not."""
    found = []
    for place in sorted(PCI.glob("*")):
        with suppress(OSError):
            vendor, told = ((place / name).read_text().strip() for name in ("vendor", "class"))
            if told.startswith(CARDS.get((kind, vendor), ())):
                found.append(f"{place.name}{_numa_node(place)}")
    if found:
        yield Finding("host's cards", GOOD, f"{len(found)}: {', '.join(found)}")


def _numa_node(place: Path) -> str:
    with suppress(OSError):  # a kernel without NUMA
        if (node := (place / "numa_node").read_text().strip()) != "-1":
            return f" on NUMA node {node}"
    return ""


def _old_driver(seen: dict[str, Any], needed: str, how: str) -> Iterator[Finding]:
    """That a driver is older than the image takes, where both are numbers."""
    least, has = (_NUMBER.search(str(text)) for text in (needed, seen.get("value")))
    if least and has and int(has[0]) < int(least[0]):
        remedy = "update the driver, or take an image that needs no newer one: inv list"
        yield Finding("driver", how, f"{seen['value']} is older than {needed}, which this image needs", remedy)


def _device(device: dict[str, Any]) -> Finding:
    if "count" not in device:
        return Finding("device", BAD, f"{device['kind']}: {device['reason']}", "inv doctor says what this host has")
    named = device.get("name") or device["kind"]
    memory = f", {device['memory_mib'] / 1024:.1f} GiB" if "memory_mib" in device else ""
    which = f", {device['identifier']}" if "identifier" in device else ""
    return Finding("device", GOOD, f"{device['count']} x {named} ({device['granularity']}){memory}{which}")


def _said(result: dict[str, Any], field: str) -> str | None:
    """A fact with its unit; none where it is not known."""
    part, name = field.split(".")
    fact = result[part].get(name)
    if fact is None or fact["value"] is None:
        return None
    return f"{name.replace('_', ' ')} {fact['value']} {fact.get('unit', '')}".strip()
