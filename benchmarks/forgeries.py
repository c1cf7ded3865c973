"""How many impossible results are refused, and how far genuine ones are from the limits of the rules.

Each genuine result of the repository is changed in each way that applies to it. Where a change has consequences that a
forger would not forget (energy follows from power, rates from times), these are changed as well.

With --fields N also N fields of each result, and N pairs, are set to values that nobody expects there; with 0 all
fields, each alone.
"""

import argparse
import copy
import json
import math
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson

from sifmark.core import paths
from sifmark.core.terminal import output
from sifmark.results.load import document_problems, load_file, load_text

Document = dict[str, Any]
Change = Callable[[Document], bool]  # of a copy; whether it applies

ROOT = Path(__file__).resolve().parents[1]
GENUINE = ("tests/fixtures/h200/*.json", "tests/fixtures/0.*/*.json", "tests/fixtures/0.*/results/**/*.json",
           "tests/fixtures/scaling/*.jsonl", "schemas/examples/*/*.json")  # fmt: skip
RATES = ("algorithm_bandwidth_gb_per_second", "bus_bandwidth_gb_per_second", "flop_per_second")
RATES_OF_POINTS = ("peak_flops", "peak_bandwidth", "memory_bandwidth", "cached_bandwidth")
TIMES_POWER = ("energy", "energy_per_unit", "energy_per_device", "energy_per_epoch", "power_mean")
OVER_POWER = ("units_per_watt_hour", "tokens_per_watt_hour", "throughput_per_watt", "decode_tokens_per_watt_hour")
ACCELERATORS = ("cuda", "xpu", "hpu")
OTHERS = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB", "NVIDIA B200", "NVIDIA GH200 480GB",
          "Tesla V100-SXM2-32GB", "AMD Instinct MI300X", "AMD Instinct MI210", "NVIDIA L40S")  # fmt: skip


def genuine() -> Iterator[tuple[str, Document]]:
    """Yield the results of the repository that are valid documents of any version, each with its file."""
    for pattern in GENUINE:
        for file in sorted(ROOT.glob(pattern)):
            for result in load_file(str(file)):
                if "schema_version" in result.document and "metrics" in result.document:
                    yield str(file.relative_to(ROOT)), result.document


def micro(factor: float, operation: str) -> Change:
    """Return a change that makes a micro-benchmark so many times as fast."""

    def change(document: Document) -> bool:
        points = document.get("points")
        if not points or points["operation"] != operation:
            return False
        for row in points["measured"]:
            row["seconds"] = {name: value / factor for name, value in row["seconds"].items()}
            row.update({name: row[name] and row[name] * factor for name in RATES})
        for name, metric in document["metrics"].items():
            if name in RATES_OF_POINTS and metric["value"]:
                metric["value"] *= factor
            elif name == "small_message_latency" and metric["value"]:
                metric["value"] /= factor
        return True

    return change


def power(watts: Callable[[Document], float | None]) -> Change:
    """Return a change of the mean power, with all that follows from it."""

    def change(document: Document) -> bool:
        metrics = document["metrics"]
        mean, wanted = metrics.get("power_mean", {}).get("value"), watts(document)
        if not mean or not wanted:
            return False
        factor = wanted / mean
        for device in document["power"]["devices"]:
            for name in ("energy", "power_mean"):
                device[name]["value"] *= factor
        for names, by in ((TIMES_POWER, factor), (OVER_POWER, 1 / factor)):
            for name in names:
                if metrics.get(name, {}).get("value"):
                    metrics[name]["value"] *= by
        document["power"].pop("trace", None)
        return True

    return change


def of_idle(part: float) -> Change:
    """Return a change of the mean power to a part of that at rest."""
    return power(lambda document: part * (_idle(document) or 0))


def _idle(document: Document) -> float | None:
    watts: float | None = ((document["power"].get("idle") or {}).get("power") or {}).get("value")
    return watts


def of_rated(part: float) -> Change:
    """Return a change of the mean power to a part of what the device is built for."""
    return power(lambda document: part * (document["accelerator"].get("rated_power", {}).get("value") or 0))


