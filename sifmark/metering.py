"""Energy of a command or a block of Python, by every meter of this host. The meters are those of runs in images."""

import contextlib
import io
import itertools
import json
import math
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.core.files import write_json
from sifmark.core.paths import import_shared
from sifmark.core.schemas import check_document
from sifmark.redfish import PERIOD as BMC_PERIOD
from sifmark.redfish import Redfish, read_bmc

SCHEMA = "meter-1.0"
PERIOD = 0.1  # s between two readings
Document = dict[str, Any]
Window = tuple[float, float]  # from, until; s of the monotonic clock


@dataclass
class Energy:
    """What a block used. Complete when it has ended; `document` follows schemas/meter-1.0.json.

    Meters may count the same energy, as that of a board does the energy of its package: they are not added.
    """

    document: Document = field(default_factory=dict)

    @property
    def meters(self) -> list[Document]:
        """What each meter read. Raises RuntimeError before the block has ended."""
        if not self.document:
            raise RuntimeError("the metered block has not ended")
        return list(self.document["meters"])

    @property
    def joules(self) -> dict[str, float | None]:
        """Energy in J of all devices of each meter, by its source; None where `document` has the reason."""
        return {each["source"]: each["energy"]["value"] for each in self.meters}

    def write(self, target: str) -> Path:
        """Write the document to a file, or with a slash at the end to one of this rank in a folder; return where.

        `sifmark meter --sum FOLDER` adds up those of all ranks. Raises UsageError if ranks would share a file,
        RuntimeError before the block has ended.
        """
        path = place_of(target)
        write_json(path, {**self.document, "meters": self.meters})
        return path

    @property
    def watts(self) -> dict[str, float | None]:
        """Mean power in W of all devices of each meter, by its source."""
        return {each["source"]: each["power_mean"]["value"] for each in self.meters}


@contextlib.contextmanager
def meter(*choices: str, period: float = PERIOD, bmc: str | Path = "") -> Iterator[Energy]:
    """Meter a block by every meter of this host, or by those of these names: `rapl`, `nvml:0`, `rapl:/powercap`.

    A reading is taken each `period` seconds. Of the tasks that a launcher started on a node, one counts each device.
    Without any meter, `Energy.joules` is empty, and `Energy.document` has the reasons. `bmc` is a file that only its
    owner may read, about a BMC that is asked for the power of the whole node, once a second at most.

    Raises UsageError for a meter that does not exist, for such a file that cannot be used, and for a launcher whose
    variables are not complete.
    """
    require_meters(choices)
    launch = _launch()
    if not period > 0:
        raise UsageError(f"the period is a time above 0 s, not {period:g}", "for example 0.1", code="invalid-option")
    missing, samplers = _samplers(choices, period)
    energy = Energy()
    started = datetime.now(UTC)
    with contextlib.ExitStack() as sampling, _of_bmc(Path(bmc) if bmc else None, period) as (unread, of_node):
        missing, samplers = missing + unread, samplers + of_node
        for sampler in samplers:
            sampler.sample()
            sampling.enter_context(sampler.running())
        begin = time.monotonic()
        try:
            yield energy
        finally:
            window = (begin, time.monotonic())
            sampling.close()  # which takes the last readings
            energy.document.update(_document(started, window, launch, samplers, missing))


def require_meters(choices: Iterable[str]) -> None:
    """Raise UsageError if a meter does not exist."""
    known = import_shared("metering.names").names()
    for choice in choices:
        if choice.partition(":")[0] not in known:
            raise unknown_name("meter", choice.partition(":")[0], known)


def _samplers(choices: Sequence[str], period: float) -> tuple[list[Document], list[Any]]:
    """Return which meters are missing and why, and what reads the others."""
    absence = import_shared("metering.meter").Absence
    sampler = import_shared("metering.sampling").Sampler
    elsewhere = import_shared("runs.metered").counted_elsewhere
    missing, samplers = [], []
    said = io.StringIO()  # by libraries of vendors when they are loaded; what is missing is in the reasons
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        found = list(import_shared("metering.selection").each_meter(choices))
    for name, each in found:
        if isinstance(each, absence):
            missing.append({"meter": name, "reason": printable(each.reason), "elsewhere": False})
        elif reason := elsewhere(each.facts.source, each.facts.devices):
            missing.append({"meter": name, "reason": printable(reason), "elsewhere": True})
        else:
            samplers.append(sampler(each, period))
    return missing, samplers


