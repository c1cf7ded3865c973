"""A Docker image that was built here, converted to the SIF that a build by Apptainer would have given."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sifmark.attestations import sbom
from sifmark.builds import ledger
from sifmark.builds.image import is_current
from sifmark.builds.records import lock_path, log_file, read_record, write_build_record
from sifmark.core.console import Step, step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import atomic_path
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings, with_options
from sifmark.engines import BuiltImage
from sifmark.engines.apptainer.build import assemble_sif, build_definition
from sifmark.engines.apptainer.engine import Apptainer, written_image
from sifmark.engines.apptainer.sif import Extent, Fingerprints, read_sif
from sifmark.engines.apptainer.squashfs import packages_in
from sifmark.engines.docker.engine import Docker
from sifmark.engines.docker.inspection import DockerInspection
from sifmark.layers import installers
from sifmark.layers.offline import base_creation_time, offline_base
from sifmark.recipes import render
from sifmark.recipes.labels import BUILD_KEY, CONVERTED_FROM, STAND_IN
from sifmark.recipes.plan import Plan, make_plan

_ARCHIVE = "image.tar"


@dataclass(frozen=True)
class Conversion:
    """The Docker image that was converted, and the SIF, or None if there was one that is up to date."""

    source: str
    image: BuiltImage | None


def convert_to_sif(recipe: str, settings: Settings, force: bool = False) -> Conversion:
    """Write the SIF of a Docker image, with its labels, and link the names of its workloads.

    The image must be the one that today's recipe builds, as its build recorded it. A SIF with the same build key is
    left alone, unless `force` is set. Raises SifmarkError.
    """
    installers.require_packages("a conversion")
    docker, apptainer = Docker(settings), Apptainer(settings)
    started = time.monotonic()
    image = None
    with exclusive_lock(lock_path(recipe, docker)), exclusive_lock(lock_path(recipe, apptainer)):
        inspection = docker.inspect(docker.address(recipe))
        bases = "stand-in" if inspection.labels.get(STAND_IN) == "true" else "pinned"
        plan = make_plan(recipe, with_options(settings, bases=bases))
        _require_own_build(plan, inspection, docker)
        if force or not is_current(apptainer.image_info(apptainer.address(recipe)), plan):
            source, log = inspection.identifier, log_file(recipe, settings)
            with _converted(plan, source, log, docker, settings) as image:
                seconds = round(time.monotonic() - started, 3)
                facts = {"log": str(log), "seconds": seconds, "converted_from": source}
                write_build_record(plan, apptainer, image, settings, **facts)
        apptainer.tag_workloads(recipe)
    return Conversion(docker.address(recipe), image)


def _require_own_build(plan: Plan, inspection: DockerInspection, docker: Docker) -> None:
    """Raise SifmarkError unless the image is what today's recipe builds, as its build recorded it, on its base."""
    recipe = plan.recipe.name
    image, remedy = f"the Docker image of {recipe}", f"build it again: sifmark build {recipe} --engine docker --force"
    if inspection.labels.get(BUILD_KEY) != plan.build_key:
        cause = f"{image} was built from another recipe or other code than those here"
        raise SifmarkError(cause, remedy, code="image-stale")
    record = read_record(recipe, docker, strict=False)
    if record is None or (record.digest, record.identity) != (inspection.identifier, inspection.identity()):
        raise SifmarkError(f"{image} is not the one whose build was recorded here", remedy, code="digest-mismatch")
    if not (record.was_built and ledger.is_trusted(inspection.identifier, docker.settings)):
        raise SifmarkError(f"{image} was not built here", remedy, code="not-built-here")
    inspection.require_base(plan)


@contextmanager
def _converted(plan: Plan, source: str, log: Path, docker: Docker, settings: Settings) -> Iterator[BuiltImage]:
    """Write the SIF as a draft, which takes its name when the block ends well."""
    target = settings.dist / f"{plan.recipe.name}.sif"
    with atomic_path(target) as draft, tempfile.TemporaryDirectory(dir=draft.parent) as name:
        folder = Path(name)
        archive, definition = folder / _ARCHIVE, folder / "definition"
        with step("save the Docker image") as progress, progress.watching(archive):
            docker.daemon.save(source, archive)
        labels = {**plan.labels(), CONVERTED_FROM: source}
        definition.write_text(render.converted_definition(plan.recipe, str(archive), labels))
        with step("convert it") as progress, progress.watching(folder / "converted.sif"):
            hashes = _convert(plan, definition, draft, log, settings, progress)
        yield written_image(draft, hashes)


def _convert(plan: Plan, definition: Path, draft: Path, log: Path, settings: Settings, progress: Step) -> Fingerprints:
    path = definition.with_name("converted.sif")
    created = base_creation_time(plan.base, offline_base(plan.base, settings.sources))
    size = definition.with_name(_ARCHIVE).stat().st_size
    build_definition(plan, created, definition, path, log, settings, progress.detail, size)
    converted = read_sif(path)
    system = Extent(path, converted.system.offset, converted.system.size)
    packages = packages_in(path, settings.time_limit, system.start)
    sboms = sbom.draft_documents(plan, packages)
    return assemble_sif(plan, system, draft, converted.attributes(), sboms, settings.builder)
