"""What the harness costs: processor time a step of all that is not the workload. README.md says how to read it."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

from meter import made_up
from pairs import Times, measure, parser, positive, require_folder, spend, summarise, tell

from sifmark import house
from sifmark.console import say
from sifmark.errors import SifmarkError
from sifmark.files import write_json

sys.path.append(str(house.CHECKOUT / "tests" / "inside"))
from program import lay_double

SHORT = 100  # steps


def lay_out(folder: Path) -> Path:
    """A tree as in an image, whose device sleeps through each step. It is called `cpu`, so that RAPL has it metered."""
    tree = Path(lay_double(folder))
    devices = tree / "entrypoints" / "devices"
    (devices / "double.py").replace(devices / "cpu.py")
    image = json.loads((tree / "image.json").read_text())
    (tree / "image.json").write_text(json.dumps({**image, "device": "cpu"}))
    return tree


def side(tree: Path, meter: str, period: float, steps: int, seconds: float) -> Times:
    """Processor time of one whole run: of the parent with its meter, and of the child."""
    argv = [sys.executable, "-s", "-B", tree / "entrypoints" / "main.py", "resnet50", "--steps", str(steps)]
    argv += ["--warmup-steps", "1", "--batch-size", "1", "--meter", meter, "--meter-period", str(period)]
    spent = spend([*argv, "--idle-seconds", "0"], DOUBLE_STEP_SECONDS=str(seconds))
    if json.loads(spent.output)["power"].get("failed_readings") != 0:
        raise SifmarkError(f"readings of {meter} failed", "name a meter that can be read")
    return {"cpu": spent.cpu_seconds, "wall": spent.seconds}


def _options() -> argparse.Namespace:
    grammar = parser(__doc__, pairs=6)
    grammar.add_argument("--meter", metavar="NAME[:PLACE]", help="default: rapl on a made-up folder of two packages")
    grammar.add_argument("--period", type=float, default=0.1, metavar="SECONDS", help="between readings; default 0.1")
    grammar.add_argument("--steps", type=positive, default=600, metavar="N", help=f"beyond {SHORT}; default 600")
    grammar.add_argument("--seconds", type=float, default=0.05, metavar="SECONDS", help="of a step; default 0.05")
    return grammar.parse_args()


def main() -> None:
    """Measure a long and a short run in turn; their difference is what the steps between cost. Raises SifmarkError."""
    options = _options()
    require_folder(options.json)
    with tempfile.TemporaryDirectory() as folder:
        meter = options.meter or made_up(Path(folder))
        run = partial(side, lay_out(Path(folder, "image")), meter, options.period)
        sides = {
            "short": partial(run, SHORT, options.seconds),
            "long": partial(run, SHORT + options.steps, options.seconds),
        }
        rounds = measure(options.pairs, sides)
    costs = [(each["long"]["cpu"] - each["short"]["cpu"]) / options.steps for each in rounds]
    shares = summarise([100 * cost / options.seconds for cost in costs])
    micros = summarise([1e6 * cost for cost in costs])
    step = f"{1000 * options.seconds:g} ms step"
    say(f"{meter} every {options.period:g} s, {options.steps} times a {step} a round, {len(rounds)} rounds")
    tell({f"share of a {step}, %": shares, "one step, us": micros})
    if options.json:
        summaries = {"share_of_a_step_percent": asdict(shares), "step_us": asdict(micros)}
        about = {"meter": meter, "steps": options.steps, "step_seconds": options.seconds}
        write_json(options.json, {"benchmark": "overhead", **about, "rounds": rounds, **summaries})


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
