"""A site of ten thousand results: its time against reading them alone, and its memory. README.md has more."""

import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pairs import Times, measure, parser, positive, report, spend

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.terminal import output, status

SITES, REPEATS = 40, 3
FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
LOOK_EVERY = 0.1  # seconds between two looks at the memory of all processes
EXAMPLES = paths.SCHEMAS / "examples" / "result-1.2"


@dataclass
class Memory:
    """The largest memory of all processes of a command together, in MiB, of each of its runs."""

    peaks: list[float] = field(default_factory=list)


def make(folder: Path, documents: list[dict[str, Any]], count: int) -> Path:
    """Generate results of nights: REPEATS of each site and document, each with its own id, time and step times.

    Steps take longer by less than the rounding that rules allow, so that each agrees with itself as the given one does.
    """
    chance = random.Random(1)  # noqa: S311 - no secret
    kinds = [(site, document) for site in range(SITES) for document in documents]
    for number in range(count):
        place, repeat = divmod(number, REPEATS)
        night, kind = divmod(place, len(kinds))
        site, original = kinds[kind]
        result = copy.deepcopy(original)
        result["id"] = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        result["site"] = f"site-{site:02}"
        result["provenance"]["command"] += [f"--site={result['site']}"]
        began = FIRST + timedelta(days=night, seconds=60 * (kind * REPEATS + repeat))
        length = datetime.fromisoformat(result["finished"]) - datetime.fromisoformat(result["started"])
        result["started"], result["finished"] = (
            f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for moment in (began, began + length)
        )
        result["steps"]["seconds"] = [seconds * (1 + number * 1e-14) for seconds in result["steps"]["seconds"]]
        target = folder / f"{FIRST + timedelta(days=night):%Y-%m-%d}" / result["site"]
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{result['id']}.json").write_text(json.dumps(result))
    return folder


def read(folder: Path) -> Times:
    """Time the validation of all results, from start to exit: one process."""
    spent = spend([sys.executable, "-m", "sifmark", "results.validate", folder])
    return {"wall": spent.seconds, "cpu": spent.cpu_seconds}


def site(folder: Path, target: Path, memory: Memory) -> Times:
    """Time the command from start to exit, and look at the memory of its processes meanwhile."""
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "sifmark", "report.site", str(folder), "--output", str(target)]
    peak = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_megabytes, _family(process.pid))))
            time.sleep(LOOK_EVERY)
    if process.returncode:
        raise SifmarkError(f"report.site ended with {process.returncode}", "run it by itself", code="command-failed")
    memory.peaks.append(peak)
    wall, after = time.perf_counter() - began, os.times()
    return {"wall": wall, "cpu": after[2] + after[3] - before[2] - before[3]}


def _family(process: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield process
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))


def _megabytes(process: int) -> float:
    """Return the memory of a process, in which a page that several share counts in parts; 0 of one that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Generate the results, measure, print and save. Raises SifmarkError."""
    grammar = parser(__doc__, pairs=3)
    grammar.add_argument("--count", type=positive, default=10_000, metavar="N", help="results; default 10000")
    options = grammar.parse_args()
    documents = [json.loads((EXAMPLES / f"{name}.json").read_text()) for name in ("training", "inference")]
    memory = Memory()
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        folder = make(Path(name, "results"), documents, options.count)
        status(f"{options.count} results of {SITES} sites")
        sides = {"read": partial(read, folder), "site": partial(site, folder, Path(name, "site"), memory)}
        rounds = measure(options.pairs, sides)
        pages = list(Path(name, "site").rglob("*.html"))
        size = sum(page.stat().st_size for page in pages) / 2**20
    about = {"results": options.count, "pages": len(pages), "peaks_mib": memory.peaks}
    report("report_site", rounds, "read", about, options.json)
    output(f"\nseconds for {options.count} results; {len(pages)} pages, {size:.0f} MiB")
    for side in sides:
        for quantity in ("wall", "cpu"):
            times = sorted(each[side][quantity] for each in rounds)
            output(f"{side:<14}{quantity:<14}{times[0]:>8.2f} .. {times[-1]:.2f}")
    low, high = min(memory.peaks), max(memory.peaks)
    output(f"memory of all processes of the site together: {low:.0f} .. {high:.0f} MiB")
    output(f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors")


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
