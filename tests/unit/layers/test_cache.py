"""What builds keep: made once, checked, forgotten when its space is wanted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_files
from sifmark.layers.cache import BASES, Entry, in_use
from sifmark.layers.eviction import rate, trim


class Maker:
    """Fills an entry, and counts how often it had to."""

    def __init__(self, size: int = 10) -> None:
        self.calls, self.size = 0, size

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_bytes(b"b" * self.size)
        (folder / "a").write_text("a")


def test_an_entry_is_made_once_and_found_again(tmp_path: Path) -> None:
    make = Maker()
    for _ in range(2):
        with Entry(tmp_path, BASES, "key", make).use() as content:
            assert (content / "a").read_text() == "a"
    assert make.calls == 1
    checksum = Entry(tmp_path, BASES, "key", make).checksum()
    assert checksum is not None and checksum.size == 11
    expected = pytest.approx(checksum.size / checksum.seconds) if checksum.seconds else None
    assert rate(tmp_path, BASES) == expected


@pytest.mark.parametrize("damage", ["byte", "cut", "gone", "more", "checksum", "no checksum"])
@pytest.mark.parametrize("use", ["used", "copy"])
def test_a_damaged_entry_is_found_by_its_hash_and_made_again(tmp_path: Path, damage: str, use: str, capsys) -> None:
    make = Maker()
    entry = Entry(tmp_path, BASES, "key", make)
    entry.ensure()
    spoil(entry, damage)
    target = tmp_path / "target"
    if use == "copy":
        entry.copy(target)
    else:
        with entry.use() as content:
            target = content
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == ["a", "b"]
    assert ((target / "sub" / "b").read_bytes(), make.calls) == (b"b" * 10, 2)
    assert "is damaged" in capsys.readouterr().err


def spoil(entry: Entry, damage: str) -> None:
    file = entry.content / "sub" / "b"
    if damage == "byte":
        file.write_bytes(b"b" * 9 + b"c")
    elif damage == "cut":
        file.write_bytes(b"b")
    elif damage == "gone":
        file.unlink()
    elif damage == "more":
        (entry.content / "c").write_text("c")
    elif damage == "checksum":
        (entry.folder / "seal.json").write_text('{"digest": 7')
    else:
        (entry.folder / "seal.json").unlink()


def test_what_never_reads_back_as_written_is_no_endless_loop(tmp_path: Path) -> None:
    class Restless(Maker):
        def __call__(self, folder: Path) -> None:
            super().__call__(folder)
            (folder / "fifo").symlink_to("/proc/sys/kernel/random/uuid")  # other bytes at each reading

    with refused(SifmarkError, "cache-unreliable"), Entry(tmp_path, BASES, "key", Restless()).use():
        raise AssertionError


def test_a_failure_leaves_no_entry(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise SifmarkError("no network", code="registry-unreachable")

    with refused(SifmarkError, "registry-unreachable"):
        Entry(tmp_path, BASES, "key", fail).ensure()
    assert [path.name for path in (tmp_path / BASES).iterdir()] == [".key.lock"]


def test_processes_that_want_the_same_make_it_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sifmark.layers.cache import Entry\n"
        "def make(folder):\n"
        "    print('made', flush=True); time.sleep(0.5); (folder / 'a').write_text('a')\n"
        "with Entry(Path(sys.argv[1]), 'bases', 'key', make).use() as content:\n"
        "    assert (content / 'a').read_text() == 'a'"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(process.communicate()[0] for process in processes) == ["", "", "made\n"]
    assert [process.returncode for process in processes] == [0, 0, 0]


def test_over_the_limit_the_longest_unused_goes_first_and_what_is_in_use_stays(tmp_path: Path) -> None:
    entries = {key: Entry(tmp_path, BASES, key, Maker(2**20)) for key in ("old", "used", "recent")}
    for age, entry in zip((300, 200, 100), entries.values(), strict=True):
        entry.ensure()
        stamp = (entry.folder / "seal.json").stat().st_mtime - age
        os.utime(entry.folder / "seal.json", (stamp, stamp))
    with in_use(entries["used"].folder):
        trim(tmp_path, limit=1.5 * 2**20 / 2**30)
    assert {key for key, entry in entries.items() if entry.folder.exists()} == {"used"}


def test_without_a_limit_everything_stays(tmp_path: Path) -> None:
    entry = Entry(tmp_path, BASES, "key", Maker(2**20))
    entry.ensure()
    trim(tmp_path, limit=None)
    assert entry.checksum() is not None


@pytest.mark.parametrize("error", [ValueError, KeyError])
@pytest.mark.parametrize("damaged", [True, False])
def test_an_error_on_a_damaged_entry_is_forgotten_once_it_is_made_again(
    tmp_path: Path, damaged: bool, error: type[Exception]
) -> None:
    make = Maker()
    entry = Entry(tmp_path, BASES, "key", make)
    entry.ensure()
    if damaged:
        spoil(entry, "byte")

    def consume(content: Path) -> tuple[str, dict[str, str]]:
        if make.calls == 1:
            raise error("what is read makes no sense")
        return "made", sha256_files({"a": content / "a", "sub/b": content / "sub" / "b"})

    if damaged:
        assert entry.read(consume) == "made"
    else:
        with pytest.raises(error, match="makes no sense"):
            entry.read(consume)
    assert make.calls == 1 + damaged


@pytest.mark.parametrize("shared", ["cache", "entries", "elsewhere"])
def test_a_cache_that_others_may_write_to_is_not_used(tmp_path: Path, shared: str) -> None:
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    for folder in (cache, elsewhere):
        folder.mkdir(mode=0o755)
    if shared == "elsewhere":
        (cache / BASES).symlink_to(elsewhere)
    entry = Entry(cache, BASES, "key", Maker())
    entry.ensure()
    {"cache": cache, "entries": cache / BASES, "elsewhere": elsewhere}[shared].chmod(0o777)
    with refused(SifmarkError, "path-shared"), entry.use():
        raise AssertionError
    with refused(SifmarkError, "path-shared"):
        entry.copy(tmp_path / "target")
