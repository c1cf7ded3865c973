"""What packages an image holds: those of its system and those of Python, by the records that their installers left."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.parser import HeaderParser

from sifmark.core.console import status

SYSTEM, PYTHON = "deb", "pypi"  # as package URLs name the kinds
# Names of files in an image, without a slash before them.
_OS = ("etc/os-release", "usr/lib/os-release")
_DPKG = re.compile(r"var/lib/dpkg/status(\.d/[^/]+)?")
_DIST = re.compile(r"(?P<place>.+)/[^/]+\.(dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
_UNREAD = {"RPM": re.compile(r"(var/lib|usr/lib/sysimage)/rpm/.+"), "apk": re.compile(r"lib/apk/db/installed")}


@dataclass(frozen=True, order=True)
class Package:
    """One package as its own record states it; what that does not say is empty."""

    kind: str
    name: str
    version: str
    licence: str = ""
    place: str = ""  # of a Python package: the folder that it is imported from
    architecture: str = ""  # of a system's package
    distribution: str = ""  # and the system it is of, such as `debian-12`
    source: str = ""  # and the source that it was built from, `name` or `name@version` where that is another


def is_package_record(name: str) -> bool:
    """Whether a file of an image tells of packages, by its name from the root."""
    return name in _OS or any(pattern.fullmatch(name) for pattern in (_DPKG, _DIST))


def report_unreadable(names: Iterable[str]) -> None:
    """Say which records of packages are there that nobody here can read."""
    found = {kind for name in names for kind, pattern in _UNREAD.items() if pattern.fullmatch(name)}
    for kind in sorted(found):
        status(f"  its {kind} packages cannot be read here: they are missing from the list of packages")


def read_packages(files: Mapping[str, bytes]) -> list[Package]:
    """The packages of an image, in order, by the files that are wanted of it."""
    distribution = _distribution(files)
    found: set[Package] = set()
    for name, content in files.items():
        text = content.decode("utf-8", "replace")
        if _DPKG.fullmatch(name):
            found.update(_of_system(text, distribution))
        elif (told := _DIST.fullmatch(name)) is not None:
            found.update(_of_python(text, f"/{told['place']}"))
    # Two records of one package in one place, as some installers leave them, are one; the longer licence counts.
    fuller = sorted(found, key=lambda package: (len(package.licence), package))
    return sorted({replace(package, licence=""): package for package in fuller}.values())


def _distribution(files: Mapping[str, bytes]) -> str:
    text = next((files[name] for name in _OS if name in files), b"").decode("utf-8", "replace")
    told = dict(re.findall(r'^(ID|VERSION_ID)="?([\w.-]+)"?$', text, re.MULTILINE))
    return "-".join(filter(None, (told.get("ID", "linux"), told.get("VERSION_ID"))))


def _of_system(text: str, distribution: str) -> Iterator[Package]:
    """The paragraphs of dpkg's status; deb822 has the form of mail headers."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        told = HeaderParser().parsestr(paragraph)
        name, version = told.get("Package"), told.get("Version")
        # A status is missing in status.d, where distroless images have theirs.
        if name and version and told.get("Status", "install ok installed").split()[-1] == "installed":
            yield Package(
                SYSTEM,
                name,
                version,
                architecture=told.get("Architecture", ""),
                distribution=distribution,
                source=_source(told.get("Source", ""), name),
            )


def _source(told: str, name: str) -> str:
    """`openssl (3.0-1)` as `openssl@3.0-1`; a package that is its own source need not say so."""
    found = re.fullmatch(r"(\S+)(?: \((\S+)\))?", told.strip())
    if found is None:
        return name
    return f"{found[1]}@{found[2]}" if found[2] else found[1]


def _of_python(text: str, place: str) -> Iterator[Package]:
    from packaging.utils import canonicalize_name

    told = HeaderParser().parsestr(text)
    name, version = told.get("Name"), told.get("Version")
    licence = " ".join(str(told.get("License-Expression") or told.get("License") or "").split())
    if name and version:
        # Some put the whole text there, which is no name of a licence.
        yield Package(PYTHON, canonicalize_name(name), version.strip(), licence if len(licence) <= 100 else "", place)
