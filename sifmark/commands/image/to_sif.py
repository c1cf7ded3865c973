"""The convert verb: a Docker image of ours as the SIF that a build by Apptainer would have given."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmark.attestations import sbom
from sifmark.build import ledger
from sifmark.build.image import is_current
from sifmark.build.records import lock_path, log_file, read_record, write_build_record
from sifmark.core.console import status, step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import atomic_path, human_size
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings, settings, with_options
from sifmark.engines import BuiltImage
from sifmark.engines.apptainer.build import assemble_sif, build_definition
from sifmark.engines.apptainer.engine import Apptainer, verified_image
from sifmark.engines.apptainer.sif import DATA_START, read_sif
from sifmark.engines.apptainer.squashfs import packages_in
from sifmark.engines.docker.engine import Docker
from sifmark.engines.docker.inspection import DockerInspection
from sifmark.layers.offline import base_creation_time
from sifmark.recipes import render
from sifmark.recipes.names import find_recipe
from sifmark.recipes.plan import BUILD_KEY, LABEL, STAND_IN, Plan, make_plan

CONVERTED = f"{LABEL}.converted-from"  # the identifier of the Docker image


def convert(name: str, force: bool = False) -> None:
    """Write the SIF of a Docker image of ours, with its labels, and link the names of its workloads.

    The image must be the one that today's recipe builds, as its build recorded it. A SIF with the same key is left
    alone.
    Raises SifmarkError.
    """
    site = settings()
    recipe, docker, apptainer = find_recipe(name), Docker(site), Apptainer(site)
    started = time.monotonic()
    with exclusive_lock(lock_path(recipe, docker)), exclusive_lock(lock_path(recipe, apptainer)):
        inspection = docker.inspect(docker.address(recipe))
        plan = make_plan(
            recipe,
            with_options(site, bases="stand-in" if inspection.labels.get(STAND_IN) == "true" else "pinned"),
        )
        _require_ours(plan, inspection, docker)
        if is_current(apptainer.image_info(apptainer.address(recipe)), plan) and not force:
            status(f"{recipe}.sif is up to date: nothing to convert; --force does it all the same")
        else:
            log = log_file(recipe, site)
            with _converted(plan, inspection.identifier, log, docker, site) as made:
                seconds = round(time.monotonic() - started, 3)
                write_build_record(
                    plan, apptainer, made, site, log=str(log), seconds=seconds, converted_from=inspection.identifier
                )
            status(f"{recipe}.sif: converted from {docker.address(recipe)}, {human_size(made.size)}, {made.identity}")
        apptainer.tag_workloads(recipe)


def _require_ours(plan: Plan, inspection: DockerInspection, docker: Docker) -> None:
    """Raise SifmarkError unless the image is what today's recipe builds, as its build recorded it, on its base."""
    recipe, again = plan.recipe.name, f"build it again: inv build {plan.recipe.name} --engine docker --force"
    if inspection.labels.get(BUILD_KEY) != plan.build_key:
        raise SifmarkError(
            f"the Docker image of {recipe} was built of another recipe or other code than is here", again
        )
    record = read_record(recipe, docker, strict=False)
    if record is None or (record.digest, record.identity) != (inspection.identifier, inspection.identity()):
        raise SifmarkError(f"the Docker image of {recipe} is not the one whose build was recorded here", again)
    if not (record.was_built and ledger.is_trusted(inspection.identifier, docker.settings)):
        raise SifmarkError(f"the Docker image of {recipe} was not built here", again)
    inspection.require_base(plan)


@contextmanager
def _converted(plan: Plan, identifier: str, log: Path, docker: Docker, site: Settings) -> Iterator[BuiltImage]:
    target, labels = site.dist / f"{plan.recipe.name}.sif", {**plan.labels(), CONVERTED: identifier}
    with atomic_path(target) as draft, tempfile.TemporaryDirectory(dir=draft.parent) as name:
        folder = Path(name)
        archive, definition = folder / "image.tar", folder / "definition"
        with step("save the Docker image"):
            docker.daemon.save(identifier, archive)
        definition.write_text(render.converted_definition(plan.recipe, str(archive), labels))
        with step("convert it") as progress:
            build_definition(
                plan,
                base_creation_time(plan.base),
                definition,
                folder / "converted.sif",
                log,
                site,
                progress.detail,
            )
            converted = read_sif(folder / "converted.sif")
            converted.copy(converted.system, draft, skip=DATA_START)
            packages = packages_in(draft, site.time_limit, DATA_START)
            assemble_sif(plan, draft, converted.attributes(), sbom.draft_documents(plan, packages))
        yield verified_image(draft, site)
