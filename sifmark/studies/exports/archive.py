"""The archive of a study: its file, its results, and the available evidence of their images."""

import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.attestations.provenance import NAME as PROVENANCE
from sifmark.core import git
from sifmark.core.console import printable, warn
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import compact_json
from sifmark.core.settings import Settings
from sifmark.core.shell import word
from sifmark.engines import ImageInspection
from sifmark.engines.locate import engine_for, locate_any
from sifmark.results.archive import SUFFIX, Member, is_archive, is_name, write_archive
from sifmark.results.envelope import SUFFIX as ENVELOPE
from sifmark.results.load import load_file
from sifmark.studies.events import EVENTS
from sifmark.studies.exports.crate import Entity, crate_member, run_entity
from sifmark.studies.folder import JOBS
from sifmark.studies.study import Study

_LOGS = ("logs", EVENTS)  # folders of a system: what runs printed, and when they were started and ended
_SUFFIXES = {"result": ".json", "signature": ENVELOPE}
Claims = Mapping[str, Any]  # what results say of their image


class _Contents:
    """What the results of an archive say: how many ended in each state, and by which images."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.images: dict[str, Claims] = {}  # by the folder of its documents in the archive
        self.runs: list[Entity] = []

    def add(self, name: str, file: Path) -> None:
        """Read a file of results that has this name in the archive. Raises SifmarkError if one is not valid."""
        for loaded in load_file(str(file)):
            if loaded.problems:
                remedy = f"see all problems: sifmark results.validate {word(str(file))}; then run it again"
                raise SifmarkError(f"{file}: {loaded.problems[0]}", remedy, code="result-invalid")
            self.states[loaded.document["status"]["state"]] += 1
            folder = ""
            if (claims := loaded.document["provenance"]["image"]) is not None:
                folder = _folder_of(claims)
                self.images.setdefault(folder, claims)
            self.runs.append(run_entity(name, loaded.document, folder))


def archive_study(study: Study, folder: Path, target: Path, settings: Settings) -> dict[str, Any]:
    """Write the archive of a study with the results that a folder has of its systems. Return its manifest.

    Raises UsageError for a folder without results, SifmarkError for a result that is not valid.
    """
    if not is_archive(target.name):
        cause = f"{target.name} does not end in {SUFFIX}"
        raise UsageError(cause, f"name another file: -o {study.name}{SUFFIX}", code="invalid-option")
    members, contents = [_study_member(study), *_result_members(study, folder)], _Contents()
    for member in members:
        if member.kind == "result" and isinstance(member.content, Path):
            contents.add(member.name, member.content)
    if not contents.states:
        cause = f"{folder} has no results of study {study.name}"
        raise UsageError(cause, f"sifmark study.run {study.words}", code="result-missing")
    local = _local_images(study, contents.images.values(), settings)
    documents = {name: list(_image_members(name, claims, local)) for name, claims in contents.images.items()}
    members += [*(member for each in documents.values() for member in each), _environment(settings)]
    images = [
        _entry(name, claims, attested=len(documents[name]) > 1) for name, claims in sorted(contents.images.items())
    ]
    fields = {
        "sifmark": __version__,
        "study": {
            "name": study.name,
            "title": study.title,
            "variant": study.variant,
            "questions": list(study.questions),
        },
        "states": dict(contents.states),
        "images": images,
    }
    crate = crate_member(study.title, study.questions, images, members, contents.runs)
    return write_archive(target, fields, [*members, crate])


def _study_member(study: Study) -> Member:
    return Member(f"study/{study.file.name}", "study", study.file)


def _result_members(study: Study, folder: Path) -> Iterator[Member]:
    """Yield the files of a folder of results that belong to an archive; links and drafts do not."""
    for path, kind in _kinds(study, folder):
        name = f"results/{folder.name}/{path.relative_to(folder).as_posix()}"
        if is_name(name):
            yield Member(name, kind, path)
        else:
            warn(f"left out of the archive, because of its name: {printable(str(path))}")


def _kinds(study: Study, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield files with what they are in an archive."""
    for place in (folder / system.name for system in study.systems):
        for kind, suffix in _SUFFIXES.items():
            yield from ((path, kind) for path in _files(place, f"*{suffix}"))
        for logs in _LOGS:
            yield from ((path, "log") for path in _files(place / logs, "*"))
    yield from ((path, "script") for path in _files(folder / JOBS, "**/*"))


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if _is_file(path))


def _is_file(path: Path) -> bool:
    return not path.name.startswith(".") and not path.is_symlink() and path.is_file()


def _folder_of(claims: Claims) -> str:
    """Return where in the archive the documents of an image are: by its ID, else by its build key."""
    digest = claims["file"]["identity"] or claims["build_key"]
    return f"images/{claims['recipe']}-{digest.removeprefix('sha256:')[:16]}"


def _entry(folder: str, claims: Claims, attested: bool) -> dict[str, Any]:
    """Return an image as the manifest has it."""
    file = claims["file"]
    return {
        "recipe": claims["recipe"],
        "build_key": claims["build_key"],
        "identity": file["identity"],
        "digest": file["digest"],
        "folder": folder,
        "attested": attested,
    }


def _local_images(study: Study, images: Iterable[Claims], settings: Settings) -> dict[str, ImageInspection]:
    """Return by identity the images here that are of the systems of a study, or of the recipes of results."""
    names = dict.fromkeys([*(system.image for system in study.systems), *(each["recipe"] for each in images)])
    local: dict[str, ImageInspection] = {}
    for name in names:
        with suppress(SifmarkError):
            engine = engine_for(name, settings)
            address = locate_any(name, engine)
            inspection = engine.inspect(address)
            local.setdefault(inspection.identity(), inspection)
    return local


def _image_members(folder: str, claims: Claims, local: Mapping[str, ImageInspection]) -> Iterator[Member]:
    """Yield what results say of an image, and if it can be read its SBOMs, provenance and signatures."""
    yield Member(f"{folder}/image.json", "image", compact_json(claims))
    image = local.get(claims["file"]["identity"])
    if image is None:
        reason = "is not here" if claims["file"]["identity"] else "was seen by nobody when it ran"
        warn(f"the image of recipe {claims['recipe']} {reason}: no SBOM, provenance or signature of it is packed")
        return
    yield from (Member(f"{folder}/{name}", "sbom", content) for name, content in image.sboms().items())
    if (statement := image.provenance()) is not None:
        yield Member(f"{folder}/{PROVENANCE}", "provenance", statement[0])
    yield from (Member(f"{folder}/{name}", "signature", content) for name, content in image.signatures().items())


def _environment(settings: Settings) -> Member:
    """Return what wrote the archive. It has nothing of this user, so that equal contents give equal bytes."""
    document = {
        "sifmark": __version__,
        "revision": git.revision(),
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "packages": {each.name: each.version for each in metadata.distributions()},
        "engine": settings.engine,
        "bases": settings.bases,
    }
    return Member("environment.json", "environment", compact_json(document))
