"""Looking into a squashfs that begins somewhere in a file, by way of unsquashfs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from sifmark.attestations.packages import Package, is_package_record, read_packages, report_unreadable
from sifmark.core.process import run
from sifmark.core.settings import settings

ROOT = "squashfs-root/"  # what unsquashfs calls it


def list_files(squashfs: Path, offset: int, *folders: str) -> list[tuple[str, ...]]:
    """Mode, owner, size, date, time and name of each file."""
    lines = run(["unsquashfs", "-offset", str(offset), "-lls", squashfs, *folders]).output.splitlines()
    rows = [line for line in lines if line[:1] in "-dlbcps" and ROOT in line]
    return [tuple(line.split(maxsplit=5)) for line in rows]


def extract(squashfs: Path, offset: int, folder: Path, names: Sequence[str] = ()) -> Path:
    """Write all files, or those of these names, into a new folder. An ordinary user gets no device files."""
    argv: list[str | Path] = ["unsquashfs", "-offset", str(offset), "-no-progress", "-no-xattrs", "-no-wildcards"]
    with tempfile.NamedTemporaryFile("w", prefix="sifmark-") as chosen:
        chosen.writelines(f"{name}\n" for name in names)
        chosen.flush()
        only = ["-ef", chosen.name] if names else []
        run([*argv, "-dest", folder, *only, squashfs], time_limit=settings().time_limit, check=bool(names))
    return folder


def packages_in(squashfs: Path, offset: int = 0) -> list[Package]:
    """The packages of an image, by the records in it."""
    names = [row[-1].partition(" -> ")[0].removeprefix(ROOT) for row in list_files(squashfs, offset)]
    report_unreadable(names)
    if not (known := [name for name in names if is_package_record(name)]):
        return []
    with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
        tree = extract(squashfs, offset, Path(folder, "tree"), known)
        return read_packages({name: (tree / name).read_bytes() for name in known if (tree / name).is_file()})
