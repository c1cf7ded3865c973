"""What a SIF file shows of itself: read by us, by Apptainer, and by unsquashfs."""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sifmark.attestations import provenance
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError
from sifmark.core.process import run
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.build import SQUASHFS, SYSTEM_NAME, converted_base
from sifmark.engines.apptainer.diff import difference
from sifmark.engines.apptainer.sif import INSPECT_NAME, SBOM, SIGNATURE, Fingerprints, Sif, fingerprints, read_sif
from sifmark.engines.apptainer.signature import signed, signer
from sifmark.engines.apptainer.squashfs import ROOT, list_files
from sifmark.recipes import render
from sifmark.recipes.labels import WORKLOADS
from sifmark.recipes.plan import Plan

_LARGEST_GAP = 64 * 1024  # bytes: objects begin at a page, and the pages of some ARM and POWER hosts are this large
_REMEDY = "do not run it; fetch it again, or sign it again where it was built: `sifmark image.sign`"
_OUR_FOLDERS = (render.SITE, render.CODE, render.APPS)
# What Apptainer itself writes into every image, dated by the conversion.
_WRITTEN_BY_APPTAINER = re.compile(
    r"\.singularity\.d(/.*)?|(\.exec|\.run|\.shell|\.test|environment|singularity) -> .*|etc/(hosts|resolv\.conf)"
)
# Those of its files that describe the build itself, and so differ in size too.
_BUILD_DESCRIPTIONS = tuple(
    f".singularity.d/{name}" for name in ("Singularity", "labels.json", "env/10-docker2singularity.sh")
)


class SifInspection:
    """The inspection of one file. Raises SifmarkError if it is no SIF, or has no labels."""

    signature_covers_attestations = True

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path, self.sif, self._settings = path, read_sif(path), settings
        self.labels = self.sif.labels()
        prefix, dash, _ = path.name.partition("-")
        self.workload = prefix if dash else None

    @cached_property
    def _fingerprints(self) -> Fingerprints:
        return fingerprints(self.path)

    def identity(self) -> str:
        """Return the hash over system partition and inspect metadata."""
        return self._fingerprints.identity

    def digest(self) -> str:
        """Return the hash of the file, signatures included."""
        return self._fingerprints.digest

    def require_digest(self, recorded: str, signer: str | None) -> str:
        """Accept another digest only with a trusted signature, which covers whatever was added since.

        Raises CheckFailed.
        """
        if recorded == self._fingerprints.digest:
            return "identity and digest as recorded"
        if signer:
            return f"identity as recorded; the digest is not the one recorded: signed since, by {signer}"
        raise CheckFailed(
            "its digest is not the one recorded: what would run is, but the file has changed since its build",
            f"name the key that signed it, if it was signed since: --key; or {REBUILD_REMEDY}",
            code="digest-mismatch",
        )

    def require_covered(self) -> None:
        """Raise CheckFailed if the file holds something in none of its objects."""
        require_covered(self.sif)

    def require_start(self) -> str:
        """Compare labels, apps and run script as Apptainer sees them with what was built. Raises CheckFailed."""
        attributes = _apptainer_attributes(self.path)
        if dict(attributes.get("labels") or {}) != self.labels:
            raise CheckFailed(
                "Apptainer shows other labels than the file's metadata holds", REBUILD_REMEDY, code="image-altered"
            )
        apps = ",".join(sorted(run(["apptainer", "inspect", "--list-apps", self.path]).output.split()))
        if apps != self.labels.get(WORKLOADS):
            cause = f"its apps are {apps}, its label says {self.labels.get(WORKLOADS)}"
            raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
        if render.run_script() not in str(attributes.get("runscript")):
            raise CheckFailed("its run script does not start our entrypoint", REBUILD_REMEDY, code="image-altered")
        return f"{len(self.labels)} labels, {len(apps.split(','))} apps"

    def file_modes(self) -> Iterator[tuple[str, str]]:
        """Yield mode and name of each file in our folders of its squashfs."""
        for mode, *_, name in list_files(self.path, self.sif.system.offset, *_OUR_FOLDERS):
            yield mode, name

    def signer(self, keys: Sequence[str]) -> str:
        """Return which trusted key signed all of it. Raises CheckFailed for none.

        Apptainer checks every object, but nothing that is in none.
        """
        self.require_covered()
        return signer(self.path, keys)

    def signed(self) -> bool:
        """Return whether the file holds a signature."""
        return signed(self.sif)

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        """Return the statement in the file, and as its subjects the file system and the inspect metadata."""
        entry = self.sif.named(provenance.NAME)
        subjects = {SYSTEM_NAME: self._fingerprints.system, INSPECT_NAME: self._fingerprints.metadata}
        return None if entry is None else (self.sif.read(entry), subjects)

    def sboms(self) -> dict[str, bytes]:
        """Return the SBOMs in the file by name."""
        return {entry.name: self.sif.read(entry) for entry in self.sif.descriptors if entry.kind == SBOM}

    def signatures(self) -> dict[str, bytes]:
        """Return the signatures in the file by name, in its order."""
        return {
            f"signature-{entry.id}": self.sif.read(entry) for entry in self.sif.descriptors if entry.kind == SIGNATURE
        }

    def difference(self, other: str) -> str | None:
        """Return the first difference from another file: object by object, and file by file in the file system."""
        return difference(self.path, Path(other), self._settings.time_limit)

    def require_base(self, plan: Plan) -> str:
        """Compare mode, owner, size and date of each file with the converted base, if the cache still has it.

        Raises CheckFailed if one differs.
        """
        base = converted_base(plan, self._settings)
        if base.checksum() is None:
            return "base: not in the cache, its tree was not compared"
        our_folders = tuple(f"{ROOT}{folder}" for folder in _OUR_FOLDERS)
        with base.use() as content:
            before = set(map(_comparable, list_files(content / SQUASHFS, 0)))
        rows = list_files(self.path, self.sif.system.offset)
        after = {_comparable(row) for row in rows if not row[-1].startswith(our_folders)}
        if changed := before ^ after:
            names = sorted({row[-1].partition(" -> ")[0] for row in changed})
            cause = f"{len(names)} files of the base are not as they were, for example {names[0]}"
            raise CheckFailed(cause, REBUILD_REMEDY, code="image-altered")
        return f"{len(before)} unchanged files of the base"


