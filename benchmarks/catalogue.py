"""The cost of names, of an idle catalogue, and of a container's start. README.md explains the numbers."""

import os
import shutil
import sys
import tempfile
from contextlib import chdir
from functools import partial
from pathlib import Path

from pairs import Round, Summary, Times, host, measure, parser, require_folder, spend, summarise, tell

from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_json
from sifmark.core.paths import CHECKOUT
from sifmark.core.settings import load_settings
from sifmark.core.terminal import output, status
from sifmark.engines.apptainer.build import COMPRESSION
from sifmark.engines.apptainer.engine import user_flags
from sifmark.recipes.names import workloads_of

RECIPE = "cpu"
INV = (Path(sys.executable).with_name("inv"), "--search-root", CHECKOUT)


def inv(folder: Path, *words: str) -> float:
    """Return the seconds of a command that writes its images into a folder."""
    with chdir(folder):
        return spend([*INV, *words], SIFMARK_DIST=str(folder / "dist")).seconds


def names(folder: Path) -> Times:
    """Compare all names of a recipe with its image alone: seconds to make them, and bytes on disk."""
    shutil.rmtree(folder / "dist", ignore_errors=True)
    built = inv(folder, "build", RECIPE)
    image = folder / "dist" / f"{RECIPE}.sif"
    with_names, alone = (
        spend([sys.executable, "-c", code], SIFMARK_DIST=str(folder / "dist")).seconds for code in (_AGAIN, _NOTHING)
    )
    taken = with_names - alone
    return {
        "names / image, seconds": built / (built - taken),
        "names / image, disk": _disk(folder / "dist") / _disk_of(image),
    }


# The end of a build: every name of the recipe again.
_NOTHING = """
from pathlib import Path
from sifmark.core.settings import load_settings
from sifmark.engines import open_engine
from sifmark.recipes.names import workloads_of
engine = open_engine(load_settings(), "apptainer")
"""
_AGAIN = f"""{_NOTHING}
for name in workloads_of("{RECIPE}"):
    Path(engine.address(f"{{name}}-{RECIPE}")).unlink()
engine.tag_workloads("{RECIPE}")
"""


def idle(folder: Path) -> Times:
    """Time `sifmark build --all` with nothing to do, minus the start of the interpreter, in seconds."""
    done, bare = inv(folder, "build", "--all"), spend([sys.executable, "-c", "pass"]).seconds
    return {"nothing to do, seconds": done - bare}


def start(image: Path) -> Times:
    """Compare `apptainer run IMAGE --list` with a container that does nothing."""
    listed = spend(["apptainer", "run", *user_flags(), image, "--list"]).seconds
    bare = spend(["apptainer", "exec", *user_flags(), image, "python3", "-c", "pass"]).seconds
    return {"--list / pass": listed / bare}


def imported(images: dict[str, Path], python: Path) -> Times:
    """Compare `import torch` in the image, by its compression, with the same outside."""
    path = "import sys; sys.path.append('/sifmark-site'); import torch"
    bare = spend([python, "-c", "import torch"]).seconds
    inside = {
        name: spend(["apptainer", "exec", *user_flags(), image, "python3", "-c", path]).seconds
        for name, image in images.items()
    }
    return {f"import torch, {name} / bare": seconds / bare for name, seconds in inside.items()}


def _disk(folder: Path) -> int:
    """Return the bytes on disk of a folder's images, each counted once."""
    return sum({path.stat().st_ino: _disk_of(path) for path in folder.rglob("*.sif")}.values())


def _disk_of(path: Path) -> int:
    return path.stat().st_blocks * 512


def main() -> None:
    """Measure, print and save. Raises SifmarkError."""
    grammar = parser(__doc__, pairs=5)
    default = CHECKOUT / ".venvs" / "torch_new" / "bin" / "python"
    grammar.add_argument("--python", type=Path, default=default, metavar="FILE", help="with torch; default torch_new's")
    options = grammar.parse_args()
    require_folder(options.json)
    target = options.json and options.json.absolute()
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        folder = Path(name)
        images = {}
        for compression in COMPRESSION:
            status(f"building with {compression}")
            inv(folder, "build", RECIPE, "--compression", compression)
            images[compression] = folder / f"{compression}.sif"
            os.link(folder / "dist" / f"{RECIPE}.sif", images[compression])
        inv(folder, "build", "--all")
        chosen = images[load_settings().compression]
        sides = {
            "idle": partial(idle, folder),
            "start": partial(start, chosen),
            "import": partial(imported, images, options.python),
            "names": partial(names, folder),
        }
        rounds = measure(options.pairs, {key: sides[key] for key in ("idle", "start", "import")})
        rounds_of_names = measure(options.pairs, {"names": sides["names"]})
    summaries = {**_summaries(rounds), **_summaries(rounds_of_names)}
    output(f"{len(workloads_of(RECIPE))} names, {options.pairs} rounds")
    tell(summaries)
    if target is not None:
        document = {"benchmark": "catalogue", "host": host(), "rounds": rounds, "of_names": rounds_of_names}
        write_json(target, document)


def _summaries(rounds: list[Round]) -> dict[str, Summary]:
    return {
        quantity: summarise([each[side][quantity] for each in rounds])
        for side, times in rounds[0].items()
        for quantity in times
    }


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
