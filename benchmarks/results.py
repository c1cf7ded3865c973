"""Reading results in bulk: ours against plain json and jsonschema, on the same generated files. README.md has more."""

import copy
import json
import random
import resource
import sys
import tempfile
import uuid
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pairs import Times, measure, parser, positive, report, spend

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.terminal import output

PLAIN_SHARE = 20  # the plain way gets every twentieth file, and its time is multiplied: otherwise it takes minutes
REPEATS = 5  # results per row
PLAIN = """
import json, sys
from pathlib import Path
from jsonschema import Draft202012Validator
validator = Draft202012Validator(json.loads(Path(sys.argv[1]).read_text()))
for file in sorted(Path(sys.argv[2]).rglob("*.json")):
    if not validator.is_valid(json.loads(file.read_text())):
        sys.exit(f"{file} is not valid")
"""


def make(folder: Path, document: dict[str, Any], count: int, seed: int) -> Path:
    """Generate results as in a store: each with its own id, time and step times, REPEATS of each site.

    Steps take longer by less than the rounding that rules allow, so that each agrees with itself as the given one does.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    folder.mkdir()
    for number in range(count):
        result = copy.deepcopy(document)
        result["id"] = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        result["site"] = f"site-{number // REPEATS}"
        result["provenance"]["command"] += [f"--site={result['site']}"]
        for name in ("started", "finished"):
            moment = datetime.fromisoformat(result[name]) - timedelta(seconds=number + 1)
            result[name] = f"{moment:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
        result["steps"]["seconds"] = [seconds * (1 + number * 1e-14) for seconds in result["steps"]["seconds"]]
        (folder / f"{number:06d}.json").write_text(json.dumps(result))
    return folder


def plain(folder: Path, times: int) -> Times:
    """Time `json` and `jsonschema` in a loop, as written by hand."""
    schema = paths.SCHEMAS / "result-1.2.json"
    spent = spend([sys.executable, "-c", PLAIN, schema, folder])
    return {"wall": spent.seconds * times, "cpu": spent.cpu_seconds * times}


def verb(*words: str | Path) -> Times:
    """Time a command from start to exit, imports included."""
    spent = spend([sys.executable, "-m", "invoke", "--search-root", paths.ROOT, *words])
    return {"wall": spent.seconds, "cpu": spent.cpu_seconds}


def main() -> None:
    """Generate the files, measure, print and save. Raises SifmarkError."""
    grammar = parser(__doc__, pairs=5)
    grammar.add_argument("--result", type=Path, required=True, metavar="FILE", help="a completed training run to vary")
    grammar.add_argument("--count", type=positive, default=10_000, metavar="N", help="files a side; default 10000")
    options = grammar.parse_args()
    document = json.loads(options.result.read_text())
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        new, old, few = (
            make(Path(name, side), document, count, seed)
            for seed, (side, count) in enumerate(
                {"new": options.count, "old": options.count, "few": -(-options.count // PLAIN_SHARE)}.items()
            )
        )
        sides = {
            "plain": partial(plain, few, PLAIN_SHARE),
            "validate": partial(verb, "results.validate", new),
            "compare": partial(verb, "compare", new, "--baseline", old),
        }
        rounds = measure(options.pairs, sides)
        size = sum(file.stat().st_size for file in new.iterdir()) / options.count
    report("results", rounds, "plain", {"files": options.count, "bytes_each": size}, options.json)
    output(f"\nseconds for {options.count} files of {size:.0f} bytes (compare: twice as many)")
    for side in sides:
        for quantity in ("wall", "cpu"):
            times = sorted(each[side][quantity] for each in rounds)
            output(f"{side:<14}{quantity:<14}{times[0]:>8.2f} .. {times[-1]:.2f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    output(f"largest resident set of any of them: {peak:.0f} MiB")


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
