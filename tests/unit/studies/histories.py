"""Results of months for tests: documents of the schema with dates, values and circumstances that a test chooses."""

import json
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import documents

FIRST = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
DRIVER = "device_conditions__driver__value"
IMAGE = "provenance__image__build_key"
FRAMEWORK = "provenance__software__framework_version"
HOST = "host__hostname__value"
KERNEL = "host__kernel__value"
SPREAD = 0.01  # of the logarithms of nights


def key(number: int) -> str:
    """A build key."""
    return f"sha256:{number:064x}"


def write_run(folder: Path, when: datetime, throughput: float, **changes: Any) -> Path:
    """Write a valid result of a run that started then."""
    folder.mkdir(parents=True, exist_ok=True)
    identifier = str(uuid.uuid4())
    metric = {"value": throughput, "unit": "images/s"}
    document = documents.valid(id=identifier, metrics__throughput=metric, **changes)
    length = datetime.fromisoformat(document["finished"]) - datetime.fromisoformat(document["started"])
    document |= {"started": _stamp(when), "finished": _stamp(when + length)}
    file = folder / f"{identifier}.json"
    file.write_text(json.dumps(document))
    return file


def nights(seed: int, count: int, spread: float = SPREAD) -> list[float]:
    """Return what so many nights measured where nothing changed."""
    generator = random.Random(seed)
    return [100 * generator.lognormvariate(0, spread) for _ in range(count)]


def write_nights(
    folder: Path, values: Sequence[float], first: datetime = FIRST, repeats: int = 1, **changes: Any
) -> list[Path]:
    """Write a result, or several, for each night; a change that is a list has a value for each night."""
    files = []
    for night, value in enumerate(values):
        chosen = {name: each[night] if isinstance(each, list) else each for name, each in changes.items()}
        for repeat in range(repeats):
            when = first + timedelta(days=night, minutes=10 * repeat)
            files.append(write_run(folder, when, value * (1 + 0.001 * repeat), **chosen))
    return files


def _stamp(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"
