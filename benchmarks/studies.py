"""Planning a study and looking at its results, in bulk: against a command that does nothing. README.md has more."""

import copy
import json
import shlex
import sys
import tempfile
import uuid
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pairs import Times, measure, parser, positive, report, spend

from sifmark.commands.framework import COMMANDS
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import load_settings
from sifmark.core.terminal import output, status
from sifmark.results.identity import identity_of
from sifmark.studies.folder import claim_folder
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.study import PlannedRun

REPEATS = 5  # of a cell
STUDY = """
title   = "Many runs"
repeats = {repeats}
[[system]]
name      = "here"
image     = "cpu"
arguments = {arguments}
[[run]]
workload   = "{workload}"
seed       = {seeds}
time_limit = {limits}
"""
LIMITS = range(3600, 3620)  # seconds


def write_study(folder: Path, count: int, document: dict[str, Any]) -> Path:
    """Write a study of about `count` runs: cells of five repeats, which do what a result's run did."""
    workload, *arguments = shlex.split(identity_of(document).arguments)
    values = {"workload": workload, "arguments": arguments, "limits": list(LIMITS)}
    values["seeds"] = list(range(-(-count // (len(LIMITS) * REPEATS))))
    path = folder / "many.toml"
    path.write_text(STUDY.format(repeats=REPEATS, **values))
    return path


def fill(request: Request, document: dict[str, Any]) -> int:
    """Write a result of each run of a study, with different ids and times. Return their number."""
    plan = plan_study(request, load_settings())
    claim_folder(plan.study, request.results)
    for number, planned in enumerate(plan.runs):
        result = copy.deepcopy(document)
        result["id"] = str(uuid.UUID(int=number, version=4))
        for name in ("started", "finished"):
            moment = datetime.fromisoformat(result[name]) - timedelta(seconds=number + 1)
            result[name] = f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
        result |= {"site": planned.run.system, "configuration": result["configuration"] | _configured(planned)}
        result["provenance"]["command"] = planned.arguments
        if planned.image and result["provenance"]["image"]:
            result["provenance"]["image"]["file"]["identity"] = planned.image
        planned.result.parent.mkdir(parents=True, exist_ok=True)
        planned.result.write_text(json.dumps(result))
    return len(plan.runs)


def _configured(planned: PlannedRun) -> dict[str, Any]:
    cell = planned.run.cell
    return {"seed": cell["seed"], "time_limit_seconds": cell["time_limit"]}


def verb(*words: str | Path) -> Times:
    """Time a command from start to exit, imports included."""
    spent = spend([sys.executable, "-m", "sifmark", *words])
    return {"wall": spent.seconds, "cpu": spent.cpu_seconds}


def main() -> None:
    """Write a study and its results, measure, print and save. Raises SifmarkError."""
    grammar = parser(__doc__, pairs=5)
    grammar.add_argument("--result", type=Path, required=True, metavar="FILE", help="a completed training run to vary")
    grammar.add_argument("--count", type=positive, default=10_000, metavar="N", help="runs; default 10000")
    options = grammar.parse_args()
    document = json.loads(options.result.read_text())
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        folder = Path(name)
        study = write_study(folder, options.count, document)
        full = folder / "full"
        runs = fill(Request(str(study), results=full), document)
        status(f"{runs} runs")
        sides = {
            "nothing": partial(verb, "--version"),
            "plan": partial(verb, "study.plan", study, "--results", folder / "empty"),
            "plan, done": partial(verb, "study.plan", study, "--results", full),
        }
        if "study.status" in COMMANDS:
            sides["status, done"] = partial(verb, "study.status", study, "--results", full)
        rounds = measure(options.pairs, sides)
    report("studies", rounds, "nothing", {"runs": runs}, options.json)
    output(f"\nseconds for {runs} runs")
    for side in sides:
        for quantity in ("wall", "cpu"):
            times = sorted(each[side][quantity] for each in rounds)
            output(f"{side:<14}{quantity:<14}{times[0]:>8.2f} .. {times[-1]:.2f}")


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
