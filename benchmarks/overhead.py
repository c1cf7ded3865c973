"""The cost of the harness: processor time per step outside the workload. README.md explains the numbers."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from meter import made_up, metered_parser
from pairs import Times, host, measure, require_folder, summarise, tell

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_json
from sifmark.core.terminal import status

sys.path.append(str(paths.CHECKOUT / "tests" / "inside" / "support"))
from program import lay_double

SETTLING = 1.0  # seconds, for late imports


def lay_out(folder: Path) -> Path:
    """Create a tree as in an image, with a device that sleeps in each step and is called `cpu`, so that RAPL meters
    it."""
    tree = Path(lay_double(folder))
    devices = tree / "entrypoints" / "devices" / "double"
    (devices / "double.py").replace(devices / "cpu.py")
    image = json.loads((tree / "image.json").read_text())
    (tree / "image.json").write_text(json.dumps({**image, "device": "cpu"}))
    return tree


def side(tree: Path, meter: str, options: argparse.Namespace) -> Times:
    """Return the processor time of each part of the harness in a stretch of the timed window, in seconds per step."""
    argv = [sys.executable, "-s", "-B", str(tree / "entrypoints" / "main.py"), "resnet50", "--steps", "1000000"]
    argv += ["--warmup-steps", "1", "--batch-size", "1", "--idle-seconds", "0"]
    argv += ["--meter", meter, "--meter-period", str(options.period)]
    environment = {**os.environ, "DOUBLE_STEP_SECONDS": str(options.step)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        if not any("measuring" in line for line in parent.stderr or ()):
            remedy = f"run it by hand: {shlex.join(argv)}"
            raise SifmarkError("the program did not come to measure", remedy, code="run-failed")
        rates = watch(partial(used, parent.pid), options.seconds)
        parent.terminate()
        result = json.loads(parent.communicate()[0])
    if result["power"].get("failed_readings") != 0:
        raise SifmarkError(f"readings of {meter} failed", "name a meter that can be read", code="device-missing")
    return {part: rate * result["metrics"]["step_time_mean"]["value"] for part, rate in rates.items()}


def asleep(options: argparse.Namespace) -> Times:
    """Return the same for a process that only does what the device does: sleep, step after step."""
    with subprocess.Popen(
        [sys.executable, "-s", "-c", f"import time\nwhile True: time.sleep({options.step})"]
    ) as sleeper:
        rates = watch(lambda: {"workload": sum(_threads(sleeper.pid).values())}, options.seconds)
        sleeper.terminate()
    return {part: rate * options.step for part, rate in rates.items()}


def watch(look: Callable[[], dict[str, float]], seconds: float) -> dict[str, float]:
    """Return the processor time by part over the time it was watched."""
    time.sleep(SETTLING)
    before, began = look(), time.monotonic()
    time.sleep(seconds)
    after, elapsed = look(), time.monotonic() - began
    return {part: (after[part] - before[part]) / elapsed for part in after}


def used(parent: int) -> dict[str, float]:
    """Return the processor time so far of the parent's two threads and of the child, in seconds."""
    ours = _threads(parent)
    main, meter = sorted(ours, key=int)
    (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {"parent": ours[main], "meter": ours[meter], "child": sum(_threads(int(child)).values())}


def _threads(process: int) -> dict[str, float]:
    """Return the processor time of each thread: the kernel counts it in nanoseconds, rusage perhaps in ticks."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}


def _options() -> argparse.Namespace:
    grammar = metered_parser(__doc__)
    grammar.add_argument("--step", type=float, default=0.05, metavar="SECONDS", help="length of one; default 0.05")
    return grammar.parse_args()


def main() -> None:
    """Measure one run after the other. Raises SifmarkError."""
    options = _options()
    require_folder(options.json)
    with tempfile.TemporaryDirectory() as folder:
        meter = options.meter or made_up(Path(folder))
        ours = partial(side, lay_out(Path(folder, "image")), meter, options)
        rounds = measure(options.pairs, {"workload": partial(asleep, options), "ours": ours})
    costs = {part: [each["ours"][part] for each in rounds] for part in rounds[0]["ours"]}
    costs["workload"] = [each["workload"]["workload"] for each in rounds]
    costs["harness"] = [sum(each["ours"].values()) - each["workload"]["workload"] for each in rounds]
    step = f"{1000 * options.step:g} ms step"
    micros = {f"{part}, us a step": summarise([1e6 * cost for cost in each]) for part, each in costs.items()}
    shares = {f"harness, % of a {step}": summarise([100 * cost / options.step for cost in costs["harness"]])}
    status(f"{meter} every {options.period:g} s, {step}s for {options.seconds} s a run, {len(rounds)} rounds")
    tell({**micros, **shares})
    if options.json:
        summaries = {name: asdict(summary) for name, summary in {**micros, **shares}.items()}
        about = {"meter": meter, "period": options.period, "step": options.step, "seconds": options.seconds}
        document = {"benchmark": "overhead", "host": host(), "about": about, "rounds": rounds, "summaries": summaries}
        write_json(options.json, document)


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
