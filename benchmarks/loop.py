"""Our measuring loop, as users run it, against a bare PyTorch loop in the same image. See README.md."""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairs import Spent, Times, measure, parser, positive, report, require_folder, spend

from sifmark.core.errors import SifmarkError
from sifmark.core.paths import CHECKOUT
from sifmark.core.settings import load_settings
from sifmark.engines import Engine
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.locate import engine_for, locate
from sifmark.recipes.labels import BUILD_KEY

sys.path.append(str(CHECKOUT))  # what goes into images is not an installed package
from entrypoints.system import allocator

HERE = Path(__file__).resolve().parent
PLACE = "/mnt"  # exists in every Linux base, so that the engine need not create it


def ours(engine: Engine, image: Path, words: Sequence[str]) -> Times:
    """Run the image once; return the times in its result."""
    spent = spend(engine.command(str(image), "run", words, []))
    result = json.loads(spent.output)
    metrics, steps = result["metrics"], result["steps"]
    window = metrics["step_time_mean"]["value"] * (steps["count"] - steps["untimed"])
    return _times(metrics["step_time_p50"]["value"], window, spent)


def bare(engine: Engine, image: Path, configuration: dict[str, Any]) -> Times:
    """Run bare.py once in the image, with the interpreter options that the image uses."""
    program = ["python3", "-s", "-B", f"{PLACE}/bare.py", json.dumps(configuration)]
    command = engine.command(str(image), "exec", program, ["--bind", f"{HERE}:{PLACE}:ro"])
    spent = spend(command, **{allocator.VARIABLE: allocator.tunables(os.environ)})
    seconds = json.loads(spent.output)
    return _times(statistics.median(seconds), sum(seconds), spent)


def describe(engine: Engine, image: Path, words: Sequence[str]) -> dict[str, Any]:
    """Return the image's configuration for these options, which the bare loop gets too."""
    answer = json.loads(spend(engine.command(str(image), "run", [*words, "--describe", "--json"], [])).output)
    return dict(answer["configuration"])


def _times(median_step: float, window: float, spent: Spent) -> Times:
    return {"median step": median_step, "timed window": window, "cpu, whole run": spent.cpu_seconds}


def _options() -> argparse.Namespace:
    grammar = parser(__doc__, pairs=5)
    add = grammar.add_argument
    add("--image", default="resnet50-cpu", metavar="NAME|FILE", help="a CPU image of PyTorch; default resnet50-cpu")
    add("--task", choices=("training", "inference"), default="training")
    add("--precision", choices=("fp32", "bf16"), help="default: the workload's")
    add("--batch-size", type=positive, metavar="N", help="default: the workload's")
    add("--steps", type=positive, metavar="N", help="warm-up included; default: the workload's")
    add("--threads", type=positive, metavar="N", help="default: the usable cores; 1 is steadier on a busy machine")
    return grammar.parse_args()


def _words(options: argparse.Namespace) -> list[str]:
    chosen = {"task": options.task, "precision": options.precision}
    chosen |= {"batch-size": options.batch_size, "steps": options.steps, "threads": options.threads}
    # The bare loop has no correctness check in its own process, and no rest to measure idle power.
    fixed = ["--skip-numerics", "--meter", "none"]
    return fixed + [word for name, value in chosen.items() if value is not None for word in (f"--{name}", str(value))]


def main() -> None:
    """Measure, print and save. Raises SifmarkError."""
    options = _options()
    require_folder(options.json)
    engine, words = engine_for(options.image, load_settings()), _words(options)
    image = Path(locate(options.image, engine))
    configuration = describe(engine, image, words)
    sides = {"bare": lambda: bare(engine, image, configuration), "ours": lambda: ours(engine, image, words)}
    rounds = measure(options.pairs, sides)
    about = {"image": image.name, "build_key": read_sif(image).labels().get(BUILD_KEY), "configuration": configuration}
    report("loop", rounds, "bare", about, options.json)


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
