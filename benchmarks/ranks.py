"""Two ranks on this machine, by sifmark and by a loop under torchrun. README.md explains the numbers."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from overhead import _threads
from pairs import Round, Times, compare, host, measure, parser, positive, require_folder, summarise, tell

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_json

HERE = Path(__file__).resolve().parent
MAIN = paths.CHECKOUT / "entrypoints" / "main.py"
TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node", "2")
LOOK = 0.2  # s between readings of a parent's processor time


def bare(options: argparse.Namespace) -> Times:
    """Return the times of the loop."""
    words = (options.workload, str(options.batch_size), str(options.steps), str(options.warmup_steps))
    done = subprocess.run(
        [options.python, *TORCHRUN, str(HERE / "bare_ranks.py"), *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SifmarkError("the loop failed", done.stderr[-1000:], code="run-failed")
    seconds = json.loads(done.stdout)
    return {"median step": statistics.median(seconds), "timed window": sum(seconds)}


def ours(options: argparse.Namespace, launcher: Sequence[str]) -> Times:
    """Return the times of a run, and the share of a core that its parents took in the timed window."""
    argv = [options.python, *launcher, str(MAIN), options.workload, "--replicas", "2", "--meter", "none"]
    argv += ["--batch-size", str(options.batch_size), "--steps", str(options.steps), "--skip-numerics"]
    argv += ["--warmup-steps", str(options.warmup_steps)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        errors = []
        for line in process.stderr:
            errors.append(line)
            if "measuring" in line:
                break
        parents = _children(process.pid) if launcher else [process.pid]
        share = _share_of_a_core(process, parents)
        output, more = process.communicate()
    if process.returncode:
        raise SifmarkError("the run failed", "".join([*errors, more])[-1000:], code="run-failed")
    result = json.loads(output)
    window = sum(result["steps"]["seconds"][options.warmup_steps :])
    return {"median step": result["metrics"]["step_time_p50"]["value"], "timed window": window, "parents": share}


def _share_of_a_core(process: "subprocess.Popen[str]", parents: Sequence[int]) -> float:
    """Return the share of a core that processes take from now until their ranks are done."""
    before, began = _used(parents), time.monotonic()
    used, until = before, began
    while process.poll() is None:
        time.sleep(LOOK)
        try:
            if not all(map(_children, parents)):  # a rank is done, and its parent writes the result
                break
            used, until = _used(parents), time.monotonic()
        except OSError:
            break
    return (used - before) / max(until - began, LOOK)


def _used(processes: Sequence[int]) -> float:
    return sum(sum(_threads(number).values()) for number in processes)


def _children(parent: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _options() -> argparse.Namespace:
    grammar = parser(__doc__, pairs=5)
    add = grammar.add_argument
    add("--python", default=str(paths.CHECKOUT / ".venvs" / "torch_new" / "bin" / "python"), metavar="FILE",
        help="an interpreter with PyTorch; default: that of the tests")  # fmt: skip
    add("--workload", default="lstm", metavar="NAME", help="default lstm")
    add("--batch-size", type=positive, default=8, metavar="N", help="default 8")
    add("--steps", type=positive, default=60, metavar="N", help="with warm-up; default 60")
    add("--warmup-steps", type=positive, default=10, metavar="N", help="default 10")
    return grammar.parse_args()


def main() -> None:
    """Measure one side after the other. Raises SifmarkError."""
    options = _options()
    require_folder(options.json)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # for both: the host's name need not resolve
    sides = {
        "bare": partial(bare, options),
        "one parent": partial(ours, options, ()),
        "two tasks": partial(ours, options, (*TORCHRUN, "--no_python", options.python)),
    }
    rounds = measure(options.pairs, sides)
    shown = {
        f"{side}, {name} / bare": summary
        for side, each in compare([_steps(each) for each in rounds], "bare").items()
        for name, summary in each.items()
    }
    for side in ("one parent", "two tasks"):
        shown[f"{side}, parents in % of a core"] = summarise([100 * each[side]["parents"] for each in rounds])
    tell(shown)
    if options.json:
        summaries = {name: asdict(summary) for name, summary in shown.items()}
        write_json(options.json, {"benchmark": "ranks", "host": host(), "rounds": rounds, "summaries": summaries})


def _steps(each: Round) -> Round:
    return {side: {name: of for name, of in times.items() if name != "parents"} for side, times in each.items()}


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
