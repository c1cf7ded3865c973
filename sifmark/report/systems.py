"""The systems of a report: what each is made of, as its results say."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sifmark.report.describe import MIB_PER_GIB, memory_of_device, variant
from sifmark.report.results import Document, Point, ReportResults
from sifmark.report.tables import Table, plain_table
from sifmark.report.workloads import Workload
from sifmark.results.catalogue import MICROBENCHMARK, rates
from sifmark.results.comparison.observation import SETTING
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.documents import value_at
from sifmark.results.marks import Mark
from sifmark.results.numbers import format_number, scale_of
from sifmark.studies.study import Study


@dataclass(frozen=True)
class Peak:
    """What a micro-benchmark measured of a device: `848 TFLOP/s` of computing."""

    number: str
    unit: str
    what: str
    marks: tuple[Mark, ...]
    anchor: str  # of the result


@dataclass(frozen=True)
class Card:
    """A system at a glance."""

    system: str
    device: str  # the accelerator, or what a study calls the system
    is_baseline: bool
    facts: tuple[str, ...]  # memory, power limit, software; of a CPU its cores and the memory of its host
    peaks: tuple[Peak, ...]
    unmetered: str = ""  # why its energy was not measured
    apart: str = ""  # in what it differs from the systems that the rest says the same of


Read = Callable[[Document], str | None]
MOST_VALUES = 6  # of one fact, such as host names
MOST_COLUMNS = 6  # systems side by side; more of them follow each other in rows


def system_table(results: ReportResults, study: Study | None = None) -> Table:
    """Return what is known of the systems; a fact that neither a result nor the study has is left out.

    Few systems have a column each, many a row.
    """
    by_system = documents_by_system(results).values()
    rows = [[name, *(values_of(documents, read) or "-" for documents in by_system)] for name, read in FACTS.items()]
    titles = {system.name: system.title for system in study.systems} if study else {}
    named = ["in the study", *(titles.get(name) or "-" for name in results.systems)]
    known = [["fact", *results.systems], *(row for row in (named, *rows) if set(row[1:]) != {"-"})]
    if len(results.systems) > MOST_COLUMNS:
        known = [list(row) for row in zip(*known, strict=True)]
    title = "The systems, as their results describe them"
    return plain_table("systems", title, known[0], known[1:], "What each system is made of, as its results say.")


# By micro-benchmark what its first metric with a value is of.
_WHAT = {"matmul": "", "memory_copy": "memory", "host_device": "to host"}
_MOST_PEAKS = 4
_MOST_REASONS = 2  # why nothing was metered
_MOST_APART = 4  # fields in which systems differ


def cards_of(results: ReportResults, workloads: Iterable[Workload], study: Study | None = None) -> tuple[Card, ...]:
    """Return a card for each system, with the peaks that micro-benchmarks measured."""
    titles = {system.name: system.title for system in study.systems} if study else {}
    measured = [each for each in workloads if each.kind == MICROBENCHMARK]
    cards = []
    for name, documents in documents_by_system(results).items():
        device = values_of(documents, FACTS["accelerator"]) or titles.get(name, "")
        facts = tuple(filter(None, [_devices_text(documents), values_of(documents, FACTS["framework"])]))
        peaks = [peak for workload in measured if (peak := _peak(workload, name))]
        kept = tuple(peaks[:_MOST_PEAKS])
        is_baseline, why = name == results.divisor, unmetered_of(documents)
        cards.append(Card(name, device if device != name else "", is_baseline, facts, kept, why))
    return tuple(replace(card, apart=_apart(results, card, cards)) for card in cards)


def _apart(results: ReportResults, card: Card, cards: Iterable[Card]) -> str:
    """Return in what a system differs from those whose cards would say the same: `4 threads, compile true`."""
    alike = [each.system for each in cards if (each.device, each.facts) == (card.device, card.facts)]
    if len(alike) < 2:
        return ""
    fields: dict[str, dict[str, set[Any]]] = {name: defaultdict(set) for name in alike}
    for each in results.members:
        if (name := results.system(each.observation.fields)) in fields:
            for field, value in each.observation.fields.items():
                fields[name][field].add(value)
    own = fields[card.system]
    names = [
        name
        for name, values in own.items()
        if len(values) == 1 and name != results.by and any(other[name] != values for other in fields.values())
    ]
    said = sorted(names, key=lambda name: (not name.startswith(SETTING), name))[:_MOST_APART]
    return variant({name: next(iter(own[name])) for name in said}, said)


def _devices_text(documents: Iterable[Document]) -> str:
    """Return how many devices there are at most, and what each has: `8 devices of 140 GiB, 700 W`.

    Of a CPU, its cores, how many of them runs used, and the memory of the host: `2 of 32 cores, 62.5 GiB`.
    """
    every = list(documents)
    if {each["accelerator"]["kind"] for each in every} == {"cpu"}:
        cores, used = values_of(every, FACTS["cores of a host"]), sorted(filter(None, map(_cores_used, every)))
        most_used = " to ".join(map(str, dict.fromkeys((used[0], used[-1])))) if used else ""
        texts = [f"{most_used} of {cores} cores" if used and cores else "", values_of(every, FACTS["memory of a host"])]
        return ", ".join(filter(None, texts))
    most = max((each["accelerator"].get("count") or 1 for each in every), default=1)
    memory, watts = values_of(every, _memory_of_device), values_of(every, _power_limit)
    devices = f"{most} device{'s' * (most != 1)}" + (f" of {memory}" if memory else "")
    return ", ".join(filter(None, [devices, watts]))


def _cores_used(document: Document) -> int:
    """Return on how many cores a run computed; 0 if nobody knows."""
    return int(document["configuration"]["threads"] or 0) * int(document["accelerator"].get("ranks") or 1)


def _power_limit(document: Document) -> str | None:
    watts = value_at(document, "device_conditions.power_cap.value")
    return f"{watts:g} W" if isinstance(watts, int | float) else watts


def _peak(workload: Workload, system: str) -> Peak | None:
    """Return the best that a micro-benchmark measured by the first of its headlines that the system has."""
    for metric in rates(MICROBENCHMARK):
        points = [point for point in workload.points(metric) if point.system == system]
        if points and metric != THROUGHPUT:
            best = max(points, key=lambda point: point.value)
            number, unit = _in_large_units(best)
            what = _WHAT.get(workload.name, workload.name.replace("_", " "))
            return Peak(number, unit, what, best.marks, best.results[0].anchor)
    return None


def _in_large_units(point: Point) -> tuple[str, str]:
    """Return a peak in few digits: of 4,146 GB/s, `4.15 TB/s`."""
    scale = scale_of(point.unit, [point.value])
    value, unit = point.value / scale.factor, scale.unit
    if value >= 1000 and unit.startswith("G"):
        value, unit = value / 1000, f"T{unit[1:]}"
    return format_number(value, 3), unit


def unmetered_of(documents: Sequence[Document]) -> str:
    """Return why nothing was metered, in few words; empty if something was."""
    if any("source" in each["power"] for each in documents):
        return ""
    reasons = sorted({str(each["power"]["reason"]) for each in documents})
    return "; ".join(reasons[:_MOST_REASONS])


def documents_by_system(results: ReportResults) -> dict[str, list[Document]]:
    by_system: dict[str, list[Document]] = {name: [] for name in results.systems}
    for each in results.members:
        by_system[results.system(each.observation.fields)].append(each.document)
    return by_system


def values_of(documents: Iterable[Document], read: Read) -> str:
    """Return the values of a fact in some results, each once; empty if none has it.

    A value that others begin with, such as the framework of a run that failed before its version was known, is none.
    """
    every = {value for document in documents if (value := read(document))}
    values = sorted(value for value in every if not any(other.startswith(f"{value} ") for other in every))
    more = len(values) - MOST_VALUES
    return ", ".join(values[:MOST_VALUES]) + (f" and {more} more" if more > 0 else "")


def _at(path: str, unit: str = "") -> Read:
    def read(document: Document) -> str | None:
        value = value_at(document, path)
        if value is None:
            return None
        text = format_number(value) if isinstance(value, float) else str(value)
        return f"{text} {unit}".rstrip()

    return read


def _memory(path: str) -> Read:
    def read(document: Document) -> str | None:
        value = value_at(document, path)
        return None if value is None else f"{format_number(value / 1024)} GiB"

    return read


def _memory_of_device(document: Document) -> str | None:
    memory = memory_of_device(document)
    return None if memory is None else f"{memory / MIB_PER_GIB:.3g} GiB"


def _devices(document: Document) -> str | None:
    count = document["accelerator"].get("count")
    return None if count is None else str(count)


def _framework(document: Document) -> str | None:
    software = document["provenance"]["software"]
    return " ".join(filter(None, (software["framework"], software["framework_version"])))


def _libraries(document: Document) -> str | None:
    versions = document["provenance"]["software"]["libraries"]
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or None


def environment_of(document: Document, nothing: str = "") -> str | None:
    """Return the variables that may change the speed of a run: `OMP_WAIT_POLICY=PASSIVE`; None of schema 1.0."""
    if "environment" not in document:
        return None
    variables = document["environment"]["variables"]
    return "; ".join(f"{name}={value}" for name, value in sorted(variables.items())) or nothing


def _image(document: Document) -> str | None:
    image = document["provenance"]["image"]
    return None if image is None else f"{image['recipe']} {image['version']} (build key {image['build_key'][:19]})"


def _os(document: Document, in_image: bool) -> str | None:
    """Return the operating system that a run saw: within an image that is the image's, whatever the host has."""
    has_image = document["provenance"]["image"] is not None
    return value_at(document, "host.os.value") if has_image is in_image else None


