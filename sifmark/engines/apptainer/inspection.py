"""What a SIF file shows of itself: to us, to Apptainer, and to unsquashfs."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sifmark.attestations import provenance
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError
from sifmark.core.process import run
from sifmark.engines import CheckFailed
from sifmark.engines.apptainer.build import SQUASHFS, SYSTEM_NAME, converted_base
from sifmark.engines.apptainer.diff import difference
from sifmark.engines.apptainer.sif import INSPECT_NAME, SBOM, Fingerprints, fingerprints, read_sif
from sifmark.engines.apptainer.signature import signed, signer
from sifmark.engines.apptainer.squashfs import ROOT, list_files
from sifmark.recipes import render
from sifmark.recipes.plan import WORKLOADS, Plan

_OURS = (render.SITE, render.CODE, render.APPS)
# What Apptainer itself writes into every image, dated by the conversion; three of its files tell of the build.
_APPTAINERS = re.compile(
    r"\.singularity\.d(/.*)?|(\.exec|\.run|\.shell|\.test|environment|singularity) -> .*|etc/(hosts|resolv\.conf)"
)
_TELLING = tuple(f".singularity.d/{name}" for name in ("Singularity", "labels.json", "env/10-docker2singularity.sh"))


class SifInspection:
    """One file. Raises SifmarkError where it is no SIF, or none with labels."""

    signature_covers_attestations = True

    def __init__(self, path: Path) -> None:
        self.path, self.sif = path, read_sif(path)
        self.labels = self.sif.labels()
        before, dash, _ = path.name.partition("-")
        self.workload = before if dash else None

    @cached_property
    def _seen(self) -> Fingerprints:
        return fingerprints(self.path)

    def identity(self) -> str:
        """Over system partition and inspect metadata."""
        return self._seen.identity

    def digest(self) -> str:
        """Of the file, signatures included."""
        return self._seen.digest

    def require_digest(self, recorded: str, signer: str | None) -> str:
        """Something may have been added to the file since then if a trusted signature is of all of it."""
        if recorded == self._seen.digest:
            return "identity and digest as recorded"
        if signer:
            return f"identity as recorded; the file was signed since, by {signer}"
        raise CheckFailed(
            "what would run is as recorded, but the file has changed since its build",
            f"name the key that signed it, if it was signed since: --key; or {REBUILD_REMEDY}",
        )

    def require_start(self) -> str:
        """Labels, apps and run script as Apptainer sees them."""
        seen = _inspect(self.path)
        if dict(seen.get("labels") or {}) != self.labels:
            raise CheckFailed("Apptainer shows other labels than the file's metadata holds", REBUILD_REMEDY)
        apps = ",".join(sorted(run(["apptainer", "inspect", "--list-apps", self.path]).output.split()))
        if apps != self.labels.get(WORKLOADS):
            raise CheckFailed(f"its apps are {apps}, its label says {self.labels.get(WORKLOADS)}", REBUILD_REMEDY)
        if render.run_script() not in str(seen.get("runscript")):
            raise CheckFailed("its run script does not start our entrypoint", REBUILD_REMEDY)
        return f"{len(self.labels)} labels, apps {apps.replace(',', ', ')}"

    def file_modes(self) -> Iterator[tuple[str, str]]:
        """Our folders in its squashfs."""
        for mode, *_, name in list_files(self.path, self.sif.system.offset, *_OURS):
            yield mode, name

    def signer(self, keys: Sequence[str]) -> str:
        """Apptainer checks; it looks at every object."""
        return signer(self.path, keys)

    def signed(self) -> bool:
        """A signature is an object of its own."""
        return signed(self.sif)

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        """The statement that lies in it, of its file system and metadata."""
        entry = self.sif.named(provenance.NAME)
        subjects = {SYSTEM_NAME: self._seen.system, INSPECT_NAME: self._seen.metadata}
        return None if entry is None else (self.sif.read(entry), subjects)

    def sboms(self) -> dict[str, bytes]:
        """The lists of packages that lie in it, by name."""
        return {entry.name: self.sif.read(entry) for entry in self.sif.descriptors if entry.kind == SBOM}

    def difference(self, again: str) -> str | None:
        """Object by object, and within the file system file by file."""
        return difference(self.path, Path(again))

    def require_base(self, plan: Plan) -> str:
        """Mode, owner, size and date of each file, if the cache still has the converted base."""
        base = converted_base(plan)
        if base.seal() is None:
            return "base: not in the cache, its tree was not compared"
        ours = tuple(f"{ROOT}{folder}" for folder in _OURS)
        with base.held() as content:
            before = set(map(_undated, list_files(content / SQUASHFS, 0)))
        rows = list_files(self.path, self.sif.system.offset)
        after = {_undated(row) for row in rows if not row[-1].startswith(ours)}
        if changed := before ^ after:
            names = sorted({row[-1].partition(" -> ")[0] for row in changed})
            raise CheckFailed(
                f"{len(names)} files of the base are not as they were, for example {names[0]}", REBUILD_REMEDY
            )
        return f"{len(before)} files of the base, all as they were"


def _undated(row: tuple[str, ...]) -> tuple[str, ...]:
    """A row of the list without what differs from one conversion to the next, as sizes and dates of folders do."""
    mode, owner, size, *_, name = row
    own = name.removeprefix(ROOT)
    if mode[0] == "d" or own in _TELLING:
        return (mode, owner, name)
    return (mode, owner, size, name) if _APPTAINERS.fullmatch(own) else row


def _inspect(path: Path) -> dict[str, Any]:
    # spython takes a third of a second to import, and only this needs it.
    from spython.main import get_client

    try:
        answer = get_client(quiet=True).inspect(str(path), json=True, quiet=True)
        return dict(answer["attributes"])
    except (KeyError, TypeError, ValueError, OSError, SystemExit) as error:
        raise SifmarkError(f"Apptainer cannot inspect {path}", f"see why: apptainer inspect --all {path}") from error
