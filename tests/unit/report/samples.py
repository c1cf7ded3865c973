"""Valid results of two systems for reports: batches, concurrency, repeats, energy, epochs, and runs that failed."""

import json
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import documents

from sifmark.core import paths
from sifmark.report.tables import Table

# Twelve real runs on two cores: one and two ranks, three times each.
TWO_RANKS = paths.CHECKOUT / "tests" / "fixtures" / "scaling" / "two_ranks.jsonl"
REAL = documents.EXAMPLES
SYSTEMS = {"alpha": ("Accelerator A", 1.0), "beta": ("Accelerator B", 1.6)}  # by site: the device and its speed
# By invented name, since of a real one everything is known: title, unit, and units per second.
WORKLOADS = {"pictures": ("Network of pictures", "images", 100.0), "texts": ("Network of texts", "sequences", 20.0)}
BATCHES, REPEATS = (8, 16, 32), 3


def sample(site: str, workload: str, batch: int, repeat: int = 1, **changes: Any) -> dict[str, Any]:
    """A valid result of training, faster on larger batches; `changes` are values at paths, `a__b`."""
    device, speed = SYSTEMS.get(site, (site, 1.0))
    title, unit, rate = WORKLOADS[workload]
    value = rate * speed * batch / (batch + 8) * (1 + repeat / 100)
    chosen: dict[str, Any] = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{site} {workload} {batch} {repeat} {sorted(changes.items())}")),
        "site": site,
        "workload__name": workload,
        "workload__title": title,
        "workload__task": "training",
        "workload__unit": unit,
        "workload__identity": f"sha256:{workload.encode().hex():0>64}",
        "accelerator__name": device,
        "configuration__precision": "bf16",
        "configuration__batch_size": batch,
        "configuration__concurrency": None,
        "data__source": "synthetic",
        "host__hostname": {"value": f"{site}-node"},
        "metrics__throughput": {"value": value, "unit": f"{unit}/s"},
        "metrics__energy_per_unit": {"value": 2.5 / speed * (1 + 4 / batch), "unit": f"J/{unit}"},
    }
    document = documents.valid(**{**chosen, **changes})
    document["id"] = str(uuid.UUID(document["id"], version=4))
    return document


def failure(site: str, workload: str, batch: int, state: str = "out_of_memory") -> dict[str, Any]:
    """A valid result of a run that failed before its first step."""
    nothing = {"value": None, "unit": f"{WORKLOADS[workload][1]}/s", "reason": "nothing was measured"}
    changes: dict[str, Any] = {"status__state": state, "status__phase": "compile", "metrics__throughput": nothing}
    return sample(site, workload, batch, **changes)


def of_requests(site: str, clients: int, repeat: int = 1, **changes: Any) -> dict[str, Any]:
    """A valid result of inference by requests."""
    latency = 0.01 * (1 + clients / 4) * (1 + repeat / 100) / SYSTEMS[site][1]
    rate = clients / latency
    latencies: dict[str, Any] = {
        f"metrics__latency_p{share}": {"value": latency, "unit": "s"} for share in (50, 90, 95, 99)
    }
    return sample(
        *(site, "pictures", 1, repeat),
        workload__task="inference",
        configuration__concurrency=clients,
        metrics__throughput={"value": rate, "unit": "images/s"},
        **(latencies | changes),
    )


