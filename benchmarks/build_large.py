"""The build after an edit on a base as large as vendors', against copying and hashing that base once. See README.md."""

import os
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from build import RECIPE, Site, fill, make_site
from pairs import Spent, Times, measure, parser, report, require_folder, spend

from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size
from sifmark.core.process import run
from sifmark.core.settings import load_settings
from sifmark.core.terminal import output, status
from sifmark.engines.apptainer.build import SQUASHFS
from sifmark.layers.cache import BASES, BASES_WITH_WHEELS, LAYERS, Entry, entry_folders

_COPY = """
import hashlib, shutil, sys
shutil.copyfile(*sys.argv[1:])
with open(sys.argv[2], "rb") as stream:
    hashlib.file_digest(stream, "sha256")
"""
_SMALL_FILE = 2048  # bytes
_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def enlarge(site: Site, size: int, files: int) -> Path:
    """Let the kept base with wheels hold `size` bytes that do not compress, and small files. Return its squashfs.

    Its checksum is written again, so that a build takes it for its own.
    """
    (kept,) = entry_folders(site.folder / "cache", BASES_WITH_WHEELS)
    small = kept.rename(site.folder / "small")
    entry = Entry(site.folder / "cache", BASES_WITH_WHEELS, kept.name, partial(_fill, small / "content", size, files))
    entry.ensure()
    for kind in (BASES, LAYERS):  # they are not read again, and the disk may be small
        shutil.rmtree(site.folder / "cache" / kind)
    return entry.content / SQUASHFS


def _fill(small: Path, size: int, files: int, content: Path) -> None:
    for path in small.iterdir():
        path.rename(content / path.name)
    folder = content.parent / "filler"
    for number in range(files):
        path = folder / "filler" / str(number // 1000) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(_SMALL_FILE))
    folder.mkdir(exist_ok=True)
    rest = max(0, size - files * _SMALL_FILE) >> 20
    # Compressing what does not compress would take minutes, and gives the same bytes.
    large = f"large f 644 0 0 dd if=/dev/urandom bs=1M count={rest} status=none"
    options = ["-no-progress", "-no-recovery", "-noD", "-noF", "-p", large]
    run(["mksquashfs", folder, content / SQUASHFS, *options], time_limit=3600)
    shutil.rmtree(folder)


def copied(site: Site, squashfs: Path) -> Times:
    """Time a copy of the squashfs, of which the image will have as many bytes, and its SHA-256."""
    target = site.folder / "copy"
    try:
        return _times(spend([sys.executable, "-c", _COPY, squashfs, target]))
    finally:
        target.unlink()


def edited(site: Site) -> Times:
    """Time a build after a new line under entrypoints/. The last image goes first: there may be no space for two."""
    shutil.rmtree(site.folder / "dist")
    with (site.project / "entrypoints" / "main.py").open("a") as stream:
        stream.write("# one more line\n")
    return site.build()


def peak_memory(site: Site) -> int:
    """Return the bytes of the largest process of one more build."""
    shutil.rmtree(site.folder / "dist")
    inv = Path(sys.executable).with_name("inv")
    build = [str(inv), "--search-root", str(site.project), "build", RECIPE]
    spent = run([sys.executable, "-c", _PEAK, *build], environment=site.environment, time_limit=3600)
    return int(spent.output)


def _times(spent: Spent) -> Times:
    return {"wall": spent.seconds, "cpu": spent.cpu_seconds}


def _parser() -> ArgumentParser:
    options = parser(__doc__, pairs=3)
    options.add_argument("--gib", type=float, default=0.5, help="size of the base; twice as much is free on TMPDIR")
    options.add_argument("--files", type=int, default=20_000, help="small files in it")
    return options


def main() -> None:
    """Measure, print and save. Raises SifmarkError."""
    options = _parser().parse_args()
    require_folder(options.json)
    target = options.json and options.json.absolute()
    size = int(options.gib * 2**30)
    with tempfile.TemporaryDirectory(prefix="sifmark-benchmark-") as name:
        site = make_site(Path(name))
        fill(site)
        status(f"making a base of {human_size(size)}")
        squashfs = enlarge(site, size, options.files)
        sides = {"copied": partial(copied, site, squashfs), "edited": partial(edited, site)}
        rounds = measure(options.pairs, sides)
        memory = peak_memory(site)
        about = {
            "bases": load_settings().bases,
            "bytes": squashfs.stat().st_size,
            "files": options.files,
            "peak_memory": memory,
        }
    report("build_large", rounds, "copied", about, target)
    output(f"largest process of a build on {human_size(about['bytes'])}: {human_size(memory)}")


if __name__ == "__main__":
    try:
        main()
    except SifmarkError as error:
        sys.exit(f"error: {error}")