def require_covered(sif: Sif) -> None:
    """Raise CheckFailed if a SIF holds something that is in none of its objects, or a header that contradicts them.

    A signature covers the objects, their descriptors except for places and dates of change, and of the header what
    starts the file and identifies it. None of the rest changes what runs, but it could carry anything. Gaps are judged
    by their size before they are read, so a hole of any size takes no time.
    """
    fault = next((fault for check in (_behind, _gaps, _table, _header) for fault in check(sif)), None)
    if fault is not None:
        raise CheckFailed(f"{sif.path.name}: {fault}, which no signature covers", _REMEDY, code="image-altered")


def _comparable(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return a row of the list without what differs between conversions, such as sizes and dates of folders."""
    mode, owner, size, *_, name = row
    path = name.removeprefix(ROOT)
    if mode[0] == "d" or path in _BUILD_DESCRIPTIONS:
        return (mode, owner, name)
    return (mode, owner, size, name) if _WRITTEN_BY_APPTAINER.fullmatch(path) else row


def _apptainer_attributes(path: Path) -> dict[str, Any]:
    """Return what `apptainer inspect` says of a file. Raises SifmarkError."""
    # spython takes a third of a second to import, and only this needs it.
    from spython.main import get_client

    try:
        answer = get_client(quiet=True).inspect(str(path), json=True, quiet=True)
        return dict(answer["attributes"])
    except (KeyError, TypeError, ValueError, OSError, SystemExit) as error:
        remedy = f"see why: apptainer inspect --all {shlex.quote(str(path))}"
        raise SifmarkError(f"Apptainer cannot inspect {path}", remedy, code="file-unreadable") from error


def _behind(sif: Sif) -> Iterator[str]:
    if extra := sif.path.stat().st_size - sif.end:
        yield f"{extra} bytes are behind its last object"


def _gaps(sif: Sif) -> Iterator[str]:
    """Yield the gaps between objects that are more than padding."""
    place = 0
    with sif.path.open("rb") as stream:
        for start, end in sif.parts():
            if (size := start - place) > _LARGEST_GAP:
                yield f"{size} bytes from byte {place} on are in none of its objects"
            elif size > 0:
                stream.seek(place)
                if any(stream.read(size)):
                    yield f"bytes between byte {place} and byte {start} are in none of its objects"
            place = max(place, end)


def _table(sif: Sif) -> Iterator[str]:
    if any(sif.unused):
        yield "unused rows of its table are not empty"


def _header(sif: Sif) -> Iterator[str]:
    """Yield the fields of the header that do not follow from the objects."""
    header, used = sif.header, len(sif.descriptors)
    if header.architecture != sif.system.architecture:
        yield "its header names another architecture than its file system"
    if header.free != header.total - used:
        yield f"its header counts {header.free} free rows of its table, there are {header.total - used}"
    if header.data + header.data_size != sif.end:
        yield f"the objects end at byte {header.data + header.data_size} by its header, but at byte {sif.end}"
