"""Every text of a full result that the schema does not call public gets a marker of its own: no file has any of them.

Rules of results are left aside: they restrict texts such as the command, or the name of a boot, to what a run writes,
and a marker in each would contradict them.
"""

import copy
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.keys import make_key
from unit.report import samples
from unit.report.sites import write as write_site

from sifmark.report import library
from sifmark.report.site.site import SiteOptions
from sifmark.results import load
from sifmark.results.catalogue import fields
from sifmark.results.envelope import sign_results
from sifmark.studies.study_file import find_study

MARKER = re.compile(rb"(?i)zebra[0-9]*")
SITE = "zebra-centre"
Document = dict[str, Any]


def _is_public(path: str) -> bool:
    """Return whether the schema says so of a text, or it is a unit; keys of maps are parts of the path."""
    known = {each.path.replace("[]", ""): each.private for each in fields()}
    while path not in known and "." in path:
        if (
            path.startswith("metrics.")
            or path.removesuffix(".unit") + ".value" in known
            or path.endswith("interval.unit")
        ):
            return path.endswith(".unit")
        path = path.rpartition(".")[0]
    return known.get(path) == ""


def marked(document: Document, markers: dict[str, str]) -> Document:
    """Return a document with a marker of its own in every text that is not public."""

    def put(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: put(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        if isinstance(value, list):
            return [put(each, path) for each in value]
        if not isinstance(value, str) or _is_public(path):
            return value
        marker = markers.setdefault(path, f"zebra{len(markers)}")
        return f"{marker}-{value}"

    changed: Document = put(copy.deepcopy(document), "")
    return changed


def _with_all(document: Any, whole: Any) -> Any:
    """Return a value with what only another one has."""
    if isinstance(document, dict) and isinstance(whole, dict):
        return {key: _with_all(document.get(key), whole.get(key)) for key in {**document, **whole}}
    return whole if document in (None, []) else document


def _without_values(document: Document) -> Document:
    """Return the document of a run that nothing is known of, with the reasons."""
    because = {"reason": "because"}
    facts = {part: {name: {"value": None, **because} for name in document[part]} for part in ("host", "conditions")}
    conditions = dict.fromkeys(("device_conditions", "device_conditions_after", "power"), because)
    return {
        **document,
        **facts,
        **conditions,
        "accelerator": {"kind": document["accelerator"]["kind"], **because},
        "phases": {name: {"seconds": None, **because} for name in document["phases"]},
        "provenance": {**document["provenance"], "image": None, **because},
    }


def full_documents() -> Iterator[Document]:
    """Yield results of two systems that have every field of the schema between them."""
    for site in samples.SYSTEMS:
        for repeat in (1, 2, 3):
            document = samples.sample(site, "pictures", 8, repeat)
            yield _with_all(document, documents.whole())
        yield samples.failure(site, "pictures", 16)
        yield _without_values(samples.failure(site, "pictures", 64))
    for number, made in enumerate((documents.unseen, documents.unproved, documents.unconnected)):
        base = samples.sample("alpha", "pictures", 32 << number)
        yield _with_all({key: base[key] for key in ("id", "started", "finished", "workload")}, made())


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """Full results in a folder of a study, all of whose names have markers, and the markers of fields by path."""
    monkeypatch.setattr(load, "document_problems", lambda document, text=None: [])
    folder, markers = tmp_path / "zebra-user" / "zebra-results", dict[str, str]()
    system = folder / "zebra-study" / "zebra-system"
    system.mkdir(parents=True)
    for number, document in enumerate(full_documents()):
        (system / f"zebra-{number}.json").write_text(
            json.dumps(marked(document, markers) | {"site": SITE + document["site"]})
        )
    (system / "zebra-broken.json").write_text("zebra")
    (system / "zebra-pipe.json").symlink_to("zebra-nowhere")
    (system.parent / load.STUDY_MARKER).write_text(json.dumps({"name": "zebra-study", "title": "A title"}))
    failure = {"cause": "zebra", "exit_code": 1, "log": "zebra", "started": "zebra", "seconds": 1.0}
    (system / ".failures").mkdir()
    (system / ".failures" / "zebra-key.json").write_text(json.dumps(failure))
    return folder, markers


def test_the_results_have_every_private_field(everything: tuple[Path, dict[str, str]]) -> None:
    private = {each.path.replace("[]", "") for each in fields() if each.private}
    assert not [path for path in private if not any(f"{each}.".startswith(f"{path}.") for each in everything[1])]


def test_a_report_with_names_has_markers(everything: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Otherwise the tests below prove nothing."""
    folder, markers = everything
    library.report([str(folder)], tmp_path / "report")
    assert len({name for _, name, _ in _left(tmp_path / "report", markers)}) >= 25


@pytest.mark.parametrize(
    "by", [pytest.param("site", marks=pytest.mark.full), "host.hostname", "environment.variables.a_name"]
)
def test_no_file_of_a_report_has_a_marker(
    everything: tuple[Path, dict[str, str]], by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, markers = everything
    private, _ = make_key(tmp_path, "zebra-key")
    for file in folder.rglob("zebra-[0-9]*.json"):
        if file.name != "zebra-1.json":
            sign_results(file, private)
    monkeypatch.chdir(folder / "zebra-study")
    (tmp_path / "zebra.toml").write_text(find_study("quick").read_text())
    library.report(
        [str(folder)],
        tmp_path / "report",
        study=str(tmp_path / "zebra.toml"),
        against=str(folder) if by == "site" else "",
        by=by,
        anonymous_sites=True,
        trusted_keys=[str(private.with_suffix(".pub"))] if by == "site" else None,
    )
    assert _left(tmp_path / "report", markers) == []


@pytest.mark.parametrize("by", [pytest.param("", marks=pytest.mark.full), "host.hostname"])
def test_no_file_of_a_site_has_a_marker(
    everything: tuple[Path, dict[str, str]], by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, markers = everything
    listed = [*load.result_files(str(folder)), (str(folder / "zebra-locked"), "does not read: Permission denied")]
    monkeypatch.setattr("sifmark.report.site.read.result_files", lambda _: iter(listed))
    options = SiteOptions(anonymous=True, anonymous_sites=True, by=by)
    write_site(folder, tmp_path / "site", options)
    assert _left(tmp_path / "site", markers) == []


def _left(folder: Path, markers: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return each file with a marker, the field that it is of, and the text around it."""
    fields_of = {marker.encode(): path for path, marker in markers.items()}
    found = []
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        for content in (name.encode(), *(_layers(file.read_bytes()) if file.is_file() else ())):
            for match in MARKER.finditer(content):
                around = content[max(0, match.start() - 60) : match.end() + 20].decode(errors="replace")
                found.append((name, fields_of.get(match[0].lower(), "a name"), around))
    return found


def _layers(content: bytes) -> Iterator[bytes]:
    """Yield what a file holds, and what is compressed in it: the streams of a PDF, the chunks of a PNG."""
    yield content
    for part in re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL) if content[:4] == b"%PDF" else ():
        try:
            yield zlib.decompressobj().decompress(part)
        except zlib.error:
            yield part
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        place = 8
        while place < len(content):
            (size,) = struct.unpack(">I", content[place : place + 4])
            yield content[place + 4 : place + 8 + size]
            place += 12 + size
