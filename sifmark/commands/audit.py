"""The audit verb: the packages of an image against advisories that the user has, without a network.

Advisories are in the OSV format, github.com/ossf/osv-schema: a file with one, with a list of them, or one a line, a
folder of such, or a ZIP archive as osv.dev gives for each ecosystem.
"""

import json
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sifmark.attestations.packages import PYTHON, SYSTEM
from sifmark.attestations.sbom import CYCLONEDX
from sifmark.core.console import output, output_table, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.engines.locate import locate

_VERSIONED = re.compile(r"(?P<name>[A-Za-z]+)(?::(?P<version>[\d.]+).*)?")  # `Debian:12`, `Ubuntu:22.04:LTS`, `PyPI`
_EVENTS = ("introduced", "fixed", "last_affected")  # `limit` bounds what a database lists, not what is affected
_FROM_OSV = "get one, or an archive, from osv.dev"
_ENDINGS = (".json", ".jsonl", ".zip")


@dataclass(frozen=True)
class Installed:
    """A package of an image as advisories name it: those of a system by their source."""

    ecosystem: str  # `PyPI`, or `Debian:12` and the like
    name: str
    version: str
    known_as: str  # the package itself
    place: str


@dataclass(frozen=True)
class Finding:
    """An advisory that holds for a package."""

    advisory: str
    severity: str
    package: str
    version: str
    fixed: str  # versions that end it, with commas; empty where none is known
    place: str
    summary: str


def audit(name: str, advisories: str, as_json: bool) -> None:
    """Print the advisories that hold for an image, or an SBOM in CycloneDX form. Raises SifmarkError where one does."""
    installed = packages_of(name)
    unread: list[str] = []
    covered: set[str] = set()
    told = set(findings(installed, _noted(read_advisories(Path(advisories)), covered), unread.append))
    found = sorted(told, key=lambda one: (one.package, one.advisory))
    if as_json:
        output(json.dumps([asdict(one) for one in found], indent=2))
    elif found:
        rows = [
            [one.advisory, one.severity, one.package, one.version, one.fixed, one.place, one.summary[:60]]
            for one in found
        ]
        output_table("advisory", "severity", "package", "version", "fixed in", "place", "summary", rows=rows)
    counts = Counter(one.ecosystem for one in installed)
    left = {own: count for own, count in counts.items() if not any(_same_ecosystem(told, own) for told in covered)}
    looked_up = len(installed) - sum(left.values())
    status(f"{looked_up} packages looked up, {len({one.package for one in found})} with advisories")
    for ecosystem, count in left.items():
        status(f"  not looked up: {count} packages of {ecosystem}; none of the advisories is for that")
    for one in dict.fromkeys(unread):
        status(f"  not judged, because a version in it does not read: {one}")
    if found:
        raise SifmarkError(f"{name}: {len(found)} advisories hold", "take a newer base or wheel: inv pins, inv lock")


def packages_of(name: str) -> list[Installed]:
    """What an image or an SBOM file holds. Raises SifmarkError where there is no list of packages."""
    if name.endswith(".json"):
        text, where = _read(Path(name)), name
    else:
        tool, address = locate(name)
        where = address
        text = tool.inspect(address).sboms().get(CYCLONEDX, b"")
    try:
        components = json.loads(text)["components"]
        return [package for component in components if (package := _installed(component)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SifmarkError(
            f"{where} holds no CycloneDX list of packages: {error}", "build it again: inv build"
        ) from error


def read_advisories(place: Path) -> Iterator[Mapping[str, Any]]:
    """The advisories of a file, an archive or a folder, but those withdrawn. Raises UsageError for what is none."""
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.suffix in _ENDINGS)
        if not files:
            raise UsageError(f"{place} has no advisories", f"they are files that end in {', '.join(_ENDINGS)}")
    else:
        files = [place]
    for path in files:
        for where, text in _texts(path):
            for document in _documents(where, text):
                if not isinstance(document, dict) or not {"id", "affected"} <= document.keys():
                    raise UsageError(f"{where} is no advisory in the OSV format", _FROM_OSV)
                if not document.get("withdrawn"):
                    yield document


def findings(
    installed: Iterable[Installed], advisories: Iterable[Mapping[str, Any]], unread: Callable[[str], None]
) -> Iterator[Finding]:
    """What holds of advisories for packages; `unread` is told what could not be judged."""
    by_name: dict[str, list[Installed]] = defaultdict(list)
    for package in installed:
        by_name[package.name].append(package)
    for advisory in advisories:
        try:
            yield from _of_one(advisory, by_name, unread)
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise UsageError(f"{advisory['id']} is no advisory in the OSV format: {error}", _FROM_OSV) from error


def _of_one(
    advisory: Mapping[str, Any], by_name: Mapping[str, Sequence[Installed]], unread: Callable[[str], None]
) -> Iterator[Finding]:
    for affected in advisory["affected"] or ():
        told = affected.get("package") or {}
        for package in by_name.get(_plain(str(told.get("ecosystem")), str(told.get("name"))), ()):
            if _same_ecosystem(str(told["ecosystem"]), package.ecosystem):
                holds = _holds(affected, package)
                if holds is None:
                    unread(f"{advisory['id']} for {package.name} {package.version}")
                elif holds:
                    yield _finding(advisory, affected, package)


def _noted(advisories: Iterable[Mapping[str, Any]], covered: set[str]) -> Iterator[Mapping[str, Any]]:
    """The same, with the ecosystems that they are for gathered on the way."""
    for advisory in advisories:
        entries = advisory["affected"] if isinstance(advisory["affected"], list) else ()
        packages = (entry.get("package") for entry in entries if isinstance(entry, dict))
        covered.update(str(package.get("ecosystem")) for package in packages if isinstance(package, dict))
        yield advisory


def _finding(advisory: Mapping[str, Any], affected: Mapping[str, Any], package: Installed) -> Finding:
    events = [event for known in affected.get("ranges") or () for event in known.get("events") or ()]
    fixed = ", ".join(dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event))
    specific = advisory.get("database_specific") or {}
    scores = [str(score.get("score")) for score in advisory.get("severity") or ()]
    severity = str(specific.get("severity") or (scores[0] if scores else ""))
    known_as = package.known_as if package.known_as == package.name else f"{package.known_as} (of {package.name})"
    summary = str(advisory.get("summary") or advisory.get("details") or "").strip().split("\n")[0]
    return Finding(str(advisory["id"]), severity, known_as, package.version, fixed, package.place, summary)


