"""How long commands take that have little to do, here and in another checkout. README.md explains the numbers."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pairs import Times, measure, parser, report, require_folder, spend

from sifmark.core.errors import UsageError
from sifmark.core.paths import CHECKOUT

RESULTS = CHECKOUT / "tests" / "fixtures" / "h200"
COMMANDS = {
    "--help": ("--help",),
    "build --help": ("build", "--help"),
    "list": ("list",),
    "compare": ("compare", str(RESULTS), "--allow", "numerics.state", "--quiet"),
    "build -n": ("build", "cpu", "--dry-run", "--quiet"),
}
TIMES = 3  # of each command in a round; the shortest counts


def main() -> None:
    """Measure, print and save. Raises SifmarkError."""
    grammar = parser(__doc__, pairs=5)
    grammar.add_argument("--before", type=Path, required=True, metavar="FOLDER", help="another checkout of sifmark")
    options = grammar.parse_args()
    require_folder(options.json)
    before = options.before.absolute()
    if not (before / "sifmark" / "cli.py").is_file():
        raise UsageError(f"{before} is no checkout of sifmark", "name a clone: --before FOLDER", code="invalid-option")
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as folder:
        sides: dict[str, Callable[[], Times]] = {
            name: partial(_times, checkout, Path(folder)) for name, checkout in (("before", before), ("now", CHECKOUT))
        }
        rounds = measure(options.pairs, sides)
    report("startup", rounds, "before", {"before": str(before)}, options.json)


def _times(checkout: Path, folder: Path) -> Times:
    """Return the CPU seconds of each command with the code of a checkout: wall time says more about neighbours."""
    shutil.rmtree(folder / "dist", ignore_errors=True)
    return {name: min(_cpu_seconds(checkout, folder, words) for _ in range(TIMES)) for name, words in COMMANDS.items()}


def _cpu_seconds(checkout: Path, folder: Path, words: tuple[str, ...]) -> float:
    code = "import sys; from sifmark.commands.command_line import main; main(sys.argv[1:])"
    spent = spend([sys.executable, "-c", code, *words], PYTHONPATH=str(checkout), SIFMARK_DIST=str(folder / "dist"))
    return spent.cpu_seconds


if __name__ == "__main__":
    main()