def of_serving(site: str, clients: int | None = None, repeat: int = 1, **changes: Any) -> dict[str, Any]:
    """A valid result of serving to clients, or of the search for a goodput."""
    speed = SYSTEMS[site][1] * (1 + repeat / 100)
    load = {
        "engine": "vllm",
        "arrivals": "closed" if clients else "poisson",
        "rate": None if clients else 4.0,
        "burstiness": None,
        "concurrency": clients,
        "prompt_lengths": [128, 128],
        "answer_lengths": [64, 64],
        "first_token_limit": 2.0,
        "token_limit": 0.1,
        "find_goodput": not clients,
    }
    rate = 90.0 * speed * (clients or 8) / ((clients or 8) + 4)
    token = 0.01 * (1 + (clients or 8) / 8) / speed
    metrics = {
        "throughput": (rate / 64, "requests/s"),
        "output_token_throughput": (rate, "tokens/s"),
        "output_token_throughput_per_device": (rate, "tokens/s"),
        **{f"time_per_output_token_p{share}": (token, "s") for share in (50, 90, 99)},
        **{f"time_to_first_token_p{share}": (0.1 + token, "s") for share in (50, 90, 99)},
        "energy_per_output_token": (0.5 / speed, "J/token"),
        **({} if clients else {"goodput": (3.0 * speed, "requests/s")}),
    }
    document = sample(
        *(site, "texts", 1, repeat),
        workload__task="serving",
        workload__unit="requests",
        configuration__serving=load,
        **changes,
    )
    document["metrics"] |= {name: {"value": value, "unit": unit} for name, (value, unit) in metrics.items()}
    return document


def documents_of_study() -> Iterator[dict[str, Any]]:
    """Yield a study: two systems, two workloads, three batches, three repeats; and what failed."""
    for repeat in range(1, REPEATS + 1):
        for site in SYSTEMS:
            yield from (sample(site, workload, batch, repeat) for workload in WORKLOADS for batch in BATCHES)
            yield from (of_requests(site, clients, repeat) for clients in (1, 2, 4))
    yield failure("alpha", "pictures", 64)
    yield failure("beta", "texts", 64, "crashed")


def real_documents() -> Iterator[dict[str, Any]]:
    """Yield real results: of one and two ranks, and the examples of the schema. They name no site."""
    yield from map(json.loads, TWO_RANKS.read_text().splitlines())
    for name in ("training", "inference", "out_of_memory"):
        yield json.loads((REAL / f"{name}.json").read_text())


def write(folder: Path, some: Iterable[dict[str, Any]]) -> Path:
    """Write results into a folder, a file each, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, document in enumerate(some):
        (folder / f"{number:03}.json").write_text(json.dumps(document))
    return folder


def study(folder: Path, real: bool = False) -> Path:
    """Write the results of a study into a folder; with `real` also those."""
    return write(folder, [*documents_of_study(), *(real_documents() if real else ())])


def places_of(table: Table) -> dict[str, int]:
    """The places of columns by what their heads say before a unit."""
    return {column.head.partition(" [")[0]: place for place, column in enumerate(table.columns)}


def texts_of(table: Table) -> list[tuple[str, ...]]:
    """The texts of the cells of a table."""
    return [tuple(cell.text for cell in row.cells) for row in table.rows]


def of_generation(site: str, batch: int, repeat: int = 1, **changes: Any) -> dict[str, Any]:
    """A valid result of inference that continues texts."""
    speed = SYSTEMS[site][1] * (1 + repeat / 100)
    rates = {"token_throughput": 32e3 * speed, "decode_throughput": 30e3 * speed, "prefill_throughput": 90e3 * speed}
    times = {"time_to_first_token_p50": 0.035 / speed, "time_between_tokens_p50": 0.0061 / speed}
    document = sample(site, "texts", batch, repeat, workload__task="inference", **changes)
    document["metrics"] |= {name: {"value": rate, "unit": "tokens/s"} for name, rate in rates.items()}
    document["metrics"] |= {name: {"value": seconds, "unit": "s"} for name, seconds in times.items()}
    watts = document["metrics"]["energy_per_unit"]["value"] * document["metrics"]["throughput"]["value"]
    efficiency = {"value": 3600 * rates["token_throughput"] / watts, "unit": "tokens/Wh"}
    document["metrics"] |= {"padding_fraction": {"value": 0.0, "unit": "1"}, "tokens_per_watt_hour": efficiency}
    return document
