"""What does a strategy cost that has nothing to divide? One rank by each, against none. README.md has more."""

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pairs import Times, compare, host, measure, parser, positive, require_folder, spend, tell

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_json

ONE_RANK = Path(__file__).resolve().parent / "one_rank.py"
NONE = "none"


def side(options: argparse.Namespace, strategy: str) -> Times:
    """Return the median step in s, and on GPUs the peak of memory in MiB."""
    words = (strategy, options.workload, options.device, options.precision)
    numbers = (options.batch_size, options.steps, options.warmup_steps)
    answer = json.loads(spend([options.python, ONE_RANK, *words, *map(str, numbers)]).output)
    memory = {} if isinstance(answer["memory"], str) else {"memory": answer["memory"]}
    return {"median step": statistics.median(answer["seconds"]), **memory}


def _options() -> argparse.Namespace:
    grammar = parser(__doc__, pairs=5)
    add = grammar.add_argument
    add("strategy", nargs="*", default=["ddp", "fsdp", "zero1"], metavar="STRATEGY", help="default: ddp fsdp zero1")
    add("--python", default=str(paths.CHECKOUT / ".venvs" / "torch_new" / "bin" / "python"), metavar="FILE",
        help="an interpreter with PyTorch; default: that of the tests")  # fmt: skip
    add("--workload", default="lstm", metavar="NAME", help="default lstm")
    add("--device", choices=("cpu", "cuda", "xpu"), default="cpu")
    add("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    add("--batch-size", type=positive, default=8, metavar="N", help="default 8")
    add("--steps", type=positive, default=40, metavar="N", help="with warm-up; default 40")
    add("--warmup-steps", type=positive, default=10, metavar="N", help="default 10")
    return grammar.parse_args()


def main() -> None:
    """Measure one side after the other. Raises SifmarkError."""
    options = _options()
    require_folder(options.json)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name need not resolve
    rounds = measure(options.pairs, {name: partial(side, options, name) for name in (NONE, *options.strategy)})
    shown = {
        f"{strategy}, {name} / {NONE}": summary
        for strategy, each in compare(rounds, NONE).items()
        for name, summary in each.items()
    }
    tell(shown)
    if options.json:
        summaries = {name: asdict(summary) for name, summary in shown.items()}
        write_json(options.json, {"benchmark": "strategies", "host": host(), "rounds": rounds, "summaries": summaries})


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
