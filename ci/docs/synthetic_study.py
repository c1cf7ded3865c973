"""A study of three invented systems, for pictures of reports: all of its numbers are computed here.

Training on one device and on eight, requests, and generation of text; three repeats each, and what did not fit.
"""

import json
import math
import random
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import documents

from sifmark import __version__

REPEATS, DEVICES = 3, 8
BATCHES = (32, 64, 128, 256, 512, 1024)
CLIENTS = (1, 2, 4, 8, 16, 32)
TEXTS = (1, 4, 16, 64)


@dataclass(frozen=True)
class System:
    """An invented system: rates are relative to the first one."""

    site: str
    device: str
    training: float
    generation: float
    knee: float  # batch size per device at which a rate is half of what it can be
    watts: float
    memory_gib: float
    recipe: str
    scaling: float  # efficiency of each doubling of devices


@dataclass(frozen=True)
class Network:
    """A network under an invented name: of a real one the rules of results know everything."""

    name: str
    title: str
    unit: str
    rate: float  # units/s that the first system can do
    mib: float  # memory of one unit of a batch


SYSTEMS = (
    System("alpha", "Invented A-140", 1.0, 1.0, 40, 640.0, 140, "cuda", 0.985),
    System("beta", "Invented B-192", 0.83, 1.27, 75, 700.0, 192, "rocm", 0.965),
    System("gamma", "Invented C-64", 0.61, 0.68, 52, 520.0, 64, "xpu", 0.94),
)
IMAGES = Network("pictures", "Network of pictures", "images", 5600.0, 120.0)
WORDS = Network("texts", "Network of texts", "sequences", 250.0, 0.0)


def write_study(folder: Path) -> Path:
    """Write the results of the study into a folder, a file each, and return the folder."""
    folder.mkdir(parents=True)
    for number, document in enumerate(results()):
        (folder / f"{number:03}.json").write_text(json.dumps(document))
    return folder


def results() -> Iterator[dict[str, Any]]:
    """Yield the results: always the same ones."""
    chance = random.Random(7)  # noqa: S311
    for system in SYSTEMS:
        for repeat in range(REPEATS):
            noise = (math.exp(chance.gauss(0, 0.004)) for _ in iter(int, 1))
            for batch in BATCHES:
                if batch * IMAGES.mib / 1024 < system.memory_gib:
                    yield _training(system, batch, 1, next(noise), repeat)
                elif not repeat:
                    yield _out_of_memory(system, batch)
            yield _training(system, DEVICES * BATCHES[3], DEVICES, next(noise), repeat)
            yield from (_requests(system, clients, next(noise), repeat) for clients in CLIENTS)
            yield from (_generation(system, texts, next(noise), repeat) for texts in TEXTS)


def _training(system: System, batch: int, devices: int, noise: float, repeat: int) -> dict[str, Any]:
    local = batch / devices
    rate = devices * IMAGES.rate * system.training * local / (local + system.knee) * noise
    rate *= system.scaling ** math.log2(devices)
    watts = devices * system.watts * (0.45 + 0.55 * local / (local + system.knee))
    return _result(system, IMAGES, "training", rate, watts, batch, repeat, devices=devices)


def _requests(system: System, clients: int, noise: float, repeat: int) -> dict[str, Any]:
    most, alone = 2900 * system.training, 290 * system.training**0.7
    rate = most * alone * clients / (most + alone * clients) * noise
    latency = {"value": clients / rate, "unit": "s"}
    latencies = {f"metrics__latency_p{share}": latency for share in (50, 90, 95, 99)}
    return _result(system, IMAGES, "inference", rate, None, 1, repeat, clients=clients, changes=latencies)


def _generation(system: System, texts: int, noise: float, repeat: int) -> dict[str, Any]:
    tokens = 40e3 * system.generation * texts / (texts + 24) * noise
    document = _result(system, WORDS, "inference", tokens / 128, system.watts * 0.8, texts, repeat)
    first, gap = (0.011 + 0.0006 * texts) / system.generation, texts / tokens
    measured = {
        "token_throughput": (tokens, "tokens/s"),
        "decode_throughput": (tokens * 1.03, "tokens/s"),
        "prefill_throughput": (tokens * 9, "tokens/s"),
        "time_to_first_token_p50": (first, "s"),
        "time_between_tokens_p50": (gap, "s"),
        "tokens_per_watt_hour": (3600 * tokens / (system.watts * 0.8), "tokens/Wh"),
        "padding_fraction": (0.0, "1"),
    }
    document["metrics"] |= {name: {"value": value, "unit": unit} for name, (value, unit) in measured.items()}
    return document


def _out_of_memory(system: System, batch: int) -> dict[str, Any]:
    nothing = {"value": None, "unit": f"{IMAGES.unit}/s", "reason": "nothing was measured"}
    changes = {"status__state": "out_of_memory", "status__phase": "compile", "metrics__throughput": nothing}
    return _result(system, IMAGES, "training", 1.0, None, batch, 0, changes=changes)


def _result(
    system: System,
    network: Network,
    task: str,
    rate: float,
    watts: float | None,
    batch: int,
    repeat: int,
    *,
    devices: int = 1,
    clients: int | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return a valid result with a rate in units/s and a power of all devices in watts, or without a meter."""
    energy = {"value": None, "unit": "a", "reason": "not metered"}
    experiment = f"{system.site} {network.name} {task} {batch} {devices} {clients} {repeat}"
    chosen: dict[str, Any] = {
        "id": str(uuid.UUID(bytes=uuid.uuid5(uuid.NAMESPACE_URL, experiment).bytes, version=4)),
        "site": system.site,
        "workload__name": network.name,
        "workload__title": network.title,
        "workload__task": task,
        "workload__unit": network.unit,
        "workload__identity": f"sha256:{network.name.encode().hex():0>64}",
        "accelerator__name": system.device,
        "accelerator__count": devices,
        "accelerator__memory_mib": system.memory_gib * 1024 * devices,
        "device_conditions__power_cap": {"value": system.watts, "unit": "W"},
        "configuration__framework": "invented",
        "configuration__precision": "bf16",
        "configuration__batch_size": batch,
        "configuration__concurrency": clients,
        "data__source": "synthetic",
        "host__hostname": {"value": f"{system.site}-n01"},
        "provenance__image__recipe": system.recipe,
        "provenance__image__version": __version__,
        "provenance__software__framework_version": "1.0",
        "metrics__throughput": {"value": rate, "unit": f"{network.unit}/s"},
        "metrics__energy_per_unit": {"value": watts / rate, "unit": f"J/{network.unit}"} if watts else energy,
    }
    document = documents.valid(**{**chosen, **changes})
    if document["status"]["state"] == "completed":
        allocated = (2 + network.mib * batch / devices / 1024) * 1024
        document["metrics"]["peak_allocated_memory"] = {"value": allocated, "unit": "MiB"}
    return document