def _base(document: Document) -> str | None:
    image = document["provenance"]["image"]
    if image is None:
        return None
    return f"{image['base']['reference']}{' (test base)' if image['stand_in'] else ''}"


def _meter(document: Document) -> str | None:
    power = document["power"]
    return f"{power['source']} ({power['scope']})" if "source" in power else None


FACTS: dict[str, Read] = {
    "site": _at("site"),
    "accelerator": _at("accelerator.name"),
    "devices": _devices,
    "memory of a device": _memory_of_device,
    "driver": _at("device_conditions.driver.value"),
    "clock of the devices": _at("device_conditions.clock.value", "MHz"),
    "power limit of a device": _power_limit,
    "hosts": _at("host.hostname.value"),
    "CPU": _at("host.cpu_model.value"),
    "cores of a host": _at("host.cores.value"),
    "threads of a process": _at("configuration.threads"),
    "memory of a host": _memory("host.memory.value"),
    "CPU governor": _at("conditions.cpu_governor.value"),
    "operating system": lambda document: _os(document, in_image=False),
    "operating system of the image": lambda document: _os(document, in_image=True),
    "kernel": _at("host.kernel.value"),
    "framework": _framework,
    "libraries": _libraries,
    "environment": environment_of,
    "image": _image,
    "base of the image": _base,
    "network": _at("transport.network"),
    "meter": _meter,
}
