"""Power cuts: what a writer said to be written is there afterwards, and never a part of it.

A real ext4 on a loop device is shut down as its own developers test it: what was not synchronised is lost.
"""

import fcntl
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmark.core import paths
from sifmark.core.files import atomic_path, write_json

_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN of linux/fs/ext4/ext4.h
_WITHOUT_LOG = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
_SIZE = 64 << 20  # bytes
# Nothing but the writer itself synchronises: not the age of a change, nor a rename over a file.
_OPTIONS = "loop,commit=3600,noauto_da_alloc"
CUTS = 4


class Disk:
    """A file system whose power can be cut."""

    def __init__(self, folder: Path) -> None:
        self.image, self.root = folder / "disk.img", folder / "disk"
        self.root.mkdir()
        with self.image.open("wb") as stream:
            stream.truncate(_SIZE)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)

    def start(self) -> None:
        subprocess.run(["mount", "-o", _OPTIONS, self.image, self.root], check=True, capture_output=True)

    def stop(self) -> None:
        subprocess.run(["umount", self.root], check=True)

    def cut_power(self) -> None:
        """Lose what is not on the disk. Whoever writes is refused from then on."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, _WITHOUT_LOG.to_bytes(4, sys.byteorder))
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Mount it again, once nobody has a file open."""
        self.stop()
        self.start()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    try:
        made.start()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of our own here: {error}")
    yield made
    made.stop()


def test_a_file_that_was_not_synchronised_is_lost(disk: Disk) -> None:
    """Otherwise the tests below prove nothing."""
    (disk.root / "a.json").write_text("{}")
    disk.cut_power()
    disk.restart()
    assert not (disk.root / "a.json").exists()


def test_what_was_written_survives(disk: Disk) -> None:
    write_json(disk.root / "new" / "a.json", {"a": 1})
    with atomic_path(disk.root / "folder") as draft:
        (draft / "inner").mkdir(parents=True)
        (draft / "inner" / "file").write_text("content")
    disk.cut_power()
    disk.restart()
    assert json.loads((disk.root / "new" / "a.json").read_text()) == {"a": 1}
    assert (disk.root / "folder" / "inner" / "file").read_text() == "content"


WRITER = """
import itertools, sys
from pathlib import Path
kind, target = sys.argv[1:]
if kind == "host":
    from sifmark.core.files import write_json
    write = lambda document: write_json(Path(target), document)
else:
    from entrypoints.runs.output import open_writer
    write = open_writer(target, 1).write
for number in itertools.count():
    started = f"2024-02-29T12:00:{number // 1000 % 60:02}.{number % 1000:03}Z"
    write({
        "number": number, "body": "x" * 5000, "started": started, "workload": {"name": "resnet50"},
        "configuration": {"framework": "pytorch", "device": "cpu"}, "provenance": {"image": None},
    })
    print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("kind", "name"), [("host", "a.json"), ("image", "a.json"), ("image", "a.jsonl"), ("image", "all/")]
)
def test_what_is_said_to_be_written_survives_whole(disk: Disk, kind: str, name: str) -> None:
    for seed in range(CUTS):
        target = disk.root / str(seed) / name
        target.parent.mkdir()
        moment = random.Random(f"{name} {seed}").randint(1, 40)
        argv = [sys.executable, "-c", WRITER, kind, f"{target}{'/' * name.endswith('/')}"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=paths.ROOT) as writer:
            assert writer.stdout
            acknowledged = [int(writer.stdout.readline()) for _ in range(moment)][-1]
            disk.cut_power()
            writer.kill()
        disk.restart()
        found = _numbers(target)
        assert acknowledged in found or (name == "a.json" and found[0] > acknowledged), (seed, acknowledged, found)
        if name != "a.json":
            assert set(range(acknowledged)) <= set(found)


def _numbers(target: Path) -> list[int]:
    """Return the numbers of the documents at a place, all of which are whole but for the last of several lines."""
    if target.is_dir():
        return [json.loads(path.read_bytes())["number"] for path in target.iterdir() if path.name[0] != "."]
    if target.suffix == ".json":
        return [json.loads(target.read_bytes())["number"]]
    return [json.loads(line)["number"] for line in target.read_bytes().split(b"\n")[:-1]]
