"""The archive of a study as an RO-Crate 1.1: what is in it, which image made each result, and when.

Source: https://www.researchobject.org/ro-crate/specification/1.1. The file lies beside the archive's manifest, which
has the hashes. Nothing in it is of this user or of today, so that equal contents give equal bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sifmark import __version__
from sifmark.core.files import compact_json
from sifmark.results.archive import MANIFEST, Member
from sifmark.results.documents import Document, value_at

NAME = "ro-crate-metadata.json"
KIND = "crate"
_VERSION = "https://w3id.org/ro/crate/1.1"
_PROFILE = "https://w3id.org/ro/wfrun/process/0.5"  # Process Run Crate: what runs of programs are in a crate
_SIFMARK = "#sifmark"
# By suffix; whatever else is in an archive is text that a run or a scheduler printed.
_FORMATS = {".json": "application/json", ".jsonl": "application/jsonl", ".toml": "application/toml"}
_FORMATS |= {".dsse": "application/vnd.dsse+json", ".sh": "application/x-sh"}
_KINDS = {
    "study": "study file",
    "result": "result of sifmark",
    "signature": "signature",
    "log": "log of a run",
    "script": "script or record of a scheduler",
    "environment": "where the archive was written",
    "image": "what results say of an image",
    "sbom": "software bill of materials of an image",
    "provenance": "provenance of an image",
}
Entity = dict[str, Any]


def crate_member(
    title: str,
    questions: Sequence[str],
    images: Sequence[Mapping[str, Any]],
    members: Iterable[Member],
    runs: Sequence[Entity],
) -> Member:
    """Return the metadata file of an archive with these members.

    `images` are as its manifest has them, `runs` what `run_entity` returned.
    """
    files = [*members, Member(MANIFEST, "manifest", b"")]
    graph = [
        {"@id": NAME, "@type": "CreativeWork", "conformsTo": {"@id": _VERSION}, "about": {"@id": "./"}},
        _root(title, questions, files, runs),
        {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": _SIFMARK, "@type": "SoftwareApplication", "name": "sifmark", "version": __version__},
        *(_image(each, files) for each in images),
        *(_file(each) for each in sorted(files, key=lambda member: member.name)),
        *runs,
    ]
    return Member(NAME, KIND, compact_json({"@context": f"{_VERSION}/context", "@graph": graph}))


def run_entity(file: str, document: Document, image: str) -> Entity:
    """Return the run of a result in a file of the archive; `image` is the folder there of its image, or empty."""
    state, workload = document["status"]["state"], document["workload"]
    completed = state == "completed"
    device = value_at(document, "accelerator.name") or "a device of unknown name"
    return {
        "@id": f"#run-{document['id']}",
        "@type": "CreateAction",
        "name": f"{workload['name']}, {workload['task']}, on {device}",
        "description": document["status"]["message"],
        "startTime": document["started"],
        "endTime": document["finished"],
        "actionStatus": f"http://schema.org/{'Completed' if completed else 'Failed'}ActionStatus",
        "instrument": {"@id": f"#{image}" if image else _SIFMARK},
        "result": {"@id": file},
        **({} if completed else {"error": state}),
    }


def _root(title: str, questions: Sequence[str], files: Sequence[Member], runs: Sequence[Entity]) -> Entity:
    name = " ".join(title.split())
    return {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": {"@id": _PROFILE},
        "name": name,
        "description": " ".join([f"Study of AI accelerators, measured with sifmark: {name}.", *questions]),
        "datePublished": max(run["endTime"] for run in runs),  # no date of today: equal contents, equal bytes
        "license": "Not stated here: ask whoever hands these results in.",
        "hasPart": _references(sorted(member.name for member in files)),
        "mentions": _references(run["@id"] for run in runs),
    }


def _file(member: Member) -> Entity:
    suffix = PurePosixPath(member.name).suffix
    name = "manifest of the archive" if member.name == MANIFEST else _KINDS[member.kind]
    return {"@id": member.name, "@type": "File", "name": name, "encodingFormat": _FORMATS.get(suffix, "text/plain")}


def _image(image: Mapping[str, Any], files: Iterable[Member]) -> Entity:
    """Return the image of some results, with the files about it."""
    about = sorted(member.name for member in files if member.name.startswith(f"{image['folder']}/"))
    identifiers = [image[name] for name in ("identity", "digest", "build_key") if image[name] is not None]
    return {
        "@id": f"#{image['folder']}",
        "@type": "SoftwareApplication",
        "name": f"image of recipe {image['recipe']}",
        "identifier": identifiers,
        "subjectOf": _references(about),
    }


def _references(names: Iterable[str]) -> list[Entity]:
    return [{"@id": name} for name in names]
