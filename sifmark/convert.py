"""The convert verb: a Docker image of ours as the SIF that a build by Apptainer would have given."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sifmark import render
from sifmark.build import alone, is_current, lock_of, log_file, write_record
from sifmark.console import say, step
from sifmark.engines import Made
from sifmark.engines.apptainer import Apptainer
from sifmark.engines.docker import Docker
from sifmark.engines.flat import COMPRESSION as COMPRESSORS
from sifmark.errors import SifmarkError, UsageError
from sifmark.files import beside, human_size, sha256_file
from sifmark.images import find_images, image_file, recipes_in
from sifmark.layers import code_layer
from sifmark.plan import BUILD_KEY, COMPRESSION, LABEL, STAND_IN, Plan, make_plan
from sifmark.run import run
from sifmark.settings import overridden, settings
from sifmark.sif import read_sif

CONVERTED = f"{LABEL}.converted-from"  # the identifier of the Docker image


def convert(name: str, force: bool = False) -> None:
    """Write the SIF of a Docker image of ours, with its labels, and link the names of its workloads.

    The image must be the one that today's recipe builds: its build key says so. A SIF with the same key is left alone.
    Raises SifmarkError.
    """
    recipes = recipes_in(find_images(name))
    if len(recipes) > 1:
        raise UsageError(f"{name!r} means {len(recipes)} recipes", f"name one of: {', '.join(recipes)}")
    recipe, docker, apptainer = recipes[0], Docker(), Apptainer()
    evidence = docker.evidence(docker.address(recipe))
    plan = make_plan(recipe, overridden(bases="stand-in" if evidence.labels.get(STAND_IN) == "true" else "pinned"))
    if evidence.labels.get(BUILD_KEY) != plan.build_key:
        raise SifmarkError(
            f"{docker.address(recipe)} was built of another recipe or other code than is here",
            f"build it again: inv build {recipe} --engine docker",
        )
    started = time.monotonic()
    with alone(lock_of(recipe, apptainer)):
        if is_current(recipe, plan, tool=apptainer) and not force:
            say(f"{recipe}.sif is up to date: nothing to convert; --force does it all the same")
        else:
            labels = {**evidence.labels, COMPRESSION: plan.compression, CONVERTED: evidence.identifier}
            log = log_file(recipe)
            with _converted(plan, labels, log) as made:
                seconds = round(time.monotonic() - started, 3)
                write_record(plan, apptainer, made, log=str(log), seconds=seconds, converted_from=evidence.identifier)
            say(f"{recipe}.sif: converted from {docker.address(recipe)}, {human_size(made.size)}, {made.identity}")
        apptainer.give_names(recipe)


@contextmanager
def _converted(plan: Plan, labels: dict[str, str], log: Path) -> Iterator[Made]:
    target = image_file(plan.recipe.name)
    with beside(target) as draft, tempfile.TemporaryDirectory(prefix=".convert-", dir=target.parent) as name:
        folder = Path(name)
        archive, definition = folder / "image.tar", folder / "definition"
        with step("save the Docker image"):
            docker = Docker()
            docker.save(docker.address(plan.recipe.name), archive)
        code_layer(plan, folder / "layers")
        definition.write_text(render.converted_definition(plan.recipe, str(archive), labels, str(folder / "layers")))
        command = ["apptainer", "build", "--force", "--notest"]
        command += [f"--mksquashfs-args={' '.join(COMPRESSORS[plan.compression])}"]
        with step("convert it") as progress:
            run([*command, draft, definition], log=log, watch=progress.detail, time_limit=settings().time_limit)
        draft.chmod(0o755)
        yield Made(draft.stat().st_size, read_sif(draft).identity(), sha256_file(draft))
