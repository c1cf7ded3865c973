"""Packages by their records, and advisories that hold for them or do not."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sifmark.attestations.packages import is_package_record, read_packages, report_unreadable
from sifmark.commands.audit import Installed, audit, findings, packages_of, read_advisories
from sifmark.core.errors import SifmarkError, UsageError

STATUS = b"""\
Package: libssl3
Status: install ok installed
Architecture: amd64
Source: openssl (3.0.11-1~deb12u2)
Version: 3.0.11-1~deb12u2+b1
Description: a library
 with a long text: of
 more lines

Package: gone
Status: deinstall ok config-files
Version: 1.0

Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2+b2
"""
METADATA = b"Metadata-Version: 2.1\nName: Jinja2\nVersion: 3.1.2\nLicense: BSD-3-Clause\n\nA long text\nVersion: 9\n"
FILES = {
    "etc/os-release": b'PRETTY_NAME="Debian"\nID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status": STATUS,
    "sifmark-site/jinja2-3.1.2.dist-info/METADATA": METADATA,
    "opt/venv/lib/python3.8/site-packages/old_one.egg-info/PKG-INFO": b"Name: old.one\nVersion: 0.1\n",
}


def test_packages_are_those_that_are_installed() -> None:
    assert (
        all(map(is_package_record, FILES))
        and not is_package_record("var/lib/dpkg/info/bash.list")
        and not is_package_record("x/METADATA")
    )
    told = {package.name: package for package in read_packages(FILES)}
    assert set(told) == {"bash", "libssl3", "jinja2", "old-one"}
    assert told["libssl3"].source == "openssl@3.0.11-1~deb12u2" and told["libssl3"].distribution == "debian-12"
    assert told["jinja2"].version == "3.1.2" and told["jinja2"].licence == "BSD-3-Clause"
    assert told["jinja2"].place == "/sifmark-site"


def test_two_records_of_one_package_in_one_place_are_one() -> None:
    beside = {
        "sifmark-site/jinja2-3.1.2.dist-info/METADATA": METADATA,
        "sifmark-site/jinja2-3.1.2.egg-info/PKG-INFO": b"Name: jinja2\nVersion: 3.1.2\n",
    }
    (only,) = read_packages(beside)
    assert (only.name, only.licence) == ("jinja2", "BSD-3-Clause")


def test_packages_that_cannot_be_read_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    report_unreadable(["var/lib/rpm/rpmdb.sqlite", "usr/bin/x"])
    assert "its RPM packages cannot be read" in capsys.readouterr().err


def range_of(*events: dict) -> dict:
    return {"type": "ECOSYSTEM", "events": list(events)}


def advisory(ecosystem: str, name: str, **affected) -> dict:
    return {
        "id": "T-1",
        "summary": "bad",
        "affected": [{"package": {"ecosystem": ecosystem, "name": name}, **affected}],
    }


JINJA = Installed("PyPI", "jinja2", "3.1.2", "jinja2", "/sifmark-site")
TORCH = Installed("PyPI", "torch", "2.13.0+cpu", "torch", "/sifmark-site")
OPENSSL = Installed("Debian:12", "openssl", "3.0.11-1~deb12u2", "libssl3", "")


@pytest.mark.parametrize(
    ("told", "package", "holds"),
    [
        (advisory("PyPI", "Jinja2", ranges=[range_of({"introduced": "0"}, {"fixed": "3.1.3"})]), JINJA, True),
        (advisory("PyPI", "Jinja2", ranges=[range_of({"introduced": "0"}, {"fixed": "3.1.2"})]), JINJA, False),
        (advisory("PyPI", "jinja2", ranges=[range_of({"introduced": "3.2"})]), JINJA, False),
        (advisory("PyPI", "jinja2", ranges=[range_of({"introduced": "3.0"}, {"last_affected": "3.1.2"})]), JINJA, True),
        (
            advisory("PyPI", "jinja2", ranges=[range_of({"introduced": "3.0"}, {"last_affected": "3.1.1"})]),
            JINJA,
            False,
        ),
        (
            advisory(
                "PyPI",
                "jinja2",
                ranges=[range_of({"fixed": "3.1.3"}, {"introduced": "3.1"}, {"introduced": "0"}, {"fixed": "2.0"})],
            ),
            JINJA,
            True,
        ),
        (advisory("PyPI", "jinja2", versions=["3.1.2"]), JINJA, True),
        (advisory("PyPI", "jinja2", versions=["3.1.1"]), JINJA, False),
        (advisory("PyPI", "jinja2", versions=None, ranges=[range_of({"introduced": "0"})]), JINJA, True),
        (advisory("PyPI", "jinja2", versions=["3.1.2"], ranges=None), JINJA, True),
        ({"id": "T-1", "affected": None}, JINJA, False),
        ({"id": "T-1", "affected": [{"package": None, "versions": ["3.1.2"]}]}, JINJA, False),
        (advisory("PyPI", "jinja", versions=["3.1.2"]), JINJA, False),
        (advisory("PyPI", "torch", versions=["2.13.0"]), TORCH, True),
        (advisory("PyPI", "torch", versions=["2.12.0", "odd"]), TORCH, False),
        (advisory("PyPI", "torch", ranges=[range_of({"introduced": "2.0"}, {"last_affected": "2.13"})]), TORCH, True),
        (advisory("PyPI", "torch", ranges=[range_of({"introduced": "0"}, {"fixed": "2.13.0"})]), TORCH, False),
        (advisory("PyPI", "jinja2", ranges=[range_of({"introduced": "0"}, {"limit": "*"})]), JINJA, True),
        (advisory("npm", "jinja2", versions=["3.1.2"]), JINJA, False),
        (advisory("PyPI", "jinja2", ranges=[{"type": "GIT", "events": [{"introduced": "0"}]}]), JINJA, False),
        (
            advisory("Debian:12", "openssl", ranges=[range_of({"introduced": "0"}, {"fixed": "3.0.14-1~deb12u1"})]),
            OPENSSL,
            True,
        ),
        (
            advisory("Debian:12", "openssl", ranges=[range_of({"introduced": "0"}, {"fixed": "3.0.11-1~deb12u2"})]),
            OPENSSL,
            False,
        ),
        (advisory("Debian:11", "openssl", ranges=[range_of({"introduced": "0"})]), OPENSSL, False),
        (advisory("Debian", "openssl", ranges=[range_of({"introduced": "0"})]), OPENSSL, True),
        (advisory("Debian:12", "libssl3", ranges=[range_of({"introduced": "0"})]), OPENSSL, False),
        (advisory("Debian:12", "openssl", ranges=[range_of({"introduced": "3.0.11-1"})]), OPENSSL, False),
    ],
)
def test_what_holds(told: dict, package: Installed, holds: bool) -> None:
    unread: list[str] = []
    assert bool(list(findings([package], [told], unread.append))) is holds
    assert not unread


def test_what_cannot_be_judged_is_told_and_the_rest_is_judged() -> None:
    strange, plain = range_of({"introduced": "0"}, {"fixed": "of old"}), range_of({"introduced": "0"})
    unread: list[str] = []
    assert not list(findings([JINJA], [advisory("PyPI", "jinja2", ranges=[strange])], unread.append))
    assert unread == ["T-1 for jinja2 3.1.2"]
    assert list(findings([JINJA], [advisory("PyPI", "jinja2", ranges=[strange, plain])], unread.append))
    odd = Installed("PyPI", "jinja2", "not a version", "jinja2", "")
    assert not list(findings([odd], [advisory("PyPI", "jinja2", ranges=[plain])], unread.append))
    assert list(findings([odd], [advisory("PyPI", "jinja2", versions=["not a version"])], unread.append))
    assert unread[1:] == ["T-1 for jinja2 not a version"]


@pytest.fixture
def bom(tmp_path: Path) -> Path:
    components = [
        {"name": "jinja2", "purl": "pkg:pypi/jinja2@3.1.2", "properties": [{"name": "sifmark:place", "value": "/x"}]},
        {
            "name": "libssl3",
            "purl": "pkg:deb/debian/libssl3@3.0.11?arch=amd64&distro=debian-12&upstream=openssl%403.0.10",
        },
        {"name": "base", "purl": "pkg:oci/python@sha256:0"},
        {"name": "without"},
    ]
    path = tmp_path / "bom.json"
    path.write_text(json.dumps({"components": components}))
    return path


def test_an_audit_tells_and_fails(bom: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert [(package.ecosystem, package.name, package.version) for package in packages_of(str(bom))] == [
        ("PyPI", "jinja2", "3.1.2"),
        ("Debian:12", "openssl", "3.0.10"),
    ]
    known = tmp_path / "advisories.zip"
    with zipfile.ZipFile(known, "w") as archive:
        archive.writestr("a.json", json.dumps(advisory("PyPI", "Jinja2", versions=["3.1.2"])))
        archive.writestr("b.json", json.dumps({**advisory("PyPI", "Jinja2", versions=["3.1.2"]), "withdrawn": "2026"}))
    with pytest.raises(SifmarkError, match="1 advisories hold"):
        audit(str(bom), str(known), as_json=True)
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["advisory"], told["package"], told["version"], told["place"]) == ("T-1", "jinja2", "3.1.2", "/x")
    fine = tmp_path / "fine.jsonl"
    fine.write_text("\n".join([json.dumps(advisory("PyPI", "other", versions=["1"]))] * 2))
    audit(str(bom), str(fine), as_json=False)
    said = capsys.readouterr().err
    assert "1 packages looked up, 0 with advisories" in said
    assert "not looked up: 1 packages of Debian:12; none of the advisories is for that" in said
    fine.write_text(json.dumps(advisory("Debian:12", "other", versions=["1"])))
    audit(str(bom), str(fine), as_json=False)
    assert "not looked up: 1 packages of PyPI" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.json", "{", "x.json: "),
        ("x.json", "{}", "is no advisory in the OSV format"),
        ("x.json", '["a"]', "is no advisory in the OSV format"),
        ("x.json", "[" * 100_000, "x.json: "),
        ("x.zip", "PK", "x.zip: "),
        ("x.txt", None, "No such file"),
    ],
)
def test_what_is_no_advisory(tmp_path: Path, name: str, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=told):
        list(read_advisories(tmp_path / name))


def test_an_archive_with_a_damaged_advisory(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T-1.json", json.dumps(advisory("PyPI", "jinja2")) * 100)
    content = bytearray(path.read_bytes())
    content[40:44] = b"\xff" * 4
    path.write_bytes(content)
    with pytest.raises(UsageError, match="all.zip: "):
        list(read_advisories(path))


def test_only_what_was_withdrawn_is_left_out(tmp_path: Path) -> None:
    told = advisory("PyPI", "jinja2")
    (tmp_path / "a.json").write_text(json.dumps([{**told, "withdrawn": None}, {**told, "withdrawn": "2026-01-01"}]))
    assert [one["withdrawn"] for one in read_advisories(tmp_path / "a.json")] == [None]


@pytest.mark.parametrize(
    "affected",
    [
        ["x"],
        "x",
        [{"package": "x"}],
        [{"package": {"ecosystem": "PyPI", "name": "jinja2"}, "ranges": ["x"]}],
        [{"package": {"ecosystem": "PyPI", "name": "jinja2"}, "versions": 1}],
    ],
)
def test_an_advisory_of_another_form_is_an_error_with_its_name(bom: Path, tmp_path: Path, affected: Any) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({"id": "T-9", "affected": affected}))
    with pytest.raises(UsageError, match="T-9 is no advisory in the OSV format"):
        audit(str(bom), str(tmp_path / "odd.json"), as_json=False)


def test_a_folder_without_advisories(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no advisories"):
        list(read_advisories(tmp_path))