def put(path: str, value: Any) -> Change:
    """Return a change of one field, if it is there and has a value."""

    def change(document: Document) -> bool:
        *parents, last = path.split(".")
        place: Any = document
        for name in parents:
            place = place.get(name) if isinstance(place, dict) else None
        if not isinstance(place, dict) or place.get(last) is None:
            return False
        place[last] = value
        return True

    return change


def of_accelerator(change: Change) -> Change:
    """Return a change of results of accelerators alone."""
    return lambda document: document["accelerator"].get("kind") in ACCELERATORS and change(document)


def of_host(change: Change) -> Change:
    """Return a change of results of processors alone, if their name begins with that of a vendor."""
    return lambda document: str(document["accelerator"].get("name")).startswith(("AMD", "Intel")) and change(document)


def renamed(name: str) -> Change:
    """Return a change of the name of an accelerator."""

    def change(document: Document) -> bool:
        device = document["accelerator"]
        if device.get("kind") not in ACCELERATORS or device.get("name") == name:
            return False
        device |= {"name": name, "vendor": name.split()[0] if name.startswith("AMD") else "NVIDIA"}
        for cited in ("peak_source", "rated_power_source", "memory_bandwidth_source"):
            device.pop(cited, None)
        return True

    return change


def steps_of(seconds: float) -> Change:
    """Return a change of all steps to one length."""

    def change(document: Document) -> bool:
        steps = document.get("steps") or {}
        if not steps.get("seconds"):
            return False
        steps["seconds"] = [seconds] * len(steps["seconds"])
        return True

    return change


def into_the_warmup(count: int, slower: float) -> Change:
    """Return a change after which so many steps, slower than all others, end the warm-up of a run."""

    def change(document: Document) -> bool:
        steps = document.get("steps") or {}
        untimed = steps.get("untimed") or 0
        if not steps.get("seconds") or untimed < count or len(steps["seconds"]) < untimed + count:
            return False
        slow = slower * max(steps["seconds"][untimed:])
        before = document["phases"].get("warmup")
        added = math.fsum(slow - value for value in steps["seconds"][untimed - count : untimed])
        steps["seconds"][untimed - count : untimed] = [slow] * count
        if before and before["seconds"] is not None:
            before["seconds"] += added
        return True

    return change


def rank(field: str, value: float) -> Change:
    """Return a change of a number of the last rank."""

    def change(document: Document) -> bool:
        ranks = document.get("ranks")
        if not ranks or ranks[-1].get(field, {}).get("value") is None:
            return False
        ranks[-1][field]["value"] = value
        return True

    return change


FORGERIES: dict[str, list[Change]] = {
    "D6 steps of 5e-324 s, or none": [steps_of(5e-324), steps_of(0.0), steps_of(1e308)],
    "D7 copies at 1.3 to 12.5 times": [micro(by, "memory_copy") for by in (1.3, 2, 12.5)],
    "D7 matmul at 1.3 to 6.5 times": [micro(by, "matmul") for by in (1.3, 2, 6.5)],
    "D7 host and device at 10 and 22 times": [micro(by, "host_device") for by in (10, 22)],
    "D8 power of 0.1 to 0.7 of idle": [of_idle(part) for part in (0.1, 0.5, 0.7)],
    "D8 power of 1.4 to 4 times the rated": [of_rated(part) for part in (1.4, 2, 4)],
    "D8 another device's name": [renamed(name) for name in OTHERS],
    "D8 another memory, another vendor": [
        *(of_accelerator(put("accelerator.memory_mib", size)) for size in (40960.0, 81559.0, 196608.0)),
        *(of_accelerator(put("accelerator.vendor", name)) for name in ("AMD", "Intel")),
        of_host(put("accelerator.vendor", "ARM")),
    ],
    "D8 slow steps in the warm-up": [into_the_warmup(3, 2.0), into_the_warmup(5, 2.0), into_the_warmup(3, 1.6)],
    "D8 absurd counts": [
        put("host.threads.value", 10**9),
        *(put(f"configuration.{name}", 10**9) for name in ("replicas", "stages")),
        put("accelerator.count", 10**9),
        *(put("configuration.batch_size", size) for size in (10**18, 10**308)),
    ],
    "D8 a foreign title": [put("workload.title", "The fastest of all"), put("workload.title", "BERT, large")],
    "D8 negative memory of a rank": [rank("peak_process_memory", -1.0), rank("window", -1.0)],
}


