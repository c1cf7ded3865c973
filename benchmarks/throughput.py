"""Every workload against a plain loop, or another commit, in each of its tasks. README.md has more."""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pairs import Summary, Times, compare, host, measure, parser, positive, require_folder, spend

from sifmark.core.errors import SifmarkError, unknown_name
from sifmark.core.files import write_json
from sifmark.core.paths import CHECKOUT
from sifmark.core.terminal import output, status
from sifmark.recipes.names import cards

PLAIN = CHECKOUT / "benchmarks" / "plain.py"
MAIN = Path("entrypoints", "main.py")  # below a checkout
TASKS = ("training", "inference", "sampling")


def plain(python: Path, workload: str, task: str, options: argparse.Namespace, batch_size: int) -> Times:
    """Return the seconds per image in the plain loop."""
    words = [workload, task, options.precision, str(batch_size), str(options.seconds), str(options.threads)]
    words += ["--compile"] if options.compile else []
    answer = json.loads(spend([python, "-s", "-B", PLAIN, *words]).output)
    return {"image": answer["seconds"] / answer["steps"] / batch_size}


def ours(
    python: Path, workload: str, task: str, options: argparse.Namespace, batch_size: int, checkout: Path = CHECKOUT
) -> Times:
    """Return the seconds per image in ours, from the result."""
    words = ["--task", task, "--precision", options.precision, "--batch-size", str(batch_size), "--warmup-steps", "4"]
    words += ["--duration", str(options.seconds), "--threads", str(options.threads), "--skip-numerics"]
    words += ["--compile"] if options.compile else []
    result = json.loads(spend([python, "-s", "-B", checkout / MAIN, workload, *words, "--meter", "none"]).output)
    return {"image": 1 / result["metrics"]["throughput"]["value"]}


def _options() -> argparse.Namespace:
    grammar = parser(__doc__, pairs=5)
    add = grammar.add_argument
    add("workload", nargs="*", metavar="WORKLOAD", help="default: all")
    add("--task", choices=TASKS, help="default: all that a workload has")
    add("--precision", choices=("fp32", "bf16"), default="fp32")
    add("--compile", action="store_true", help="both sides by torch.compile")
    add("--batch-size", type=positive, metavar="N", help="default: the workload's on a CPU")
    add("--before", type=Path, metavar="FOLDER", help="a checkout of another commit in place of the plain loop")
    add("--seconds", type=positive, default=10, metavar="N", help="of each timed window; default 10")
    add("--threads", type=positive, default=len(os.sched_getaffinity(0)), metavar="N", help="default: all processors")
    default = CHECKOUT / ".venvs" / "torch_new" / "bin" / "python"
    add("--python", type=Path, default=default, metavar="FILE", help="with torch and torchvision; default torch_new's")
    return grammar.parse_args()


def main() -> None:
    """Measure workload by workload; the ratio is the other side's time over ours, so above 1 ours is faster."""
    options = _options()
    require_folder(options.json)
    rows: dict[str, dict[str, Any]] = {}
    output(f"{'workload':<28}{'task':<11}{'batch':>5}{'median':>9}   interval of the median")
    for workload, task, size in _chosen(options):
        status(f"{workload}, {task}")
        other = partial(ours, checkout=options.before) if options.before else plain
        sides = {
            name: partial(side, options.python, workload, task, options, size)
            for name, side in (("ours", ours), ("other", other))
        }
        row: dict[str, Any] = {"batch_size": size}
        try:
            rounds = measure(options.pairs, sides)
            (summary,) = compare(rounds, "ours")["other"].values()
            row.update(rounds=rounds, ratio=asdict(summary))
            cells = f"{summary.median:>9.3f}   {_interval(summary)}"
        except SifmarkError as error:  # too large for this machine, or nothing to compare with
            row.update(ratio=None, reason=error.cause)
            cells = f"{'none':>9}   {error.cause.splitlines()[0]}"
        output(f"{workload:<28}{task:<11}{size:>5}{cells}")
        rows[f"{workload} {task}"] = row
        if options.json:
            write_json(options.json, _document(options, rows))
    output(f"geometric mean of {len(_ratios(rows))}: {_mean(rows)}")


def _chosen(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Yield workload, task and batch size of each row. Raises UsageError for an unknown name."""
    all_cards = cards()
    for name in options.workload:
        if name not in all_cards:
            raise unknown_name("workload", name, all_cards)
    for name in options.workload or all_cards:
        defaults = all_cards[name]["defaults"]
        for task in all_cards[name]["tasks"]:
            if options.task in (None, task):
                yield name, task, options.batch_size or defaults.get("cpu", defaults["any"])[task]["batch_size"]


def _document(options: argparse.Namespace, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    about = {
        "precision": options.precision,
        "compile": options.compile,
        "before": options.before and str(options.before),
        "threads": options.threads,
        "seconds": options.seconds,
    }
    return {"benchmark": "throughput", "host": host(), "about": about, "geometric_mean": _mean(rows), "workloads": rows}


def _ratios(rows: dict[str, dict[str, Any]]) -> list[float]:
    return [row["ratio"]["median"] for row in rows.values() if row["ratio"]]


def _mean(rows: dict[str, dict[str, Any]]) -> float | None:
    ratios = _ratios(rows)
    return round(statistics.geometric_mean(ratios), 3) if ratios else None


def _interval(summary: Summary) -> str:
    return f"{summary.low:.3f} .. {summary.high:.3f} ({summary.confidence:.0%})"


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
