"""The squashfs tools, and reading a squashfs that begins somewhere in a file."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sifmark.attestations.packages import Package, is_package_record, read_packages, report_unreadable
from sifmark.core.process import CommandError, run

ROOT = "squashfs-root/"  # how unsquashfs calls the top-level folder


@cache
def squashfs_tool(name: str) -> str:
    """Return the path of `mksquashfs` or `unsquashfs`: on PATH, else among Apptainer's own programs; or the name."""
    if path := shutil.which(name):
        return path
    try:
        folder = re.search(r"^LIBEXECDIR=(.+)$", run(["apptainer", "buildcfg"]).output, re.MULTILINE)
    except CommandError:
        return name
    return (folder and shutil.which(name, path=f"{folder[1]}/apptainer/bin")) or name


def list_files(squashfs: Path, offset: int, *folders: str) -> list[tuple[str, ...]]:
    """Return mode, owner, size, date, time and name of each file."""
    lines = run([squashfs_tool("unsquashfs"), "-offset", str(offset), "-lls", squashfs, *folders]).output.splitlines()
    rows = [line for line in lines if line[:1] in "-dlbcps" and ROOT in line]
    return [tuple(line.split(maxsplit=5)) for line in rows]


def extract(squashfs: Path, offset: int, folder: Path, time_limit: float, names: Sequence[str] = ()) -> Path:
    """Write all files, or those with these names, into a new folder. Device files need root, and are left out else."""
    argv: list[str | Path] = [squashfs_tool("unsquashfs"), "-offset", str(offset), "-no-progress"]
    argv += ["-no-xattrs", "-no-wildcards"]
    with tempfile.NamedTemporaryFile("w", prefix="sifmark-") as selection:
        selection.writelines(f"{name}\n" for name in names)
        selection.flush()
        only = ["-ef", selection.name] if names else []
        run([*argv, "-dest", folder, *only, squashfs], time_limit=time_limit, check=bool(names))
    return folder


def modes_and_links(squashfs: Path) -> dict[str, tuple[str, str]]:
    """Return the mode of each file of a squashfs by its absolute path, and the target of a link, or an empty text."""
    rows = ((mode, name.removeprefix(ROOT).partition(" -> ")) for mode, *_, name in list_files(squashfs, 0))
    return {f"/{name}": (mode, target) for mode, (name, _, target) in rows}


def packages_in(squashfs: Path, time_limit: float, offset: int = 0) -> list[Package]:
    """Return the packages of an image, read from the package managers' records in it."""
    names = [row[-1].partition(" -> ")[0].removeprefix(ROOT) for row in list_files(squashfs, offset)]
    report_unreadable(names)
    if not (records := [name for name in names if is_package_record(name)]):
        return []
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        tree = extract(squashfs, offset, Path(folder, "tree"), time_limit, records)
        return read_packages({name: (tree / name).read_bytes() for name in records if (tree / name).is_file()})
