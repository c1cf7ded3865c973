"""What goes with a Docker image and has no room in it: lists of packages and provenance, in files beside its record."""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import cast

from sifmark.attestations import provenance, sbom
from sifmark.attestations.packages import Package, is_package_record, read_packages, report_unreadable
from sifmark.core import git
from sifmark.core.files import write_json
from sifmark.core.settings import settings
from sifmark.engines.docker.client import docker_client, stream_of, translated_errors
from sifmark.recipes.plan import Plan

IMAGE = "image"  # as provenance calls it: what its identity is over


def attestation_folder(recipe: str) -> Path:
    """The folder with the papers of a recipe's image."""
    return settings().cache / "docker" / "papers" / recipe


def write_attestations(plan: Plan, stage: str, identity: str) -> None:
    """Write what is in an image, which is what its stage has, and where it came from."""
    folder = attestation_folder(plan.recipe.name)
    folder.mkdir(parents=True, exist_ok=True)
    sboms = sbom.finish_documents(plan, sbom.draft_documents(plan, _packages_of(stage)), git.source_date_of_build())
    statement = provenance.statement(plan, {IMAGE: identity.removeprefix("sha256:")})
    for name, content in {**sboms, provenance.NAME: statement}.items():
        write_json(folder / name, json.loads(content))


def _packages_of(stage: str) -> list[Package]:
    """The packages of a base with our wheels, listed once."""
    kept = settings().cache / "docker" / "packages" / f"{stage.rpartition(':')[2]}.json"
    if not kept.is_file():
        write_json(kept, [asdict(package) for package in _listed(stage)])
    return [Package(**told) for told in json.loads(kept.read_text())]


def _listed(image: str) -> list[Package]:
    """By way of a container that is never started, whose files come as one archive."""
    with translated_errors():
        container = docker_client().containers.create(image)
    names, files = [], {}
    try:
        with translated_errors():
            blocks = cast("Iterator[bytes]", container.export())
        with tarfile.open(fileobj=stream_of(blocks), mode="r|") as archive:
            for member in archive:
                names.append(member.name)
                if member.isfile() and is_package_record(member.name) and (content := archive.extractfile(member)):
                    files[member.name] = content.read()
    finally:
        container.remove(force=True)
    report_unreadable(names)
    return read_packages(files)
