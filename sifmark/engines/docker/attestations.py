"""SBOMs and provenance of Docker images, which cannot be inside: files in the cache, beside the build's record."""

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
from sifmark.core.settings import Settings
from sifmark.engines.docker.client import DockerDaemon, stream_of, translated_errors
from sifmark.recipes.plan import Plan

IMAGE = "image"  # what provenance calls the subject whose hash is the identity


def attestation_folder(recipe: str, cache: Path) -> Path:
    """Return the folder with the attestations of a recipe's image."""
    return cache / "docker" / "papers" / recipe


def write_attestations(plan: Plan, stage: str, identity: str, daemon: DockerDaemon, settings: Settings) -> None:
    """Write SBOMs and provenance of an image, whose packages are those of its stage."""
    folder = attestation_folder(plan.recipe.name, settings.cache)
    folder.mkdir(parents=True, exist_ok=True)
    packages = _packages_of(stage, daemon, settings.cache)
    sboms = sbom.finish_documents(plan, sbom.draft_documents(plan, packages), git.source_date_of_build())
    statement = provenance.statement(plan, {IMAGE: identity.removeprefix("sha256:")}, settings.builder)
    for name, content in {**sboms, provenance.NAME: statement}.items():
        write_json(folder / name, json.loads(content))


def _packages_of(stage: str, daemon: DockerDaemon, cache: Path) -> list[Package]:
    """Return the packages of a base with our wheels, which are listed once."""
    path = cache / "docker" / "packages-2" / f"{stage.rpartition(':')[2]}.json"
    if not path.is_file():
        write_json(path, [asdict(package) for package in _list_packages(stage, daemon)])
    return [Package(**fields) for fields in json.loads(path.read_text())]


def _list_packages(image: str, daemon: DockerDaemon) -> list[Package]:
    """Read the packages of an image through a container that is never started, whose files come as one archive."""
    names, files = [], {}
    with daemon.container(image) as container:
        with translated_errors():
            blocks = cast("Iterator[bytes]", container.export())
        with tarfile.open(fileobj=stream_of(blocks), mode="r|") as archive:
            for member in archive:
                names.append(member.name)
                if member.isfile() and is_package_record(member.name) and (content := archive.extractfile(member)):
                    files[member.name] = content.read()
    report_unreadable(names)
    return read_packages(files)