Place = tuple[str | int, ...]
Edit = tuple[Place, Any]  # a field, and what is put there
DELETED, ADDED = "(deleted)", "(a key more)"
VALUES: tuple[Any, ...] = (
    *(DELETED, ADDED, None, True, False, 0, -1, 0.5, 1e18, 1e308, -1e308, 5e-324, 10**9, 10**18),
    *("", "1", "NaN", "x" * 10_000, [], [0], [[]] * 2000, {}, {"a": 1}),
)
# What a result states of itself, and what of it follows from nothing else in it: see docs/security.md.
CLAIMS = (
    *("metrics.*.value", "status.state", "status.exit_code", "steps.count", "steps.un*", "steps.updates"),
    *("steps.quantiles.*", "epochs.*.seconds", "epochs.*.units", "points.measured.*_per_second"),
    *("requests.count", "requests.quantiles.*", "requests.latencies*", "requests.parts.*"),
    *("workload.identity", "workload.name", "workload.unit", "workload.task", "accelerator.kind", "accelerator.count"),
    *("accelerator.peak.value", "power.devices.*.value"),
    *(
        f"configuration.{name}"
        for name in ("precision", "batch_size", "replicas", "stages", "strategy", "steps", "data")
    ),
)
NOT_PROVED = (
    *("metrics.peak_*_memory*", "metrics.host_device_traffic.*", "metrics.effective_*", "metrics.r_hat.*"),
    *("metrics.time_to_first_token*", "metrics.time_between_tokens*", "metrics.padding_fraction.*"),
    *("power.devices.*.load.*",),
)
REFUSED, HARMLESS, WRONG, CRASHED, HUNG = "refused", "harmless", "wrongly accepted", "crashed", "hung"
LONGEST = 30  # s of a document, after which it counts as hung


