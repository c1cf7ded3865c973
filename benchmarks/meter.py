"""The cost of a meter: the fraction of one core that sampling takes, by processor time. See README.md."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pairs import Times, host, measure, parser, positive, require_folder, spend, summarise, tell

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_json
from sifmark.core.terminal import status

PROBE = Path(__file__).resolve().parent / "sampled.py"
PACKAGES = 2  # as in a common server


def made_up(folder: Path) -> str:
    """Create a meter of packages laid out like the kernel's, for machines without one; return its option value."""
    for package in range(PACKAGES):
        zone = folder / f"intel-rapl:{package}"
        zone.mkdir()
        for name, text in (
            ("name", f"package-{package}"),
            ("energy_uj", "81537"),
            ("max_energy_range_uj", "262143328850"),
        ):
            (zone / name).write_text(f"{text}\n")
    return f"rapl:{folder}"


def side(meter: str, seconds: int, period: float) -> Times:
    """Return the processor time of one process that watches, and how often it read the meter."""
    argv: list[str | Path] = [sys.executable, "-s", "-B", PROBE, meter, str(seconds), str(period)]
    answer = json.loads(spend(argv, PYTHONPATH=str(paths.CHECKOUT)).output)
    if answer["failures"]:
        cause = f"{answer['failures']} readings of {meter} failed"
        raise SifmarkError(cause, "name a meter that can be read", code="device-missing")
    return {"cpu": answer["cpu_seconds"], "readings": answer["readings"]}


def metered_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of a benchmark whose runs are metered."""
    grammar = parser(description, pairs=6)
    grammar.add_argument("--meter", metavar="NAME[:PLACE]", help="default: rapl on a made-up folder of two packages")
    grammar.add_argument("--seconds", type=positive, default=20, metavar="N", help="of each run; default 20")
    grammar.add_argument("--period", type=float, default=0.1, metavar="SECONDS", help="between readings; default 0.1")
    return grammar


def main() -> None:
    """Measure with the meter and without in turn; the difference is the meter's cost."""
    options = metered_parser(__doc__).parse_args()
    require_folder(options.json)
    with tempfile.TemporaryDirectory() as folder:
        meter = options.meter or made_up(Path(folder))
        sides = {"none": partial(side, "none", options.seconds, options.period)}
        sides["metered"] = partial(side, meter, options.seconds, options.period)
        rounds = measure(options.pairs, sides)
    costs = [each["metered"]["cpu"] - each["none"]["cpu"] for each in rounds]
    shares = summarise([100 * cost / options.seconds for cost in costs])
    micros = summarise([1e6 * cost / each["metered"]["readings"] for cost, each in zip(costs, rounds, strict=True)])
    status(f"{meter}, a reading every {options.period:g} s, {options.seconds} s a run, {len(rounds)} rounds")
    tell({"share of one core, %": shares, "one reading, us": micros})
    if options.json:
        summaries = {"share_of_a_core_percent": asdict(shares), "reading_us": asdict(micros)}
        write_json(options.json, {"benchmark": "meter", "host": host(), "meter": meter, "rounds": rounds, **summaries})


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"{error}")
