"""The folder of a site: names of files, what is written and removed, and that nothing outside of it is touched."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.refusals import refused
from unit.report.samples import failure, sample
from unit.report.samples import write as write_results
from unit.report.sites import Elements, broken_links, pages, write

from sifmark.core.errors import UsageError
from sifmark.report.site.folder import file_names, folder_of_site, write_site
from sifmark.report.site.pages import RESULTS, script
from sifmark.report.write import is_safe
from sifmark.results.load import SITE_MARKER

HOSTILE = (
    "../../../etc/passwd",
    "/etc/passwd",
    ".",
    "..",
    "",
    "a/b/c",
    "a\\b",
    "x" * 10_000,
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "שלום עולם",
    "日本語の名前",
    "\u202eevil\u202c",
    "nul\u0000\u001b[31m",
    "Case",
    "case",
    "CASE",
    "con",
    "index",
    "a" * 39 + "-",
    "javascript:alert(1)",
)


def names_of(texts: list[str]) -> dict[str, str]:
    return dict(file_names({text: text for text in texts}))


def files_of(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): file.read_text() for file in sorted(folder.rglob("*")) if file.is_file()
    }


@given(st.lists(st.text() | st.sampled_from(HOSTILE), max_size=12))
def test_names_are_safe_short_and_differ_also_where_case_does_not_count(texts: list[str]) -> None:
    names = names_of(texts)
    assert len(set(names.values())) == len(set(texts)) == len({name.lower() for name in names.values()})
    assert all(is_safe(f"devices/{name}.html") and len(name) <= 110 for name in names.values())
    assert all(unicodedata.normalize("NFC", name) == name for name in names.values())


def test_a_name_depends_on_nothing_but_its_text() -> None:
    assert names_of(["resnet50", "A b"])["A b"] == names_of(["A b", "a b", "zz"])["A b"]
    assert names_of(["resnet50"]) == {"resnet50": "resnet50"}


def test_a_text_that_looks_like_the_name_of_another_does_not_take_it() -> None:
    name = names_of(["ResNet 50"])["ResNet 50"]
    both = names_of(["ResNet 50", name])
    assert both["ResNet 50"] == name and both[name] != name


def test_files_are_written_the_index_last_and_marked_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace = Path.replace

    def noted(self: Path, target: Path) -> Path:
        order.append(Path(target).name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    write_site(tmp_path / "public", {"index.html": b"i", "devices/a.html": b"a", "style.css": b"s"})
    assert [name for name in order if name != SITE_MARKER] == ["a.html", "style.css", "index.html"]
    assert json.loads((tmp_path / "public" / SITE_MARKER).read_text())["files"] == [
        "devices/a.html",
        "index.html",
        "style.css",
    ]


def test_what_a_site_no_longer_has_is_removed_and_files_of_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "public"
    write_site(folder, {"index.html": b"i", "devices/a.html": b"a", "devices/b.html": b"b", "studies/s.html": b"s"})
    (folder / "CNAME").write_text("benchmarks.site.example")
    (folder / "devices" / "own.html").write_text("own")
    assert write_site(folder, {"index.html": b"i2", "devices/a.html": b"a"}) == ["devices/b.html", "studies/s.html"]
    assert {name for name in files_of(folder) if name != SITE_MARKER} == {
        "CNAME", "devices/a.html", "devices/own.html", "index.html",
    }  # fmt: skip
    assert not (folder / "studies").exists() and (folder / "index.html").read_text() == "i2"


def test_the_same_site_again_changes_no_byte(tmp_path: Path) -> None:
    files = {"index.html": b"i", "devices/a.html": b"a"}
    write_site(tmp_path / "public", files)
    before = files_of(tmp_path / "public")
    assert write_site(tmp_path / "public", files) == [] and files_of(tmp_path / "public") == before


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("own")
    with refused(UsageError, "folder-not-empty"):
        write_site(tmp_path, {"index.html": b""})
    assert files_of(tmp_path) == {"own.txt": "own"}
    with pytest.raises(UsageError):
        folder_of_site(tmp_path / "own.txt")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError):
        folder_of_site(tmp_path / "link")


@pytest.mark.parametrize(
    "name", ["../out.html", "/out.html", "devices/../../out.html", "a//b", ".hidden", "a/.b", "", "a b"]
)
def test_nothing_is_written_under_an_unsafe_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        write_site(tmp_path / "public", {name: b"x"})
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} <= {SITE_MARKER, ".public.lock"}


def test_a_marker_of_anybody_removes_nothing_outside_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "public"
    write_site(folder, {"index.html": b"i"})
    (tmp_path / "precious.html").write_text("precious")
    (folder / "linked").symlink_to(tmp_path)
    names = ["../precious.html", str(tmp_path / "precious.html"), "linked/precious.html", "index.html", 7]
    (folder / SITE_MARKER).write_text(json.dumps({"files": names}))
    write_site(folder, {"index.html": b"i"})
    (folder / SITE_MARKER).write_text(json.dumps({"files": names[:-1]}))
    write_site(folder, {"index.html": b"i"})
    assert (tmp_path / "precious.html").read_text() == "precious"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "public", tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_site(folder, {"index.html": b"i"})
    (folder / "devices").symlink_to(elsewhere)
    with pytest.raises(UsageError):
        write_site(folder, {"index.html": b"i", "devices/a.html": b"a"})
    assert list(elsewhere.iterdir()) == []
    (folder / "devices").unlink()
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to(elsewhere / "target")
    write_site(folder, {"index.html": b"i"})
    assert not (folder / "index.html").is_symlink() and list(elsewhere.iterdir()) == []


def hostile(text: str, number: int) -> list[dict[str, Any]]:
    """Results whose names are hostile texts, as far as rules of results leave them to a site."""
    names: dict[str, Any] = {
        "accelerator__name": text or "x",
        "host__hostname": {"value": text or "x"},
        "device_conditions__driver": {"value": text or "x"},
    }
    return [
        sample(f"site {number} {text}"[:200] or "x", "pictures", 8, 1, **names),
        failure("alpha", "texts", 64) | {"id": f"00000000-0000-4000-8000-{number:012x}"},
    ]


def test_hostile_names_give_a_correct_site_and_leave_everything_else_alone(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        folder = (
            tmp_path
            / "results"
            / f"study-{number}"
            / (text.replace("/", "_").replace("\0", "")[:60] or "empty").strip(".")
        )
        write_results(folder, hostile(text, number))
        (folder.parent / ".study.json").write_text(json.dumps({"name": text, "title": text}))
    before = {each.name for each in tmp_path.iterdir()}
    target = tmp_path / "site"
    write(tmp_path / "results", target)
    assert {each.name for each in tmp_path.iterdir()} == before | {"site"}
    assert list(broken_links(target)) == []
    for name, page in pages(target).items():
        elements = Elements(page.replace(f"<script>{script()}</script>", "") if name == RESULTS else page)
        assert not {"script", "img"} & elements.tags and "49" not in elements.tags, name
        assert not any(attribute.startswith("on") for attribute in elements.attributes), name
        assert not any(character in page for character in "\0\x1b\u202e"), name
        assert len(page) < 2_000_000 and "x" * 1000 not in page, name
