"""What an image sees of this host: a run of seconds inside it, whose result has it all."""

import os
import re
from collections.abc import Iterator
from typing import Any

from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.doctor.cards import check_host_devices
from sifmark.doctor.launch import CLEANING, launch_variables
from sifmark.engines import Engine, require_signed
from sifmark.engines.locate import locate, run_isolated
from sifmark.recipes.labels import DRIVER, WORKLOADS
from sifmark.recipes.names import SMALLEST, smallest_image
from sifmark.recipes.recipe import recipe_names
from sifmark.results.load import load_text
from sifmark.results.warnings import disturbances

_OF_ENGINES = ("PATH", "HOME", "DOCKER_HOST", "APPTAINER_CONFIGDIR", "APPTAINER_TMPDIR")
_NUMBER = re.compile(r"\d+")
_NO_THROTTLING = "throttling none"
# Fields of a result by what they are about, in the order in which they are reported.
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


def check_image(name: str, engine: Engine, settings: Settings) -> Iterator[Check]:
    """Run an image for seconds; yield its device, its driver and its state, its meter and its framework.

    A recipe's name stands for its smallest image. Raises SifmarkError if the image gives no result.
    """
    address = engine.pinned(locate(name if name not in recipe_names() else smallest_image(name), engine))
    info = engine.image_info(address)
    if info is None or SMALLEST not in info.labels.get(WORKLOADS, "").split(","):
        cause = f"{address} has no {SMALLEST}, which this would run"
        raise SifmarkError(cause, "is it an image that sifmark built?", code="not-sifmark-image")
    if settings.require_signature:
        require_signed(engine.inspect(address), settings.keys)
    command = run_isolated(engine, address, "run", [SMALLEST, "--smoke"], check=False)
    result, problems = load_text(command.output.encode())
    if problems:
        cause = f"{address} did not answer with a result: {problems[0]}"
        raise SifmarkError(cause, "check it: sifmark verify", code="result-invalid")
    yield from check_result(result, info.labels.get(DRIVER, ""))
    yield from check_host_devices(result["accelerator"]["kind"])
    yield from check_variables(address, engine)


def check_variables(address: str, engine: Engine) -> Iterator[Check]:
    """If a launcher has started this process, check whether a run of the image sees its variables."""
    if not (outside := launch_variables(os.environ)):
        return
    # The image gets no other variables of the user; of those for engines, what decides whether it gets these.
    handed = {name: os.environ[name] for name in (*outside, *CLEANING, *_OF_ENGINES) if name in os.environ}
    shown = run_isolated(engine, address, "exec", ["env"], variables=handed).output.splitlines()
    if hidden := [name for name in outside if not any(line.startswith(f"{name}=") for line in shown)]:
        detail = f"the image does not see {', '.join(hidden)}: each task believes that it is alone"
        remedy = f"unset {' '.join(CLEANING)}, leave out --cleanenv; in Docker: --env=NAME for each"
        yield Check("launcher", Status.WARNING, detail, remedy)
    else:
        yield Check("launcher", Status.PASSED, f"the image sees {', '.join(outside)}")


def check_result(result: dict[str, Any], driver: str = "") -> Iterator[Check]:
    """Yield what one result says of the host where it was made; `driver` is the oldest that the image takes."""
    yield (ended := _check_run(result["status"]))
    yield _check_framework(result["provenance"]["software"])
    yield _check_device(result["accelerator"])
    for name, fields in SECTIONS.items():
        facts = list(filter(None, (_describe(result, field) for field in fields)))
        throttled = name == "throttling" and facts != [_NO_THROTTLING]
        if facts:
            yield Check(name, Status.WARNING if throttled else Status.PASSED, ", ".join(facts))
    for text in disturbances(result):
        remedy = "stop other work on this host, or reserve it: docs/measure/good-numbers.md"
        yield Check("other work", Status.WARNING, text, remedy)
    too_old = Status.WARNING if ended.status is Status.PASSED else Status.FAILED
    yield from _check_driver(result["device_conditions"].get("driver") or {}, driver, too_old)
    yield _check_meter(result["power"])


def _check_run(status: dict[str, Any]) -> Check:
    detail = f"{status['state']}: {status['message']}"
    if status["state"] == "completed":
        return Check("run", Status.PASSED, detail)
    return Check("run", Status.FAILED, detail, "see docs/reference/exit-codes.md for what to do")


def _check_framework(software: dict[str, Any]) -> Check:
    version = software["framework_version"] or "of an unknown version"
    packages = {"Python": software["python"], **software["libraries"]}
    versions = ", ".join(f"{name} {number}" for name, number in packages.items())
    return Check("framework", Status.PASSED, f"{software['framework']} {version}, {versions}")


def _check_meter(power: dict[str, Any]) -> Check:
    if "source" not in power:
        remedy = "without a meter a result has no energy; --meter names another"
        return Check("meter", Status.WARNING, power["reason"], remedy)
    devices = ", ".join(device["name"] for device in power.get("devices", ()))
    return Check("meter", Status.PASSED, f"{power['source']}, each {power['scope']}{devices and f': {devices}'}")


def _check_driver(driver: dict[str, Any], needed: str, too_old: Status) -> Iterator[Check]:
    """Yield a check with status `too_old` if a driver is older than the image takes, where both have numbers."""
    minimum, version = (_NUMBER.search(str(text)) for text in (needed, driver.get("value")))
    if minimum and version and int(version[0]) < int(minimum[0]):
        remedy = "update the driver, or take an image that needs no newer one: sifmark list"
        yield Check("driver", too_old, f"{driver['value']} is older than {needed}, which this image needs", remedy)


def _check_device(device: dict[str, Any]) -> Check:
    if "count" not in device:
        detail = f"{device['kind']}: {device['reason']}"
        return Check("device", Status.FAILED, detail, "sifmark doctor says what this host has")
    name = device.get("name") or device["kind"]
    memory = f", {device['memory_mib'] / 1024:.1f} GiB" if "memory_mib" in device else ""
    identifier = f", {device['identifier']}" if "identifier" in device else ""
    detail = f"{device['count']} x {name} ({device['granularity']}){memory}{identifier}"
    return Check("device", Status.PASSED, detail)


def _describe(result: dict[str, Any], field: str) -> str | None:
    """Return a fact with its name and unit, or None if it is unknown."""
    part, name = field.split(".")
    fact = result[part].get(name)
    if fact is None or fact["value"] is None:
        return None
    return f"{name.replace('_', ' ')} {fact['value']} {fact.get('unit', '')}".strip()
