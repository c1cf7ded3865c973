"""The packages in an image, of its system and of Python, from the records that installers leave."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from email.utils import parseaddr

from sifmark.core.console import status

SYSTEM, PYTHON = "deb", "pypi"  # types of package URLs
_PYTHON_INDEX = "Python Package Index"
# Names of files in an image, without a slash before them.
_OS = ("etc/os-release", "usr/lib/os-release")
_DPKG = re.compile(r"var/lib/dpkg/status(\.d/[^/]+)?")
_DIST = re.compile(r"(?P<folder>.+)/[^/]+\.(dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
_UNREAD = {"RPM": re.compile(r"(var/lib|usr/lib/sysimage)/rpm/.+"), "apk": re.compile(r"lib/apk/db/installed")}


@dataclass(frozen=True, order=True)
class Package:
    """One package, by its own record; a field that is not in the record is empty.

    The cache has these fields by name.
    """

    kind: str
    name: str
    version: str
    licence: str = ""
    supplier: str = ""  # who maintains it, by name, or else who distributes it
    place: str = ""  # of a Python package: the folder that it is imported from
    # Of a system package:
    architecture: str = ""
    distribution: str = ""  # such as `debian-12`
    source: str = ""  # the source package: `name`, or `name@version` if its version differs


def is_package_record(name: str) -> bool:
    """Return whether a file of an image, by its path without the first slash, is needed by `read_packages`."""
    return name in _OS or any(pattern.fullmatch(name) for pattern in (_DPKG, _DIST))


def report_unreadable(names: Iterable[str]) -> None:
    """Report the records of package managers that cannot be read."""
    kinds = {kind for name in names for kind, pattern in _UNREAD.items() if pattern.fullmatch(name)}
    for kind in sorted(kinds):
        status(f"  its {kind} packages cannot be read here: they are missing from the list of packages")


def read_packages(files: Mapping[str, bytes]) -> list[Package]:
    """Return the packages of an image, sorted. `files` are its package records, by path without the first slash."""
    distribution = _distribution(files)
    packages: set[Package] = set()
    for name, content in files.items():
        text = content.decode("utf-8", "replace")
        if _DPKG.fullmatch(name):
            packages.update(_system_packages(text, distribution))
        elif (match := _DIST.fullmatch(name)) is not None:
            packages.update(_python_packages(text, f"/{match['folder']}"))
    # Some installers leave two records of one package in one folder: keep the one with the longer licence.
    by_licence = sorted(packages, key=lambda package: (len(package.licence), package))
    return sorted({replace(package, licence="", supplier=""): package for package in by_licence}.values())


def _distribution(files: Mapping[str, bytes]) -> str:
    """Return a name such as `debian-12`, from os-release(5)."""
    text = next((files[name] for name in _OS if name in files), b"").decode("utf-8", "replace")
    fields = dict(re.findall(r'^(ID|VERSION_ID)="?([\w.-]+)"?$', text, re.MULTILINE))
    return "-".join(filter(None, (fields.get("ID", "linux"), fields.get("VERSION_ID"))))


def _system_packages(text: str, distribution: str) -> Iterator[Package]:
    """Yield the installed packages of a dpkg status file; its paragraphs, deb822, are written like mail headers."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        fields = HeaderParser().parsestr(paragraph)
        name, version = fields.get("Package"), fields.get("Version")
        # Files in status.d, as in distroless images, have no status.
        if name and version and fields.get("Status", "install ok installed").split()[-1] == "installed":
            yield Package(
                SYSTEM,
                name,
                version,
                supplier=_person(fields.get("Maintainer", "")) or distribution.partition("-")[0],
                architecture=fields.get("Architecture", ""),
                distribution=distribution,
                source=_source(fields.get("Source", ""), name),
            )


def _source(field: str, name: str) -> str:
    """Return `openssl@3.0-1` for the field `openssl (3.0-1)`, and `name` for an empty field."""
    match = re.fullmatch(r"(\S+)(?: \((\S+)\))?", field.strip())
    if match is None:
        return name
    return f"{match[1]}@{match[2]}" if match[2] else match[1]


def _python_packages(text: str, folder: str) -> Iterator[Package]:
    """Yield the package of a METADATA or PKG-INFO file, if it has a name and a version."""
    from packaging.utils import canonicalize_name

    fields = HeaderParser().parsestr(text)
    name, version = fields.get("Name"), fields.get("Version")
    licence = " ".join(str(fields.get("License-Expression") or fields.get("License") or "").split())
    if name and version:
        # Some records have the whole text of the licence in place of its name.
        people = (fields.get(field, "") for field in ("Maintainer", "Maintainer-email", "Author", "Author-email"))
        supplier = next(filter(None, map(_person, people)), _PYTHON_INDEX)
        licence = licence if len(licence) <= 100 else ""
        yield Package(PYTHON, canonicalize_name(name), version.strip(), licence, supplier, folder)


def _person(field: object) -> str:
    """Return the first name in a field of people, without an address: `Ann` of `Ann <ann@example.org>, Bob`."""
    text = " ".join(str(field).split())
    return parseaddr(text)[0] if "@" in text else text