@contextlib.contextmanager
def _of_bmc(file: Path | None, period: float) -> Iterator[tuple[list[Document], list[Any]]]:
    """Yield why the BMC that a file names is no meter, and what reads it if it is one."""
    if file is None:
        yield [], []
        return
    try:
        node = Redfish(read_bmc(file))
    except import_shared("metering.meter").MeterError as error:
        yield [{"meter": "redfish", "reason": printable(str(error)), "elsewhere": False}], []
        return
    try:
        if reason := import_shared("runs.metered").counted_elsewhere(node.facts.source, node.facts.devices):
            yield [{"meter": "redfish", "reason": printable(reason), "elsewhere": True}], []
        else:
            yield [], [import_shared("metering.sampling").Sampler(node, max(period, BMC_PERIOD))]
    finally:
        node.close()


def _launch() -> Any | None:
    """Return the launch that this process is a task of; None if it was started alone. Raises UsageError."""
    try:
        return import_shared("runs.launch").launch_of(os.environ)
    except ValueError as error:
        remedy = "start it again by the launcher, or unset its variables"
        raise UsageError(str(error), remedy, code="invalid-option") from None


def _document(
    started: datetime, window: Window, launch: Any | None, samplers: Iterable[Any], missing: list[Document]
) -> Document:
    return {
        "schema_version": "1.0",
        "host": socket.gethostname(),
        "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "seconds": window[1] - window[0],
        "launch": launch
        and {"launcher": launch.launcher, "step": list(launch.step), "task": launch.task, "tasks": launch.tasks},
        "command": None,
        "exit_code": None,
        "meters": [_metered(sampler.recording(), window) for sampler in samplers],
        "missing": missing,
    }


def _metered(recording: Any, window: Window) -> Document:
    """Return what a meter read, in the terms of the part `power` of a result."""
    energy, number = import_shared("metering.energy"), import_shared("results.json_values").number
    facts, seconds = recording.facts, window[1] - window[0]
    used, reason = None, None
    try:
        used = energy.window_energy(recording, window)
    except energy.EnergyError as error:
        reason = printable(str(error))
    joules = list(used.joules) if used else [None] * len(facts.devices)
    total = math.fsum(used.joules) if used else None
    peak, peak_method = _peak(recording, window)
    difference = used.counter_integral_difference if used else None
    return {
        "source": facts.source,
        "scope": facts.scope,
        "simulated": facts.simulated,
        "method": used.method if used else None,
        "sampling_period_seconds": recording.period,
        "update_period_seconds": facts.update_period,
        "averaging_time": number(facts.averaging, "s", facts.averaging_reason),
        "samples": len(recording.times),
        "failed_readings": recording.failures,
        "counter_integral_difference": number(difference, "1", reason or "the meter has only one of both"),
        "energy": number(total, "J", reason),
        "power_mean": number(total and total / seconds, "W", reason),
        "power_peak": number(peak, "W", "no reading lies in the window"),
        "peak_method": peak_method,
        "devices": [
            {"name": printable(name), "energy": number(value, "J", reason)}
            for name, value in zip(facts.devices, joules, strict=True)
        ],
    }


def _peak(recording: Any, window: Window) -> tuple[float | None, str]:
    """Return the largest power of all devices together in W, and what it is."""
    times = recording.times
    if recording.watts:
        readings = zip(times, *recording.watts, strict=True)
        return max((math.fsum(watts) for at, *watts in readings if _inside(at, window)), default=None), "reading"
    gain, ranges = import_shared("metering.energy").gain, recording.facts.counter_ranges
    means = []
    with contextlib.suppress(import_shared("metering.energy").EnergyError):  # a counter was reset
        for at, (before, after) in enumerate(itertools.pairwise(times)):
            gains = [gain(*joules[at : at + 2], top) for joules, top in zip(recording.joules, ranges, strict=True)]
            if _inside(before, window) and _inside(after, window):
                means.append(math.fsum(gains) / (after - before))
    return max(means, default=None), "mean between two readings"


