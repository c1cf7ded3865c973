"""Results as tidy rows: one for each run and metric, with the columns by which people filter and draw."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sifmark.results.comparison.observation import metric_value, metrics_of, value_at
from sifmark.results.comparison.scaling import THROUGHPUT

# By column its type in SQL, in the order of a row. `started` is UTC.
COLUMNS = {
    "study": "VARCHAR",
    "system": "VARCHAR",
    "accelerator": "VARCHAR",
    "devices": "INTEGER",
    "workload": "VARCHAR",
    "task": "VARCHAR",
    "framework": "VARCHAR",
    "version": "VARCHAR",
    "precision": "VARCHAR",
    "batch": "BIGINT",
    "batch_per_device": "DOUBLE",
    "repeat": "INTEGER",
    "metric": "VARCHAR",
    "unit": "VARCHAR",
    "value": "DOUBLE",
    "state": "VARCHAR",
    "correctness": "VARCHAR",
    "started": "TIMESTAMP",
    "id": "VARCHAR",
    "file": "VARCHAR",
    "image": "VARCHAR",
    "driver": "VARCHAR",
}

Document = dict[str, Any]


@dataclass(frozen=True)
class ResultPlace:
    """Where a result is: its file, and the study that it is of."""

    file: str
    study: str = ""


def tidy_rows(document: Document, place: ResultPlace) -> Iterator[dict[str, Any]]:
    """Yield a row for each metric of a valid result that has a value, and for its throughput in any case."""
    run = _run(document, place)
    for name, metric in metrics_of(document).items():
        number = metric_value(metric)
        if number.value is not None or name == THROUGHPUT:
            row = {**run, "metric": name, "unit": number.unit, "value": number.value}
            yield {column: row[column] for column in COLUMNS}


def _run(document: Document, place: ResultPlace) -> dict[str, Any]:
    configuration, accelerator = document["configuration"], document["accelerator"]
    software = document["provenance"]["software"]
    batch, devices = configuration["batch_size"], accelerator.get("count")
    name = accelerator.get("name", accelerator["kind"])
    return {
        "study": place.study,
        "system": document["site"] or name,
        "accelerator": name,
        "devices": devices,
        "workload": document["workload"]["name"],
        "task": document["workload"]["task"],
        "framework": configuration["framework"],
        "version": software["framework_version"],
        "precision": configuration["precision"],
        "batch": batch,
        "batch_per_device": batch / devices if batch and devices else None,
        "repeat": configuration["repeat"]["index"],
        "state": document["status"]["state"],
        "correctness": document["numerics"]["state"],
        "started": document["started"],
        "id": document["id"],
        "file": place.file,
        "image": value_at(document, "provenance.image.build_key"),
        "driver": value_at(document, "device_conditions.driver.value"),
    }
