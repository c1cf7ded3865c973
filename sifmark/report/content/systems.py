"""The systems of a report: what each is made of, as its results say."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sifmark.report.results import Document, ReportResults
from sifmark.results.documents import value_at
from sifmark.results.numbers import format_number
from sifmark.studies.study import Study

Read = Callable[[Document], str | None]
MOST_VALUES = 6  # of one fact, such as host names


@dataclass(frozen=True)
class SystemTable:
    """A row for each fact, a column for each system."""

    systems: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # the name of a fact, and its values by system


def system_table(results: ReportResults, study: Study | None = None) -> SystemTable:
    """Return what is known of the systems; a fact that neither a result nor the study has is left out."""
    by_system = documents_by_system(results).values()
    rows = ((name, tuple(values_of(documents, read) or "-" for documents in by_system)) for name, read in FACTS.items())
    titles = {system.name: system.title for system in study.systems} if study else {}
    named = ("in the study", tuple(titles.get(name) or "-" for name in results.systems))
    return SystemTable(results.systems, tuple(row for row in (named, *rows) if any(value != "-" for value in row[1])))


def documents_by_system(results: ReportResults) -> dict[str, list[Document]]:
    """Return the documents of each system."""
    by_system: dict[str, list[Document]] = {name: [] for name in results.systems}
    for each in results.members:
        by_system[results.system(each.observation.fields)].append(each.document)
    return by_system


def values_of(documents: Iterable[Document], read: Read) -> str:
    """Return the values of a fact in some results, each once; empty if none has it."""
    values = sorted({value for document in documents if (value := read(document))})
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


def _devices(document: Document) -> str | None:
    count = document["accelerator"].get("count")
    return None if count is None else str(count)


def _framework(document: Document) -> str | None:
    software = document["provenance"]["software"]
    return " ".join(filter(None, (software["framework"], software["framework_version"])))


def _libraries(document: Document) -> str | None:
    versions = document["provenance"]["software"]["libraries"]
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or None


def _image(document: Document) -> str | None:
    image = document["provenance"]["image"]
    return None if image is None else f"{image['recipe']} {image['version']} ({image['build_key'][:19]})"


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
    "memory of a device": _memory("accelerator.memory_mib"),
    "driver": _at("device_conditions.driver.value"),
    "clock of the devices": _at("device_conditions.clock.value", "MHz"),
    "power limit of a device": _at("device_conditions.power_cap.value", "W"),
    "hosts": _at("host.hostname.value"),
    "CPU": _at("host.cpu_model.value"),
    "cores of a host": _at("host.cores.value"),
    "threads of a process": _at("configuration.threads"),
    "memory of a host": _memory("host.memory.value"),
    "CPU governor": _at("conditions.cpu_governor.value"),
    "operating system": _at("host.os.value"),
    "kernel": _at("host.kernel.value"),
    "framework": _framework,
    "libraries": _libraries,
    "image": _image,
    "base of the image": _base,
    "network": _at("transport.network"),
    "meter": _meter,
}
