"""Archives of studies: equal contents give equal bytes, commands read them, and no forged one is believed."""

import gzip
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal

import documents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from unit.keys import make_key
from unit.refusals import refused

from sifmark.commands.results import show_results, validate_results
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import compact_json
from sifmark.results import archive as archives
from sifmark.results.archive import Member, split_archive, unpack_results, write_archive
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.query import Query
from sifmark.results.envelope import SUFFIX, sign_results, signer_of
from sifmark.results.load import files_of, load_results

FIELDS: dict[str, Any] = {
    "sifmark": "0.2.0",
    "study": {"name": "quick", "title": "Quick", "variant": "", "questions": []},
    "states": {"completed": 2},
    "images": [],
}
FIRST, SECOND = "results/quick/here/a.json", "results/quick/here/b.json"


def result(number: int) -> bytes:
    return json.dumps(documents.valid(id=f"{number:08d}-0000-4000-8000-000000000000")).encode()


def members() -> list[Member]:
    return [
        Member(SECOND, "result", result(2)),
        Member(FIRST, "result", result(1)),
        Member("study/quick.toml", "study", b'title = "Quick"\n'),
        Member("results/quick/here/logs/a.log", "log", b"a log\n"),
    ]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """An archive as sifmark writes it."""
    path = tmp_path / "quick.tar.gz"
    write_archive(path, FIELDS, members())
    return path


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files, in which nothing may remain."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# Archives as sifmark writes them


def test_equal_contents_give_equal_bytes(whole: Path, tmp_path: Path) -> None:
    for number, member in enumerate(members()):
        (tmp_path / str(number)).write_bytes(member.read())
    files = [Member(each.name, each.kind, tmp_path / str(number)) for number, each in enumerate(members())]
    other = tmp_path / "other.tar.gz"
    write_archive(other, FIELDS, reversed(files))
    assert other.read_bytes() == whole.read_bytes()


