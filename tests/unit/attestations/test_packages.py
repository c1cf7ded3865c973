"""The packages of an image, read from the records that installers leave."""

import pytest

from sifmark.attestations.packages import is_package_record, read_packages, report_unreadable

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
    packages = {package.name: package for package in read_packages(FILES)}
    assert set(packages) == {"bash", "libssl3", "jinja2", "old-one"}
    assert packages["libssl3"].source == "openssl@3.0.11-1~deb12u2" and packages["libssl3"].distribution == "debian-12"
    assert packages["jinja2"].version == "3.1.2" and packages["jinja2"].licence == "BSD-3-Clause"
    assert packages["jinja2"].place == "/sifmark-site"


@pytest.mark.parametrize(
    ("fields", "supplier"),
    [
        ("Author: The Pallets Team", "The Pallets Team"),
        ("Author: Ann\nMaintainer: Bob", "Bob"),
        ("Author-email: Ann Example <ann@example.org>, Bob <bob@example.org>", "Ann Example"),
        ("Author-email: ann@example.org", "Python Package Index"),
        ("Author: ", "Python Package Index"),
        ("", "Python Package Index"),
    ],
)
def test_a_package_s_supplier_is_who_maintains_it_or_distributes_it(fields: str, supplier: str) -> None:
    record = f"Name: x\nVersion: 1\n{fields}\n\n".encode()
    (package,) = read_packages({"site/x-1.dist-info/METADATA": record})
    assert package.supplier == supplier


def test_a_system_package_is_supplied_by_its_maintainer() -> None:
    maintained = STATUS + b"Maintainer: Matthias Klose <doko@debian.org>\n"
    packages = {package.name: package for package in read_packages(FILES | {"var/lib/dpkg/status": maintained})}
    assert (packages["bash"].supplier, packages["libssl3"].supplier) == ("Matthias Klose", "debian")


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
