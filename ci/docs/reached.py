"""Which published figures a shipped study reaches: its plan, put through the matcher as results of it would be."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sifmark.recipes.names import cards
from sifmark.results.catalogue import metric_of
from sifmark.results.comparison.observation import ComparisonGroup, Observation
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.documents import MetricValue
from sifmark.studies.expand import expand
from sifmark.studies.feasibility import resolve_config, target_of
from sifmark.studies.image_options import SYNTHETIC, division_of
from sifmark.studies.load import load_study
from sifmark.studies.published.comparison import UnmatchedFigure, match_figures, metrics_of
from sifmark.studies.published.figures import Figure
from sifmark.studies.published.load import load_published
from sifmark.studies.published.measured import COMPLETED, FIELD_OF, MeasuredGroup, devices_like
from sifmark.studies.study import Limitation, Run, Scalar, Study, System

# Names of accelerators, as results have them, by words in the titles of systems. The first that occurs counts.
ACCELERATORS = {
    "GC200": "GC200", "GC2": "GC2", "GH200 120 GB": "NVIDIA GH200 120GB", "GH200 480 GB": "NVIDIA GH200 480GB",
    "H100 SXM5 94 GB": "NVIDIA H100", "H100": "NVIDIA H100 PCIe", "A100 SXM4 40 GB": "NVIDIA A100-SXM4-40GB",
    "A100 40 GB": "NVIDIA A100-PCIE-40GB", "A100 80 GB": "NVIDIA A100-SXM4-80GB", "MI250": "AMD Instinct MI250",
    "MI100": "AMD Instinct MI100", "MI210": "AMD Instinct MI210", "T4": "Tesla T4", "RTX 6000": "Quadro RTX 6000",
    "V100 16 GB": "Tesla V100-SXM2-16GB", "V100 32 GB": "Tesla V100-SXM2-32GB",
    "Max 1550": "Intel(R) Data Center GPU Max 1550",
}  # fmt: skip
GRANULARITIES = {"MI250": "die", "Max 1550": "tile"}  # of others: package
# What meters read: that of IPUs each of them, but of cards on PCI Express the card, whose IPUs report no power
# (docs.graphcore.ai, device attributes, shows it of a C600).
SCOPES = {"grace_hopper:0": "board", "GC200": "die", "GC2": "board"}  # of others: package
SAMPLES = {"imagenet": 1_281_167, "shakespeare": 35_453, "mnist": 60_000, "squad": 87_599}  # of an epoch, by data


@dataclass(frozen=True, slots=True)
class Reached:
    """How many figures of a study its own runs can be compared with, and why not the others."""

    study: Study
    figures: int
    comparable: int
    unreached: tuple[UnmatchedFigure, ...]

    def unreached_for(self, limitation: Limitation) -> list[Figure]:
        """Return the figures that are not reached for a reason that the study gives."""
        return [each.figure for each in self.unreached if covers(limitation, each.figure)]


@cache
def reached(name: str) -> Reached:
    """Return what the study of a name reaches of its document."""
    study, published = load_study(name), load_published(name)
    comparable = [figure for figure in published.figures if figure.is_comparable]
    groups = list(_groups(study, metrics_of(comparable)))
    _, unmatched = match_figures(published, comparable, groups)
    return Reached(study, len(published.figures), len(comparable), unmatched)


def covers(limitation: Limitation, figure: Figure) -> bool:
    """Return whether a limitation names a figure: its table, or its row, or it alone."""
    row = f"{figure.table}, row {figure.row}"
    return not {figure.table, row, f"{row}, {figure.column}"}.isdisjoint(limitation.figures)


def reached_lines(names: Sequence[str]) -> Iterator[str]:
    """Yield the table of all studies, then what each does not reach, in Markdown."""
    yield "| study | figures | comparable | reached by its own runs |\n|---|---|---|---|"
    each = [reached(name) for name in names]
    yield from (
        f"| `{one.study.name}` | {one.figures} | {one.comparable} | {one.comparable - len(one.unreached)} |"
        for one in each
    )
    yield "\n| not reached | figures | why |\n|---|---|---|"
    for one in each:
        for limitation in one.study.limitations:
            if figures := one.unreached_for(limitation):
                tables = ", ".join(dict.fromkeys(f"`{one.study.name}/{figure.table}`" for figure in figures))
                yield f"| {tables} | {len(figures)} | {limitation.part}: {limitation.reason} |"


def _groups(study: Study, metrics: Sequence[str]) -> Iterator[MeasuredGroup]:
    """Yield the runs of a study as groups of results that have all the numbers that such runs can have."""
    devices, systems = load_published(study.name).devices, {system.name: system for system in study.systems}
    for run in expand(study, study.systems):
        if run.repeat == 1:
            system = systems[run.system]
            conditions = _conditions(run, system)
            key = ComparisonGroup("", str(conditions["task"]), "steady", str(conditions["data"]))
            numbers = {name: unit for name in metrics if (unit := _unit(name, conditions))}
            values = {name: MetricValue(1.0, unit, None) for name, unit in numbers.items()}
            row = RepeatGroup("plan", {}, [Observation("plan", "", "", "", key, {}, values)])
            alike = devices_like(str(conditions["device"]), conditions["granularity"], devices)
            yield MeasuredGroup(row, COMPLETED, conditions, alike)


def _conditions(run: Run, system: System) -> dict[str, Scalar | None]:
    target = target_of(system.image)
    resolved = resolve_config(run.cell, division_of(run.cell, system), target, system.arguments)
    configuration: Mapping[str, Any] = resolved.configuration.as_json()
    chip = next((name for words, name in ACCELERATORS.items() if re.search(rf"\b{words}\b", system.title)), "")
    data = str(run.cell.get("data", ""))
    fields = {name: path.removeprefix("configuration.") for name, path in FIELD_OF.items()}
    values: dict[str, Scalar | None] = {name: configuration.get(field) for name, field in fields.items()}
    return values | {
        "workload": str(run.cell["workload"]),
        "task": configuration["task"],
        "devices": run.devices,
        "nodes": run.nodes,
        "batch_size_per_replica": configuration["batch_size"] // configuration["replicas"],
        "samples_per_epoch": SAMPLES.get(data.rpartition("/")[2], configuration["samples_per_epoch"]),
        "data": "real" if data not in ("", SYNTHETIC) else SYNTHETIC,
        "device": chip,
        "granularity": next((value for words, value in GRANULARITIES.items() if words in chip), "package"),
        "power_scope": next((value for key, value in SCOPES.items() if key in (chip, *system.arguments)), "package"),
        "framework_version": "2.13.0",
        "simulated": False,
    }


def _unit(name: str, conditions: Mapping[str, Scalar | None]) -> str:
    """Return the unit of a metric in results of such a run; empty if they have no such value."""
    metric, task = metric_of(name), conditions["task"]
    kind = "requests" if conditions["concurrency"] else task
    epochs = int(conditions["epochs"] or 0)
    parent, _, rest = name.partition(".")
    missing = (
        metric is None
        or (metric.kinds and kind not in metric.kinds)
        or (parent == "epochs" and epochs < int(rest.partition(".")[0]))
        or (name in ("epoch_time", "energy_per_epoch") and epochs < 2)
        or name == "time_to_target"  # no shipped study trains to a target
    )
    return "" if missing or metric is None else metric.unit_of(cards()[str(conditions["workload"])]["problem"]["unit"])
