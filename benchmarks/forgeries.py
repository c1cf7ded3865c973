"""How many impossible results are refused, and how far genuine ones are from the limits of the rules.

Each genuine result of the repository is changed in each way that applies to it. Where a change has consequences that a
forger would not forget (energy follows from power, rates from times), these are changed as well.
"""

import copy
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.terminal import output
from sifmark.results.load import document_problems, load_file

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


def _listed(names: Iterable[str]) -> str:
    text = "; ".join(names)
    return f": {text}" if text else ""


if __name__ == "__main__":
    main()
