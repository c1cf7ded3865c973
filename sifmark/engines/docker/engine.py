"""The Docker engine, through docker-py: one image for each recipe, and for each workload a name that adds metadata."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sifmark.core.console import step
from sifmark.core.files import human_size, sha256_json
from sifmark.core.settings import settings
from sifmark.engines import BuiltImage, ImageInfo, device_selection, device_selection_files
from sifmark.engines.docker.attestations import attestation_folder, write_attestations
from sifmark.engines.docker.client import DockerError, attributes, build, docker_client, translated_errors
from sifmark.engines.docker.inspection import WORKLOAD, DockerInspection
from sifmark.layers.assemble import code_layer, site_layer
from sifmark.layers.cache import STOCKED
from sifmark.layers.offline import offline_base, require_intact, write_archive
from sifmark.recipes import render
from sifmark.recipes.names import names_of, workloads_of
from sifmark.recipes.plan import Plan
from sifmark.recipes.recipe import Access

NAME = "docker"
REPOSITORY = "sifmark"  # sifmark:cpu, sifmark:resnet50-cpu
BASES = "sifmark-base"  # bases that were loaded from a folder of sources, tagged by digest
STAGES = "sifmark-stage"  # bases with our wheels, tagged by key


class Docker:
    """Builds images layer by layer, and runs them through the `docker` command. An address is a reference."""

    name = NAME
    suffix = "docker"

    @property
    def home(self) -> Path:
        """The cache: all who use it meet there, as they meet in the engine."""
        return settings().cache / NAME

    def version(self) -> str | None:
        """Such as `20.10.24`; None where no engine answers."""
        try:
            with translated_errors():
                return str(docker_client().version()["Version"])
        except DockerError:
            return None

    def address(self, name: str) -> str:
        """A tag of our repository."""
        return f"{REPOSITORY}:{name}"

    def image_info(self, address: str) -> ImageInfo | None:
        """Labels and size of a local image."""
        found = attributes(address)
        return None if found is None else ImageInfo(dict(found["Config"].get("Labels") or {}), int(found["Size"]))

    @contextmanager
    def build(self, plan: Plan, log: Path) -> Iterator[BuiltImage]:
        """Make the image of a plan on the base with our wheels; it has no name before the block ends."""
        stage = stage_tag(plan)
        if attributes(stage) is None:
            with site_layer(plan, log).held() as site, step(f"add the wheels to {plan.base.pull}") as progress:
                text = render.dockerfile_of_stage(_base(plan), site.name)
                build(text, log, progress.detail, site.parent, tag=stage)
        with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
            code_layer(plan, Path(folder) / render.CODE_LAYER)
            with step("add the code") as progress:
                text = render.dockerfile_on_stage(plan.recipe, stage, plan.labels())
                identifier = build(text, log, progress.detail, Path(folder))
        inspection = self.inspect(identifier)
        yield BuiltImage(inspection.size, inspection.identity(), identifier)
        with step("list the packages"):
            write_attestations(plan, stage, inspection.identity())
        with translated_errors():
            docker_client().images.get(identifier).tag(REPOSITORY, plan.recipe.name)

    @contextmanager
    def rebuild(self, plan: Plan, ours: Callable[..., str], folder: Path) -> Iterator[str]:
        """What the rendered Dockerfile gives, every step of it done."""
        text = ours("render", plan.recipe.name, "--format", "dockerfile")
        with step("build it without the engine's cache") as progress:
            context = next(folder.glob(f"**/context/{plan.recipe.name}"))
            identifier = build(text, watch=progress.detail, context=context, anew=True)
        try:
            yield identifier
        finally:
            remove_unnamed(identifier)

    def stages(self, plan: Plan) -> dict[str, bool]:
        """The base with our wheels."""
        return {STOCKED: attributes(stage_tag(plan)) is not None}

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        """A tag for each workload: the recipe's image and one variable. What nobody names any more is removed."""
        image = attributes(self.address(recipe))
        names = names_of(recipe)
        outdated: list[dict[str, Any]] = []
        for name, workload in zip(names, workloads_of(recipe), strict=True):
            tagged = attributes(self.address(name))
            if image and (tagged is None or tagged.get("Parent") != image["Id"]):
                build(f"FROM {self.address(recipe)}\nENV {WORKLOAD}={workload}\n", tag=self.address(name))
                outdated += [tagged] if tagged else []
        parents = (image.get("Parent") for image in outdated)
        for identifier in filter(None, dict.fromkeys([*(image["Id"] for image in outdated), *parents])):
            remove_unnamed(identifier)
        return names

    def remove(self, recipe: str) -> Iterable[str]:
        """Remove the tags of a recipe, and so its image."""
        for name in (*names_of(recipe), recipe):
            if attributes(self.address(name)):
                with translated_errors():
                    docker_client().images.remove(self.address(name))
                yield self.address(name)
        if attestation_folder(recipe).is_dir():
            shutil.rmtree(attestation_folder(recipe))
            yield str(attestation_folder(recipe))

    def prune_stages(self) -> Iterable[str]:
        """Remove the bases with our wheels, and those loaded from sources; what Docker pulled stays."""
        with translated_errors():
            for image in [found for name in (STAGES, BASES) for found in docker_client().images.list(name)]:
                for tag in image.tags:
                    if tag.startswith((f"{STAGES}:", f"{BASES}:")):  # it may have names of the site's own
                        docker_client().images.remove(tag)
                        yield f"{tag} ({human_size(int(image.attrs['Size']))})"

    def save(self, address: str, target: Path) -> None:
        """Write an image as an archive that other engines read. Raises DockerError."""
        with translated_errors(), target.open("wb") as stream:
            for block in docker_client().images.get(address).save(named=False):
                stream.write(block)

    def command(self, address: str, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """`docker run` with the host's shared memory, as Apptainer has it; a network only where a device is on one."""
        network = [] if any(word.startswith("--network") for word in options) else ["--network=none"]
        start, words = [], list(arguments)
        if verb == "exec":
            start, words = [f"--entrypoint={words[0]}"], words[1:]
        elif verb == "test":
            words = ["--check", *words]
        return [NAME, "run", "--rm", "--ipc=host", *network, *options, *start, address, *words]

    def device_flags(self, access: Access) -> list[str]:
        """Docker's own flag of a vendor, or the device files with the groups that they belong to."""
        here = access.here()
        if not here:
            return []
        groups = sorted({gid for path in here for gid in _groups(Path(path))} - {0})
        files = [] if "--gpus=all" in access.docker else [f"--device={path}" for path in here]
        chosen = [f"--env={name}" for name in device_selection()]
        seen = [f"--volume={path}:{path}:ro" for path in device_selection_files()]
        return [*files, *(f"--group-add={gid}" for gid in groups), *access.docker, *chosen, *seen]

    def home_flags(self) -> list[str]:
        """The folder that one stands in, as oneself."""
        user, here = f"{os.geteuid()}:{os.getegid()}", Path.cwd()
        return [f"--user={user}", f"--volume={here}:{here}", f"--workdir={here}", *_NOBODYS_HOME]

    def env_flags(self, variable: str) -> list[str]:
        """Docker takes the value from its own environment."""
        return [f"--env={variable}"]

    def isolation_flags(self) -> list[str]:
        """As a user whom the image does not know."""
        return ["--user=65534:65534", "--cap-drop=ALL", "--security-opt=no-new-privileges", *_NOBODYS_HOME]

    def inspect(self, address: str) -> DockerInspection:
        """The local image."""
        return DockerInspection(address, _base)


# Frameworks ask for a home folder and a name, which a user whom the image does not know has not.
_NOBODYS_HOME = ["--env=HOME=/tmp", "--env=USER=sifmark"]


def make() -> Docker:
    """The engine."""
    return Docker()


def _base(plan: Plan) -> str:
    """The base as the engine knows it: loaded from the folder of sources, if it is there, else by its address."""
    layout = offline_base(plan.base)
    if layout is None:
        return plan.base.pull
    loaded = f"{BASES}:{layout.name[:32]}"
    if attributes(loaded) is None:
        require_intact(layout, plan.base.digest)
        with tempfile.TemporaryDirectory(prefix="sifmark-") as folder, step("load the base"):
            archive = Path(folder) / "base.tar"
            write_archive(layout, plan.base.digest, loaded, archive)
            with translated_errors(), archive.open("rb") as stream:
                docker_client().images.load(stream)
    return loaded


def remove_unnamed(identifier: str) -> None:
    """Remove an image that no name leads to any more; one that has a name or a container stays."""
    from docker.errors import APIError

    found = attributes(identifier)
    if found is not None and not found.get("RepoTags"):
        with translated_errors(), suppress(APIError):
            docker_client().images.remove(identifier)


def stage_tag(plan: Plan) -> str:
    """The tag of a base with our wheels."""
    steps = render.dockerfile_of_stage(plan.base.digest)
    key = sha256_json([steps, plan.site_key]).removeprefix("sha256:")
    return f"{STAGES}:{key[:32]}"


def _groups(path: Path) -> Iterator[int]:
    """The groups that device files belong to."""
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_char_device():
            yield file.stat().st_gid