def _inside(at: float, window: Window) -> bool:
    return window[0] <= at <= window[1]


def sum_of_ranks(documents: Mapping[str, Document]) -> Document:
    """Return the energy of all ranks of a launch together, by source, from their documents by file.

    Energy is null with the reason if a rank left no document, or a host has not this meter.
    Raises UsageError if a document is not valid, SifmarkError if they are of several launches, or count a device twice.
    """
    for file, document in documents.items():
        check_document(SCHEMA, document, file)
    every = list(documents.values())
    launches = {str(each["launch"] and (each["launch"]["launcher"], each["launch"]["step"])) for each in every}
    if len(launches) > 1:
        cause = f"the documents are of {len(launches)} launches"
        raise SifmarkError(cause, "give those of one: a folder for each", code="document-invalid")
    tasks = every[0]["launch"]["tasks"] if every[0]["launch"] else len(every)
    sources = sorted({(each["source"], each["scope"]) for document in every for each in document["meters"]})
    return {
        "ranks": tasks,
        "documents": len(every),
        "hosts": len({document["host"] for document in every}),
        "meters": [_summed(source, scope, every, tasks) for source, scope in sources],
    }


def _summed(source: str, scope: str, documents: Sequence[Document], tasks: int) -> Document:
    """Return what all devices of a source used. Raises SifmarkError if one was counted twice."""
    parts = [
        (document["host"], each)
        for document in documents
        for each in document["meters"]
        if (each["source"], each["scope"]) == (source, scope)
    ]
    devices = Counter((host, device["name"]) for host, each in parts for device in each["devices"])
    if twice := [f"{name} of {host}" for (host, name), count in devices.items() if count > 1]:
        cause = f"{source}: {', '.join(twice)} was counted by several ranks"
        raise SifmarkError(cause, "ranks in containers must share the host's network", code="document-invalid")
    without = sorted({document["host"] for document in documents} - {host for host, _ in parts})
    reasons = [f"{host}: {each['energy']['reason']}" for host, each in parts if each["energy"]["value"] is None]
    reasons += [f"{host} has no meter {source}" for host in without]
    if len(documents) < tasks:
        reasons.append(f"{len(documents)} of {tasks} ranks left a document")
    number, reason = import_shared("results.json_values").number, reasons[0] if reasons else None
    total, power = (
        None if reason else math.fsum(each[name]["value"] for _, each in parts) for name in ("energy", "power_mean")
    )
    return {
        "source": source,
        "scope": scope,
        "simulated": any(each["simulated"] for _, each in parts),
        "devices": len(devices),
        "energy": number(total, "J", reason),
        "power_mean": number(power, "W", reason),
    }


def read_documents(paths: Iterable[str]) -> dict[str, Document]:
    """Return the documents of files, or of folders with those of ranks, by file.

    Raises UsageError if there is none, or one does not read.
    """
    files = [file for path in map(Path, paths) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise UsageError("there is no document of a rank", "sifmark meter --output FOLDER/", code="file-unreadable")
    documents = {}
    for file in files:
        try:
            documents[str(file)] = json.loads(file.read_text("utf-8"))
        except OSError as error:
            cause = f"{file} does not read: {error.strerror}"
            raise UsageError(cause, "name the folder that --output named", code="file-unreadable") from error
        except ValueError as error:
            raise UsageError(f"{file} is no JSON: {error}", "name another file", code="document-invalid") from error
    return documents


def place_of(target: str) -> Path:
    """Return where the document of this process goes: a file, or one of its own in a folder that ends with a slash.

    Raises UsageError if the ranks of a launch would share a file.
    """
    path, launch = Path(target), _launch()
    if path.is_dir() or target.endswith("/"):
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        return path / f"{host}-{launch.task if launch else os.getpid()}.json"
    if launch and launch.tasks > 1:
        cause = f"each of {launch.tasks} ranks would write {target}"
        raise UsageError(cause, f"name a folder: --output {path.with_suffix('')}/", code="invalid-option")
    return path