def places(value: Any, within: Place = ()) -> Iterator[Place]:
    """Yield where the values in a document are, its parts included; of a list those of the first, middle and last."""
    if within:
        yield within
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*within, key))
    elif isinstance(value, list):
        for number in sorted({0, len(value) // 2, len(value) - 1}) if value else ():
            yield from places(value[number], (*within, number))


def edited(document: Document, *edits: Edit) -> Document:
    """Return a document with other values at some places; those that an edit took away are left alone."""
    whole: Document = orjson.loads(orjson.dumps(document))
    for (*parents, last), value in edits:
        part: Any = whole
        try:
            for key in parents:
                part = part[key]
            if value == DELETED:
                del part[last]
            elif value != ADDED:
                part[last] = value
            elif isinstance(part[last], dict):
                part[last]["another"] = 1
        except (LookupError, TypeError):
            continue
    return whole


def value_at(document: Document, place: Place) -> Any:
    """Return the value at a place; None if it is gone."""
    part: Any = document
    for key in place:
        try:
            part = part[key]
        except (LookupError, TypeError):
            return None
    return part


def verdict(document: Document, genuine: Document, *edits: Edit) -> str:
    """Return what becomes of a changed result: one of the five words above, with the exception if there is one."""

    def stop(*_: object) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST)
    try:
        _, problems = load_text(orjson.dumps(document))
    except TimeoutError:
        return HUNG
    except Exception as error:
        return f"{CRASHED}: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
    if problems:
        return REFUSED
    wrong = (place for place, _ in edits if _is_claim(place, value_at(genuine, place), value_at(document, place)))
    return next((f"{WRONG}: {'.'.join(map(str, place))}" for place in wrong), HARMLESS)


def _is_claim(place: Place, former: Any, value: Any) -> bool:
    """Return whether a change is one of a claim of the result that something else in it proves."""
    name = ".".join(map(str, place))
    if value is None or not any(fnmatchcase(name, each) for each in CLAIMS):
        return False
    numbers = all(isinstance(each, int | float) for each in (former, value))
    same = math.isclose(former, value, rel_tol=1e-9, abs_tol=1e-12) if numbers else former == value
    return not same and not any(fnmatchcase(name, each) for each in NOT_PROVED)


def single_edits(document: Document) -> Iterator[Edit]:
    """Yield every change of one field."""
    for place in places(document):
        former = value_at(document, place)
        number = isinstance(former, int | float) and not isinstance(former, bool)
        for value in (*VALUES, *((2 * former, -former, former / 2) if number else ())):
            if value is not former and (type(value), value) != (type(former), former):
                yield place, value


def verdicts_on_fields(count: int) -> dict[str, Counter[str]]:
    """Return how often each verdict was given, on so many changes of one field of each result, and as many of two.

    They are drawn at random. None are all changes of one field, and no other.
    """
    draw = random.Random(57)  # noqa: S311 - not for secrets
    counts: dict[str, Counter[str]] = {"one field": Counter(), "two fields": Counter()}
    for _, document in genuine():
        every = list(single_edits(document))
        for edit in draw.sample(every, min(count, len(every))) if count else every:
            counts["one field"][verdict(edited(document, edit), document, edit)] += 1
        for _ in range(count):
            both = draw.choice(every), draw.choice(every)
            counts["two fields"][verdict(edited(document, *both), document, *both)] += 1
    return counts


def refusals() -> Iterator[tuple[str, int, Counter[str]]]:
    """Yield by kind of forgery how many there are, and how many of these are accepted, by file."""
    results = list(genuine())
    for kind, changes in FORGERIES.items():
        forged, accepted = 0, Counter[str]()
        for file, document in results:
            for change in changes:
                forgery = copy.deepcopy(document)
                if change(forgery):
                    forged += 1
                    accepted[file] += not document_problems(forgery)
        yield kind, forged, +accepted


def margins() -> Iterator[tuple[str, float, str, str]]:
    """Yield where genuine results and published figures of devices are: what, its value, the limit, and the file."""
    for file, document in genuine():
        name, device = Path(file).stem, document["accelerator"]
        mean = document["metrics"].get("power_mean", {}).get("value")
        idle = _idle(document)
        rated = device.get("rated_power", {}).get("value")
        if mean and idle:
            yield "power over idle", mean / idle, "at least 0.75", name
        if mean and rated:
            yield "power over rated", mean / rated, "at most 1.3", name
        for row in (document.get("points") or {}).get("measured", ())[-1:]:
            peak = device["peak"]["value"]
            if row["flop_per_second"] and peak:
                yield "matmul over peak", row["flop_per_second"] / peak, "at most 1.1", name
    yield from _published_power()


def _published_power() -> Iterator[tuple[str, float, str, str]]:
    """Yield the power that follows from published rates and efficiencies, over the rated one of the same part."""
    tables = {
        name: {table["name"]: table.get("rows", ()) for table in json.loads(_published(name))["tables"]}
        for name in ("qwant", "caraml")
    }
    rates = {batch: float(rate) for batch, rate in tables["qwant"]["2"]}
    card = max(rates[batch] / float(efficiency) for batch, efficiency in tables["qwant"]["3"])
    yield "power over rated", card / 300, "at most 1.3", "published: qwant, a C2 card"
    ipu = max(3600 * float(rate) / float(per_hour) for _, rate, _, per_hour in tables["caraml"]["cv-ipu"])
    yield "power over rated", 4 * ipu / 1500, "at most 1.3", "published: caraml, four GC200"


def _published(name: str) -> str:
    return (paths.PUBLISHED / f"{name}.json").read_text("utf-8")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=int, metavar="N", help="changes of one field of each result, and of two")
    fields = parser.parse_args().fields
    results = list(genuine())
    invalid = [file for file, document in results if document_problems(document)]
    output(f"{len(results)} genuine results, {len(invalid)} refused{_listed(invalid)}")
    total = refused = 0
    for kind, forged, accepted in refusals():
        total, refused = total + forged, refused + forged - accepted.total()
        output(f"{kind:<40}{forged - accepted.total():>4} of {forged:>3} refused{_listed(accepted)}")
    output(f"{'all':<40}{refused:>4} of {total:>3} refused")
    for what, value, limit, name in margins():
        output(f"{what:<20}{value:>8.2f}  {limit:<14}{name}")
    if fields is not None:
        for kind, counts in verdicts_on_fields(fields).items():
            output(f"{kind}: {counts.total()} changes; {_listed(f'{count} {text}' for text, count in counts.items())}")


def _listed(names: Iterable[str]) -> str:
    text = "; ".join(names)
    return f": {text}" if text else ""


if __name__ == "__main__":
    main()
