"""What commands say and leave behind when the disk is full."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmark.core import paths

RESULTS = paths.ROOT / "schemas" / "examples" / "result-1.2"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, on which nothing is free but names."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        with (folder / "filler").open("wb", buffering=0) as stream:
            while stream.write(bytes(4096)) == 4096:
                pass
    except OSError:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["report", str(RESULTS), "--output", "full/report"],
        pytest.param(["report.site", str(RESULTS), "--output", "full/site"], marks=pytest.mark.full),
        ["results.export", str(RESULTS), "--output", "full/runs.parquet"],
    ],
    ids=lambda words: str(words[0]),
)
def test_the_error_names_the_place_and_nothing_half_done_stays(full: Path, words: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "SIFMARK_DIST": str(full.parent / "dist")}
    argv = [sys.executable, "-m", "sifmark", *words]
    done = subprocess.run(argv, cwd=full.parent, env=environment, capture_output=True, text=True, check=False)
    cause, _, remedy = done.stderr[done.stderr.index("error: ") :].partition("\n  remedy: ")
    assert done.returncode == 1 and cause.endswith("[disk-full]") and words[-1] in cause, done.stderr
    assert remedy and "sifmark clean" not in remedy
    assert [path.name for path in full.iterdir()] == ["filler"]