def _installed(component: Mapping[str, Any]) -> Installed | None:
    from packageurl import PackageURL

    url = component.get("purl")
    if not url:
        return None
    told = PackageURL.from_string(str(url))
    qualifiers = told.qualifiers if isinstance(told.qualifiers, dict) else {}
    name, version = told.name, told.version or ""
    if told.type == PYTHON:
        places = [entry["value"] for entry in component.get("properties", ()) if entry["name"] == "sifmark:place"]
        return Installed("PyPI", _plain("PyPI", name), version, name, places[0] if places else "")
    if told.type != SYSTEM:
        return None
    source, _, source_version = str(qualifiers.get("upstream", name)).partition("@")
    system, _, release = str(qualifiers.get("distro", told.namespace or "")).partition("-")
    ecosystem = f"{system.capitalize()}:{release}" if release else system.capitalize()
    return Installed(ecosystem, source, source_version or version, name, "")


def _plain(ecosystem: str, name: str) -> str:
    """A name as its ecosystem compares them: PyPI's by PEP 503."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(name) if ecosystem == "PyPI" else name


def _same_ecosystem(stated: str, own: str) -> bool:
    """Whether an advisory's ecosystem holds for a package's; one without a release is for all."""
    left, right = _VERSIONED.fullmatch(stated), _VERSIONED.fullmatch(own)
    if left is None or right is None or left["name"] != right["name"]:
        return False
    return left["version"] in (None, right["version"])


def _holds(affected: Mapping[str, Any], package: Installed) -> bool | None:
    """By the versions that are listed, or the ranges: the schema's own algorithm. None where a range cannot be read."""
    parse = _python_version if package.ecosystem == "PyPI" else _debian_version
    listed = affected.get("versions") or ()
    judged: list[bool | None] = [package.version in listed or _same_version(package.version, listed, parse)]
    for known in affected.get("ranges") or ():
        if known.get("type") in ("ECOSYSTEM", "SEMVER"):
            try:
                judged.append(_within(known["events"], parse(package.version), parse))
            except (ValueError, KeyError, TypeError, AttributeError):
                judged.append(None)
    return True if True in judged else None if None in judged else False


def _same_version(version: str, listed: Iterable[str], parse: Callable[[str], Any]) -> bool:
    """Whether a list has a version in another spelling, as `2.13` and `2.13.0` are, or `2.13.0+cpu`."""
    for other in listed:
        with suppress(ValueError, TypeError):
            if parse(version) == parse(other):
                return True
    return False


def _within(events: Iterable[Mapping[str, str]], version: Any, parse: Callable[[str], Any]) -> bool:
    """Whether the last event at or before a version leaves it affected."""
    affected = False
    told = ((kind, value) for event in events for kind, value in event.items() if kind in _EVENTS)
    ordered = sorted(((_point(kind, value, parse), kind) for kind, value in told), key=_order)
    for point, kind in ordered:
        if kind == "introduced" and (point is None or version >= point):
            affected = True
        elif (kind == "fixed" and version >= point) or (kind == "last_affected" and version > point):
            affected = False
    return affected


def _point(kind: str, value: str, parse: Callable[[str], Any]) -> Any:
    return None if kind == "introduced" and value == "0" else parse(value)


def _order(event: tuple[Any, str]) -> Any:
    point, _ = event
    return (0,) if point is None else (1, point)


def _python_version(text: str) -> Any:
    """Without what a builder added: advisories on 2.13.0 hold for 2.13.0+cpu too."""
    from packaging.version import Version

    return Version(Version(text).public)


def _debian_version(text: str) -> Any:
    from debian_inspector.version import Version

    return Version.from_string(text)


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix != ".zip":
        yield str(path), _read(path)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(_ENDINGS[:2]):
                    yield f"{path}: {name}", archive.read(name)
    except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # the last where it wants a password
        raise UsageError(f"{path}: {error}", "get it again from osv.dev") from error


def _documents(where: str, text: bytes) -> Iterator[Any]:
    try:
        if where.endswith(".jsonl"):
            yield from (json.loads(line) for line in text.splitlines() if line.strip())
            return
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}", "it is no JSON: get it again") from error
    yield from document if isinstance(document, list) else [document]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name a file, an archive or a folder that exists") from error
