"""A base is larger than memory may be: what a build does with one holds a few blocks of it at a time."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 256 * 2**20  # bytes of the base, a hole on the disk
MOST = 48 * 2**20  # bytes by which a process that appends, hashes and wraps it may grow

CODE = """
import resource, sys
from pathlib import Path
from sifmark.engines.apptainer.append import append
from sifmark.engines.apptainer.build import SQUASHFS
from sifmark.engines.apptainer.sif import INSPECT_NAME, METADATA, SifObject, fingerprints, write_sif
from sifmark.layers.cache import BASES, Entry

def peak(who):
    return resource.getrusage(who).ru_maxrss * 1024

folder, base, layer = map(Path, sys.argv[1:])
before = peak(resource.RUSAGE_SELF)
entry = Entry(folder / "cache", BASES, "key", lambda content: base.rename(content / SQUASHFS))
entry.ensure()
image = folder / "image.sif"
metadata = SifObject(METADATA, b'{"data": {"attributes": {"labels": {}}}}', INSPECT_NAME)

def write(content):
    system = append(layer, content / SQUASHFS, folder / "end", None, 600)
    hashes = write_sif(image, system, "x86_64", lambda _: [metadata], 0, bytes(16))
    return hashes, {SQUASHFS: system.base_digest()}

hashes = entry.read(write)
print(peak(resource.RUSAGE_SELF) - before, peak(resource.RUSAGE_CHILDREN), image.stat().st_size)
assert hashes == fingerprints(image)
"""


@pytest.mark.full
@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="squashfs-tools are not installed")
def test_no_part_of_a_base_is_held_in_memory(tmp_path: Path) -> None:
    tree, layer, base = (tmp_path / name for name in ("tree", "layer", "base.squashfs"))
    for folder in (tree, layer):
        folder.mkdir()
    with (tree / "large").open("wb") as stream:
        stream.truncate(SIZE)
        stream.write(b"not a hole alone")
    (layer / "code").write_text("x")
    # Stored as it is, and not as a hole: the file system has as many bytes.
    options = ["-noD", "-noF", "-no-sparse", "-no-duplicates", "-no-progress"]
    subprocess.run(["mksquashfs", tree, base, *options], check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", CODE, tmp_path, base, layer], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, child, size = map(int, done.stdout.split())
    assert size > SIZE and grown < MOST and child < SIZE // 2
