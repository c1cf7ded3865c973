"""How the results of a report were measured, as paragraphs for a paper: only what results say, and what they do not."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from sifmark.core.console import counted
from sifmark.report.describe import state_text
from sifmark.report.results import Document, ReportResult, ReportResults
from sifmark.report.systems import FACTS, MOST_VALUES, Read, documents_by_system, environment_of, values_of
from sifmark.results.comparison.intervals import CONFIDENCE
from sifmark.results.documents import value_at
from sifmark.results.marks import FEWEST_REPEATS
from sifmark.results.numbers import format_number
from sifmark.results.summary import precision_text
from sifmark.studies.study import Study

MOST_REASONS = 2
_DIGITS = 12  # of a digest
UNKNOWN = "not recorded"
_METHODS = {"counter": "by its energy counter", "integral": "by the integral of power"}


def methods_of(results: ReportResults, study: Study | None = None) -> tuple[str, ...]:
    return tuple(_paragraphs(results, study.name if study else ""))


def _paragraphs(results: ReportResults, study: str) -> Iterator[str]:
    yield _overview(results, study)
    by_system = documents_by_system(results)
    yield from (f"{names}. {text}" for names, text in _alike(by_system, _system).items())
    if differing := _differences(by_system):
        yield f"The systems differ in {differing}."
    yield " ".join(_runs([each.document for each in results.members]))
    yield " ".join(_correctness(results.members))
    yield (
        f"Numbers are geometric means over repeats. Intervals are {CONFIDENCE:.0%} intervals on logarithms, Student's "
        f"for means and Welch's for ratios, and need {FEWEST_REPEATS} repeats. The mean of values that are not all "
        "positive is arithmetic. A system is called faster or slower only if the whole interval of the ratio is on "
        f"one side of 1, with sessions (boots, days, jobs) that differ by a standard deviation of "
        f"{100 * results.between:g} % where results do not show by how much they do, and if no mark withholds it."
    )
    yield " ".join(f"Energy of {names}: {text}." for names, text in _alike(by_system, _energy).items())


def _alike(
    by_system: dict[str, list[Document]], describe: Callable[[Sequence[Document]], Iterable[str]]
) -> dict[str, str]:
    """Return texts by the names of the systems of which each says the same."""
    names: dict[str, list[str]] = {}
    for name, documents in by_system.items():
        names.setdefault(" ".join(describe(documents)), []).append(name)
    return {" and ".join(each) if len(each) <= 2 else ", ".join(each): text for text, each in names.items()}


def _overview(results: ReportResults, study: str) -> str:
    (first, last), versions = results.days, ", ".join(results.images[1])
    days = f"on {first}" if first == last else f"from {first} to {last}"
    program = f"sifmark {versions}" if versions else "sifmark, outside of an image"
    left = len(results.failures)
    no_measurement = f"; {left} of them {'is' if left == 1 else 'are'} no measurement and left out of all numbers"
    copies = f" Copies of results were counted once: {results.duplicates}." if results.duplicates else ""
    counts = f"{counted(len(results.members), 'result')} of {counted(len(results.systems), 'system')}"
    of_study = f" for the study {study}" if study else ""
    return f"Measured with {program}{of_study} {days} (UTC): {counts}{no_measurement if left else ''}.{copies}"


# What is said of a system, in this order, by its name in a sentence.
_OF_DEVICE: dict[str, Read] = {
    "accelerator": FACTS["accelerator"],
    "devices in use": FACTS["devices"],
    "granularity": lambda document: value_at(document, "accelerator.granularity"),
    "driver": FACTS["driver"],
    "clock": FACTS["clock of the devices"],
    "highest clock": lambda document: _quantity(document, "device_conditions.clock_max"),
    "memory clock": lambda document: _quantity(document, "device_conditions.memory_clock"),
    "power limit": FACTS["power limit of a device"],
}
_OF_HOST: dict[str, Read] = {
    "CPU": FACTS["CPU"],
    "cores": FACTS["cores of a host"],
    "memory": FACTS["memory of a host"],
    "governor": FACTS["CPU governor"],
    "highest clock of the CPU": lambda document: _quantity(document, "conditions.cpu_clock_max"),
    "boost": lambda document: value_at(document, "conditions.cpu_boost.value"),
    "power limit of the CPUs": lambda document: _quantity(document, "conditions.cpu_power_cap"),
    "kernel": FACTS["kernel"],
}
_OF_SOFTWARE: dict[str, Read] = {
    "framework": FACTS["framework"],
    "Python": lambda document: value_at(document, "provenance.software.python"),
    "libraries": FACTS["libraries"],
    "threads of a process": FACTS["threads of a process"],
    "settings by the environment": lambda document: environment_of(document, "none"),
}
_OF_IMAGE: dict[str, Read] = {
    "recipe": lambda document: value_at(document, "provenance.image.recipe"),
    "image ID": lambda document: _digest(document, "provenance.image.file.identity"),
    "digest of the file": lambda document: _digest(document, "provenance.image.file.digest"),
    "build key": lambda document: _digest(document, "provenance.image.build_key"),
    "base": lambda document: _base(document),
    "commit": lambda document: _digest(document, "provenance.image.revision"),
    "signed by": lambda document: _signer(document),
}
_PARTS = {"Device": _OF_DEVICE, "Host": _OF_HOST, "Software": _OF_SOFTWARE, "Image": _OF_IMAGE}


def _system(documents: Sequence[Document]) -> Iterator[str]:
    for part, facts in _PARTS.items():
        if part == "Device" and {document["accelerator"]["kind"] for document in documents} == {"cpu"}:
            facts = {name: facts[name] for name in ("accelerator", "devices in use", "granularity")}
        if part == "Image" and all(document["provenance"]["image"] is None for document in documents):
            yield "Image: none, run outside of one."
            continue
        values = {name: values_of(documents, read) for name, read in facts.items()}
        known_facts = [f"{name} {value}" for name, value in values.items() if value]
        missing = [name for name, value in values.items() if not value]
        listed = [*known_facts, *([f"{UNKNOWN}: {', '.join(missing)}"] if missing else [])]
        yield f"{part}: {'; '.join(listed)}."


def _differences(by_system: dict[str, list[Document]]) -> str:
    facts = {name: read for part in _PARTS.values() for name, read in part.items()}
    of_systems = list(by_system.values())
    names = [name for name, read in facts.items() if len({values_of(each, read) for each in of_systems}) > 1]
    return ", ".join(names)


def _digest(document: Document, path: str) -> str | None:
    digest = value_at(document, path)
    return None if digest is None else shortened(digest)


def shortened(digest: str) -> str:
    """Return a digest, or the name of a commit or key, as texts have it: `trace.json` has all of it."""
    algorithm, colon, digits = digest.rpartition(":")
    return f"{algorithm}{colon}{digits[:_DIGITS]}"


def _signer(document: Document) -> str | None:
    image = document["provenance"]["image"]
    if image is None:
        return None
    signer = image["file"]["signer"]
    return shortened(signer) if signer else "no trusted key"


def _base(document: Document) -> str | None:
    image = document["provenance"]["image"]
    if image is None:
        return None
    kind = ", a test base and not that of the vendor" if image["stand_in"] else ""
    return f"{image['base']['reference']} ({shortened(image['base']['digest'])}{kind})"


def _quantity(document: Document, path: str) -> str | None:
    value, unit = value_at(document, f"{path}.value"), value_at(document, f"{path}.unit")
    if value is None:
        return None
    text = format_number(value) if isinstance(value, int | float) else str(value)
    return f"{text} {unit}" if unit else text


def _runs(documents: Sequence[Document]) -> Iterator[str]:
    repeats = sorted({document["configuration"]["repeat"]["of"] for document in documents})
    equal = f" A command made {_numbers(repeats)} equal runs." if repeats != [1] else ""
    yield f"Each run is a fresh process.{equal}"
    warmup = _numbers(document["configuration"]["warmup_steps"] for document in documents)
    yield (
        f"Warm-up steps before the timed window, including the first, which compiles: {warmup}. "
        "Throughput is the work in the timed window over its length."
    )
    lengths = [length for name, unit in _LENGTHS.items() if (length := _length(documents, name, unit))]
    yield f"Length of a run: {'; or '.join(lengths) if lengths else UNKNOWN}."
    precisions = sorted({precision_text(document["configuration"]) for document in documents})
    sources = sorted({document["data"]["source"] for document in documents})
    seeds = _numbers(document["configuration"]["seed"] for document in documents)
    yield f"Precision: {', '.join(precisions)}. Data: {', '.join(sources)}. Seed: {seeds}."
    networks = sorted({str(value_at(each, "transport.network")) for each in documents if each.get("transport")})
    if networks:
        yield f"Ranks exchanged data by: {', '.join(networks).replace('None', UNKNOWN)}."


_LENGTHS = {"steps": "steps including warm-up", "duration_seconds": "s in the timed window", "epochs": "epochs"}


def _length(documents: Sequence[Document], name: str, unit: str) -> str:
    values = [document["configuration"][name] for document in documents]
    return f"{_numbers(value for value in values if value is not None)} {unit}" if any(values) else ""


def _numbers(values: Iterable[float]) -> str:
    """Return the values, or the smallest and the largest of many."""
    ordered = [f"{value:,}" for value in sorted(set(values))]
    return f"{ordered[0]} to {ordered[-1]}" if len(ordered) > MOST_VALUES else ", ".join(ordered)


def _correctness(results: Sequence[ReportResult]) -> Iterator[str]:
    states = [each.document["numerics"]["state"] for each in results]
    counts = {state: states.count(state) for state in ("passed", "failed", "not_provable", "not_run")}
    yield (
        "Before each run, a correctness check compares the outputs, gradients and updates of a batch made by a formula "
        "with stored references."
    )
    texts = [f"{state_text(state)} {count}" for state, count in counts.items() if count]
    yield f"Its outcome, by number of results: {', '.join(texts)}."


def _energy(documents: Sequence[Document]) -> Iterator[str]:
    metered = [document["power"] for document in documents if "source" in document["power"]]
    used = [power for power in metered if power["method"] in _METHODS] or metered  # of others nothing came
    missing = sorted({str(each["power"]["reason"]) for each in documents if "source" not in each["power"]})
    texts = sorted(set(map(_meter, used)))
    if missing:
        count = len(documents) - len(metered)
        part = f" in {count} of {len(documents)} results" if metered else ""
        texts.append(f"nothing was metered{part}: {'; '.join(missing[:MOST_REASONS])}")
    yield "; ".join(texts)


def _meter(power: Document) -> str:
    averaging = power["averaging_time"]["value"]
    method = _METHODS.get(power["method"], "without a number")
    return (
        f"meter {power['source']}, which measures a {power['scope']}, {method}, read every "
        f"{power['sampling_period_seconds']:g} s, with new values every "
        f"{power['update_period_seconds']:g} s, averaging time "
        f"{UNKNOWN if averaging is None else f'{averaging:g} s'}"
    )
