"""What no signature covers in a SIF is empty, or the SIF is refused."""

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.engines.test_sif import written
from unit.keys import make_key
from unit.refusals import refused

from sifmark.core.keys import key_id
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed, open_engine
from sifmark.engines.apptainer.inspection import require_covered
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.apptainer.signature import sign, signer

GAP, ROW = 1000, 585  # a place between header and table, and the size of a row of the table, in bytes
HEADER_ARCHITECTURE, HEADER_FREE, HEADER_DATA_SIZE = 45, 80, 120
Change = Callable[[Path], object]


def put(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(content)


def longer(path: Path, size: int) -> None:
    """Let a file end in a hole."""
    os.truncate(path, path.stat().st_size + size)


def widen(path: Path, size: int) -> None:
    """Move the last object back, so that a hole is before it."""
    sif = read_sif(path)
    content, row = sif.read(sif.descriptors[-1]), 4096 + (len(sif.descriptors) - 1) * ROW
    place = sif.end - len(content) + size
    put(path, sif.end - len(content), bytes(len(content)))
    put(path, place, content)
    put(path, row + 17, struct.pack("<q", place))
    put(path, HEADER_DATA_SIZE, struct.pack("<q", place + len(content) - sif.header.data))


CHANGES: dict[str, tuple[Change, str]] = {
    "bytes behind the last object": (lambda path: put(path, path.stat().st_size, b"x"), "1 bytes are behind"),
    "a hole behind the last object": (lambda path: longer(path, 3 << 30), f"{3 << 30} bytes are behind"),
    "a byte in a gap": (lambda path: put(path, GAP, b"x"), "bytes between byte 128 and byte 4096"),
    "a byte at the end of a gap": (lambda path: put(path, 32767, b"x"), "bytes between byte 32176 and byte 32768"),
    "a hole before an object": (lambda path: widen(path, 3 << 30), f"{3 << 30} bytes from byte"),
    "an unused row": (lambda path: put(path, 4096 + 40 * ROW + 100, b"x"), "unused rows"),
    "another architecture": (lambda path: put(path, HEADER_ARCHITECTURE, b"04"), "another architecture"),
    "another count": (lambda path: put(path, HEADER_FREE, struct.pack("<q", 7)), "counts 7 free rows"),
    "another size": (lambda path: put(path, HEADER_DATA_SIZE, struct.pack("<q", 9)), "at byte 32777 by its header"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_in_no_object_is_refused_at_once(tmp_path: Path, name: str) -> None:
    change, said = CHANGES[name]
    path = written(tmp_path / "image.sif")
    require_covered(read_sif(path))
    change(path)
    started = time.monotonic()
    with refused(CheckFailed, "image-altered") as error:
        require_covered(read_sif(path))
    assert said in error.value.cause and "image.sign" in error.value.remedy
    assert time.monotonic() - started < 1  # although some are 3 GiB long


def test_padding_up_to_a_large_page_is_no_fault(tmp_path: Path) -> None:
    path = written(tmp_path / "image.sif")
    widen(path, 64 * 1024)
    require_covered(read_sif(path))


def test_an_inspection_asks_before_it_names_a_signer(site: Settings, tmp_path: Path) -> None:
    path = written(tmp_path / "image.sif")
    put(path, GAP, b"x")
    image = open_engine(site, "apptainer").inspect(str(path))
    for ask in (image.require_covered, lambda: image.signer(("site.pub",))):
        with refused(CheckFailed, "image-altered"):
            ask()


@pytest.fixture
def signed_elsewhere(tmp_path: Path, trusting: Settings, made_by_0_1_0: Path) -> tuple[Path, Settings]:
    """A copy of a signed image without a record here, and settings that trust its key."""
    path = tmp_path / "cpu.sif"
    shutil.copyfile(made_by_0_1_0 / "cpu.sif", path)
    return path, trusting


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "a hole before an object"])
def test_apptainer_accepts_what_we_refuse(signed_elsewhere: tuple[Path, Settings], name: str) -> None:
    """The reason for all this: the signature is valid, although the file is another one."""
    path, trusting = signed_elsewhere
    CHANGES[name][0](path)
    assert signer(path, trusting.keys).startswith("key.pub ")
    with refused(CheckFailed, "image-altered"):
        open_engine(trusting, "apptainer").inspect(str(path)).signer(trusting.keys)


@pytest.mark.parametrize("kinds", [("rsa", "ed25519"), ("ed25519", "rsa")])
def test_a_second_signature_leaves_nothing_of_the_first(
    signed_elsewhere: tuple[Path, Settings], tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    path, _ = signed_elsewhere
    for kind in kinds:
        key, public = make_key(tmp_path, kind, kind)
        sign(path, key, "")
        require_covered(read_sif(path))
        assert signer(path, (public,)) == key_id(Path(public))


def test_what_apptainer_builds_is_covered(tmp_path: Path, trusting: Settings) -> None:
    """Also before and after Apptainer signed it: its padding is zero, and nothing is behind it."""
    assert trusting.keys
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_text("content")
    path = tmp_path / "image.sif"
    subprocess.run(["apptainer", "build", path, tmp_path / "root"], check=True, capture_output=True)
    require_covered(read_sif(path))
    sign(path, make_key(tmp_path, "site")[0], "")
    require_covered(read_sif(path))