def test_other_programs_can_unpack_it(whole: Path, tmp_path: Path) -> None:
    with tarfile.open(whole) as stream:
        stream.extractall(tmp_path / "unpacked", filter="data")
    assert (tmp_path / "unpacked" / FIRST).read_bytes() == result(1)
    manifest = json.loads((tmp_path / "unpacked" / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["members"]] == sorted(member.name for member in members())


def test_commands_read_it_as_they_read_a_folder(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validate_results([str(whole)], "json")
    assert [entry["file"] for entry in json.loads(capsys.readouterr().out)] == [f"{whole}/{FIRST}", f"{whole}/{SECOND}"]
    show_results([str(whole)], "json")
    assert len(json.loads(capsys.readouterr().out)) == 2
    comparison = compare_results((str(whole),), Query())
    assert not comparison.invalid and comparison.compared


@pytest.mark.parametrize(
    ("within", "count"), [("", 2), ("/", 2), ("/results", 2), (f"/{FIRST}", 1), ("/results/quick/here/", 2)], ids=str
)
def test_a_part_of_it_can_be_named(whole: Path, within: str, count: int) -> None:
    assert len(list(load_results(f"{whole}{within}"))) == count


@pytest.mark.parametrize("within", ["/results/quick/her", "/results/other", "/study/quick.toml", "/../quick.tar.gz"])
def test_a_part_that_has_no_results_is_an_error(whole: Path, within: str) -> None:
    with refused(UsageError, "result-missing"):
        list(load_results(f"{whole}{within}"))


def test_a_glob_finds_archives_and_a_folder_hides_them(whole: Path, tmp_path: Path) -> None:
    assert len(list(load_results(f"{tmp_path}/*.tar.gz"))) == 2
    with pytest.raises(UsageError):
        list(load_results(str(tmp_path)))


def test_nothing_remains_of_what_was_unpacked(whole: Path, temporary: Path) -> None:
    results = load_results(str(whole))
    assert isinstance(results, Generator)
    assert next(results).path.is_file() and list(temporary.iterdir())
    results.close()
    assert not list(temporary.iterdir())


def test_signatures_are_packed_and_checked(tmp_path: Path) -> None:
    key, public = make_key(tmp_path, "site")
    file = tmp_path / "a.json"
    file.write_text(json.dumps(documents.from_image()))
    envelope = sign_results(file, key)
    packed = [Member(FIRST, "result", file), Member(f"{FIRST}{SUFFIX}", "signature", envelope)]
    write_archive(tmp_path / "signed.tar.gz", FIELDS, packed)
    (signed,) = (signer_of(each.path, [public]) for each in load_results(f"{tmp_path}/signed.tar.gz"))
    assert signed == signer_of(file, [public])
    trusted = compare_results((f"{tmp_path}/signed.tar.gz",), Query(), trusted_keys=(public,))
    assert trusted.compared and not trusted.unsigned


def test_an_archive_is_no_file_to_sign(whole: Path) -> None:
    with refused(UsageError, "result-missing"):
        list(files_of([str(whole)]))


def test_what_is_too_large_or_changes_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = tmp_path / "growing.log"
    growing.write_text("1")
    monkeypatch.setattr(archives, "LARGEST_MEMBER", 1)
    write = lambda: write_archive(tmp_path / "x.tar.gz", FIELDS, [Member("a.log", "log", growing)])  # noqa: E731
    write()
    growing.write_text("12")
    with refused(SifmarkError, "archive-invalid"):
        write()
    monkeypatch.undo()
    monkeypatch.setattr(archives, "_check_manifest", lambda *_: growing.write_text("123"))
    with refused(SifmarkError, "digest-mismatch"):
        write()


NOT_ON_WINDOWS = ["CON", "con.txt", "a/Nul", "com1.log", "lpt9/a", "a.", "a./b", "a/...", "a:b", "a\\b"]


@pytest.mark.parametrize(
    "name",
    ["a" * 101, "ä.json", "/a", "a//b", "../a", "a/..", ".", "a/./b", "a b", "a\nb", "", *NOT_ON_WINDOWS],
)
def test_names_that_no_archive_has_are_not_written(tmp_path: Path, name: str) -> None:
    with refused(SifmarkError, "archive-invalid"):
        write_archive(tmp_path / "x.tar.gz", FIELDS, [Member(name, "log", b"")])
    assert not (tmp_path / "x.tar.gz").exists()


NAMES = [
    ("a", "a"),
    ("a", "a/b"),
    ("manifest.json",),
    ("manifest.json/a",),
    ("a", "A"),
    ("A", "a/b"),
    ("Manifest.json",),
]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_names_that_exclude_each_other_are_not_written(tmp_path: Path, names: tuple[str, ...]) -> None:
    with refused(SifmarkError, "archive-invalid"):
        write_archive(tmp_path / "x.tar.gz", FIELDS, [Member(name, "log", b"") for name in names])


def test_names_that_begin_like_those_of_devices_are_written(tmp_path: Path) -> None:
    names = ("console", "a/nul1", "a/COMPARE.json", ".hidden", "lpt10", "a/b", "A-b")
    write_archive(tmp_path / "x.tar.gz", FIELDS, [Member(name, "log", b"") for name in names])


# Forged archives

Forgery = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


def entry(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.type, info.linkname = len(content), 0o644, 315_532_800, kind, link
    return info, content


def forge(path: Path, change: Forgery, form: Literal[0, 1] = tarfile.USTAR_FORMAT) -> Path:
    """Write an archive as somebody else could, with its members changed."""
    manifest = {**FIELDS, "schema_version": archives.VERSION, "members": []}
    entries = [entry(each.name, each.read()) for each in sorted(members(), key=lambda each: each.name)]
    kinds = {each.name: each.kind for each in members()}
    for info, content in entries:
        description = archives._describe(Member(info.name, kinds[info.name], content))
        manifest["members"].append(description)
    entries.insert(0, entry("manifest.json", compact_json(manifest)))
    change(entries)
    stream = io.BytesIO()
    for info, content in entries:
        stream.write(info.tobuf(form) + content + bytes(-len(content) % 512))
    path.write_bytes(gzip.compress(stream.getvalue() + bytes(1024)))
    return path


def with_manifest(change: Callable[[dict[str, Any]], object]) -> Forgery:
    """Change the manifest alone."""

    def changed(entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        manifest = json.loads(entries[0][1])
        change(manifest)
        entries[0] = entry("manifest.json", compact_json(manifest))

    return changed


def with_name(name: str) -> Forgery:
    """Give the last member another name, in the manifest too."""

    def changed(entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        with_manifest(lambda manifest: manifest["members"][-1].update(name=name))(entries)
        entries[-1] = entry(name, entries[-1][1])

    return changed


def swap(entries: list[Any], first: int, second: int) -> None:
    entries[first], entries[second] = entries[second], entries[first]


FORGERIES: dict[str, Forgery] = {
    "a member that leads up": with_name("../evil.json"),
    "a member that leads up later": with_name("x/../../evil.json"),
    "an absolute member": with_name("/tmp/evil.json"),
    "a member that is no path": with_name("x\\..\\evil"),
    "an altered result": lambda entries: entries.__setitem__(1, entry(FIRST, b" " * len(entries[1][1]))),
    "a shorter result": lambda entries: entries.__setitem__(1, entry(FIRST, b"{}")),
    "a missing member": lambda entries: entries.__delitem__(2),
    "no members": lambda entries: entries.__delitem__(slice(1, None)),
    "a member more": lambda entries: entries.append(entry("zzz.json", b"{}")),
    "a member twice": lambda entries: entries.insert(2, entries[1]),
    "members in another order": lambda entries: swap(entries, 1, 2),
    "the manifest later": lambda entries: swap(entries, 0, 1),
    "a second manifest": lambda entries: entries.insert(1, entries[0]),
    "a symbolic link": lambda entries: entries.__setitem__(1, entry(FIRST, b"", tarfile.SYMTYPE, "/etc/passwd")),
    "a hard link": lambda entries: entries.__setitem__(1, entry(FIRST, b"", tarfile.LNKTYPE, "/etc/passwd")),
    "a folder": lambda entries: entries.__setitem__(1, entry(FIRST, b"", tarfile.DIRTYPE)),
    "a device": lambda entries: entries.__setitem__(1, entry(FIRST, b"", tarfile.CHRTYPE)),
    "a pipe": lambda entries: entries.__setitem__(1, entry(FIRST, b"", tarfile.FIFOTYPE)),
    "a sparse file": lambda entries: entries.__setitem__(1, entry(FIRST, b"", tarfile.GNUTYPE_SPARSE)),
    "a long name before": lambda entries: entries.insert(
        1, entry("././@LongLink", b"/etc/x\0", tarfile.GNUTYPE_LONGNAME)
    ),
    "attributes before": lambda entries: entries.insert(1, entry("x", b"18 path=/etc/evil\n", tarfile.XHDTYPE)),
    "attributes of all": lambda entries: entries.insert(0, entry("x", b"18 path=/etc/evil\n", tarfile.XGLTYPE)),
    "a name twice in the manifest": with_manifest(lambda it: it["members"].insert(1, it["members"][0])),
    "a manifest in another order": with_manifest(lambda it: it["members"].reverse()),
    "a folder with the name of a file": with_manifest(
        lambda it: it["members"].insert(1, {**it["members"][0], "name": f"{FIRST}/a.json"})
    ),
    "a size of more than a member may have": with_manifest(lambda it: it["members"][0].update(size=2**40)),
    "a size that is no whole number": with_manifest(lambda it: it["members"][0].update(size=1.0)),
    "a size below 0": with_manifest(lambda it: it["members"][0].update(size=-1)),
    "another schema": with_manifest(lambda it: it.update(schema_version="9.0")),
    "an unknown key": with_manifest(lambda it: it.update(surprise=1)),
    "an unknown kind": with_manifest(lambda it: it["members"][0].update(kind="program")),
    "a manifest that is no object": lambda entries: entries.__setitem__(0, entry("manifest.json", b"[]")),
    "a manifest that is no JSON": lambda entries: entries.__setitem__(0, entry("manifest.json", b"{")),
    "a manifest with a key twice": lambda entries: entries.__setitem__(
        0, entry("manifest.json", entries[0][1].replace(b'{"images"', b'{"states":{},"images"', 1))
    ),
    "a manifest nested too deep": lambda entries: entries.__setitem__(0, entry("manifest.json", b"[" * 100_000)),
    "owners": lambda entries: setattr(entries[1][0], "uid", 1),
    "rights": lambda entries: setattr(entries[1][0], "mode", 0o4755),
}


def problem_of(path: Path) -> str:
    """Return what is wrong with an archive, of which no result may be believed."""
    (bad,) = load_results(str(path))
    assert bad.file == str(path) and bad.document == {}
    (problem,) = bad.problems
    return problem


@pytest.mark.parametrize("name", FORGERIES)
def test_no_forged_archive_is_believed_or_leaves_its_folder(tmp_path: Path, temporary: Path, name: str) -> None:
    path = forge(tmp_path / "forged.tar.gz", FORGERIES[name])
    before = sorted(tmp_path.rglob("*"))
    folder = temporary / "unpacked" / "here"
    folder.mkdir(parents=True)
    with refused(SifmarkError, "archive-invalid"):
        unpack_results(path, folder)
    assert all(folder in each.parents for each in (temporary / "unpacked").rglob("*") if each != folder)
    assert problem_of(path) and sorted(tmp_path.rglob("*")) == before
    assert list(temporary.iterdir()) == [temporary / "unpacked"]


def test_a_manifest_with_a_million_errors_takes_seconds(tmp_path: Path) -> None:
    content = b'{"members":[' + b"{}," * 1_000_000 + b"{}]}"
    path = forge(tmp_path / "x.tar.gz", lambda entries: entries.__setitem__(0, entry("manifest.json", content)))
    before = time.process_time()
    assert problem_of(path)
    assert time.process_time() - before < 20


def test_an_archive_that_is_not_changed_passes(tmp_path: Path, whole: Path) -> None:
    path = forge(tmp_path / "same.tar.gz", lambda entries: None)
    assert gzip.decompress(path.read_bytes()) == gzip.decompress(whole.read_bytes())
    assert len(list(load_results(str(path)))) == 2


def test_an_archive_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = forge(tmp_path / "earlier.tar.gz", with_manifest(lambda it: it.update(schema_version="1.0")))
    assert len(list(load_results(str(path)))) == 2


def test_other_tars_are_refused(tmp_path: Path) -> None:
    assert problem_of(forge(tmp_path / "gnu.tar.gz", lambda entries: None, tarfile.GNU_FORMAT))


@pytest.mark.parametrize("rest", [b"x", bytes(512), gzip.compress(b"more"), gzip.compress(bytes(512))], ids=range(4))
def test_nothing_may_follow(whole: Path, rest: bytes) -> None:
    whole.write_bytes(whole.read_bytes() + rest)
    if rest.strip(b"\0"):
        assert problem_of(whole)
    else:
        assert len(list(load_results(str(whole)))) == 2  # gzip pads files with zeros on tapes


OTHER_FILES = [b"", b"\x1f\x8b", b"no archive", gzip.compress(b"", mtime=0), gzip.compress(b"x" * 512, mtime=0)]


@pytest.mark.parametrize("content", OTHER_FILES, ids=range(5))
def test_other_files_are_no_archives(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    assert problem_of(path)


def sizes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the size of whatever is unpacked."""
    sizes: list[int] = []
    read = archives._read

    def counted(stream: gzip.GzipFile, size: int) -> bytes:
        sizes.append(size)
        return read(stream, size)

    monkeypatch.setattr(archives, "_read", counted)
    return sizes


def test_a_bomb_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tarfile.TarInfo("manifest.json")
    info.size = 8 * 1024**3 - 1
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(info.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(128):
            stream.write(bytes(1024**2))
    reads = sizes_read(monkeypatch)
    assert problem_of(path)
    assert sum(reads) <= 512


def test_contents_larger_than_announced_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        entries[1] = entries[1][0], entries[1][1] + bytes(64 * 1024**2)

    path = forge(tmp_path / "grown.tar.gz", grow)
    reads = sizes_read(monkeypatch)
    assert problem_of(path)
    assert sum(reads) < 1024**2


def test_archives_have_a_largest_size(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_ARCHIVE", 10)
    assert "are allowed" in problem_of(whole)
    with refused(SifmarkError, "archive-invalid"):
        write_archive(tmp_path / "x.tar.gz", FIELDS, members())


@settings(max_examples=examples(200))
@given(st.data())
def test_a_damaged_archive_is_refused_or_reads_the_same(data: st.DataObject) -> None:
    stream = _WHOLE
    at = data.draw(st.integers(0, len(stream) - 1))
    damage = data.draw(st.sampled_from(["cut", "flip"]))
    damaged = (
        stream[:at]
        if damage == "cut"
        else stream[:at] + bytes([stream[at] ^ data.draw(st.integers(1, 255))]) + stream[at + 1 :]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tar.gz"
        path.write_bytes(damaged)
        results = list(load_results(str(path)))
    if any(each.problems for each in results):
        assert len(results) == 1 and results[0].document == {}
    else:
        assert [each.document for each in results] == [json.loads(result(1)), json.loads(result(2))]


def _packed() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder) / "x.tar.gz", FIELDS, members())
        return (Path(folder) / "x.tar.gz").read_bytes()


_WHOLE = _packed()


def test_a_path_into_an_archive_is_split(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_archive(f"{whole}/a/b") == (str(whole), "a/b")
    assert split_archive(str(whole)) == (str(whole), "")
    monkeypatch.chdir(whole.parent)
    assert split_archive("quick.tar.gz/a") == ("quick.tar.gz", "a")
    assert split_archive("./quick.tar.gz") == ("quick.tar.gz", "")
    assert split_archive("none.tar.gz/a") is None
