"""The Docker engine, through docker-py: one image per recipe, and per workload a name that adds metadata."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sifmark.core.console import step
from sifmark.core.files import human_size, sha256_json
from sifmark.core.settings import Settings
from sifmark.engines import (
    DOCKER,
    NOBODY,
    UNPACKED_RATIO,
    BuiltImage,
    Forecast,
    ImageInfo,
    device_selection,
    device_selection_files,
)
from sifmark.engines.binds import Bind
from sifmark.engines.docker.attestations import attestation_folder, write_attestations
from sifmark.engines.docker.client import DockerDaemon, DockerError, translated_errors
from sifmark.engines.docker.inspection import WORKLOAD, DockerInspection
from sifmark.layers.assemble import code_layer, site_layer
from sifmark.layers.cache import BASES_WITH_WHEELS
from sifmark.layers.offline import offline_base, require_intact, write_archive
from sifmark.layers.wheels import cached_size
from sifmark.recipes import render
from sifmark.recipes.hardware import Access
from sifmark.recipes.names import names_of, workloads_of
from sifmark.recipes.plan import Plan

REPOSITORY = "sifmark"  # sifmark:cpu, sifmark:resnet50-cpu
BASES = "sifmark-base"  # bases that were loaded from a folder of sources, tagged by digest
STAGES = "sifmark-stage"  # bases with our wheels, tagged by key
_SHARED_MEMORY = "2g"  # of a container that does not see the host's: what short runs with data workers take
# Frameworks ask for a home folder and a user name; a user whom the image does not know has neither.
_HOME_OF_UNKNOWN_USER = ["--env=HOME=/tmp", "--env=USER=sifmark"]


class Docker:
    """Builds images layer by layer, and runs them through the `docker` command. An address is a reference."""

    name = DOCKER
    suffix = "docker"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.daemon = DockerDaemon(settings.time_limit)

    @property
    def home(self) -> Path:
        """A folder of the cache: its users share records as they share the engine's images."""
        return self.settings.cache / DOCKER

    def version(self) -> str | None:
        """Return the version, such as `20.10.24`, or None if no engine answers."""
        try:
            return self.daemon.version()
        except DockerError:
            return None

    def address(self, name: str) -> str:
        """Return the tag of our repository."""
        return f"{REPOSITORY}:{name}"

    def pinned(self, address: str) -> str:
        """Return the identifier, since a name can be given to another image at any time."""
        return self.inspect(address).identifier

    def image_info(self, address: str) -> ImageInfo | None:
        """Return labels and size of a local image, or None if there is no such image."""
        if self.daemon.attributes(address) is None:
            return None
        image = self.inspect(address)
        return ImageInfo(image.labels, image.size, image.identity(), image.workload)

    @contextmanager
    def build(self, plan: Plan, log: Path) -> Iterator[BuiltImage]:
        """Make the image of a plan on the base with our wheels. It has no name before the block ends."""
        stage = stage_tag(plan)
        if self.daemon.attributes(stage) is None:
            self._build_stage(plan, stage, log)
        with tempfile.TemporaryDirectory(prefix="sifmark-") as folder:
            code_layer(plan, Path(folder) / render.CODE_LAYER, self.settings)
            with step("add the code") as progress:
                text = render.dockerfile_on_stage(plan.recipe, stage, plan.labels())
                identifier = self.daemon.build(text, log, progress.detail, Path(folder))
        inspection = self.inspect(identifier)
        yield BuiltImage(inspection.size, inspection.identity(), identifier)
        with step("list the packages"):
            write_attestations(plan, stage, inspection.identity(), self.daemon, self.settings)
        self.daemon.tag(identifier, REPOSITORY, plan.recipe.name)

    def _build_stage(self, plan: Plan, stage: str, log: Path) -> None:
        layer = site_layer(plan, self.settings, log)
        with layer.use() as site, step(f"add the wheels to {plan.base.pull}") as progress:
            text = render.dockerfile_of_stage(self._load_base(plan), site.name)
            self.daemon.build(text, log, progress.detail, site.parent, tag=stage)

    @contextmanager
    def rebuild(self, plan: Plan, run_command: Callable[..., str], folder: Path) -> Iterator[str]:
        """Build the rendered Dockerfile, every step of it, without the engine's cache."""
        text = run_command("image.render", plan.recipe.name, "--format", "dockerfile")
        with step("build it without the engine's cache") as progress:
            context = next(folder.glob(f"**/context/{plan.recipe.name}"))
            identifier = self.daemon.build(text, watch=progress.detail, context=context, no_cache=True)
        try:
            yield identifier
        finally:
            self.daemon.remove_unnamed(identifier)

    def stages(self, plan: Plan) -> dict[str, bool]:
        """Return whether the engine has the base with our wheels."""
        return {BASES_WITH_WHEELS: self.daemon.attributes(stage_tag(plan)) is not None}

    def forecast(self, plan: Plan) -> Forecast:
        """Estimate a build: the engine stores images itself, so only the wheels' layer goes into the cache.

        How long Docker takes was not measured, so nothing is said about it.
        """
        if stage := self.daemon.attributes(stage_tag(plan)):
            return Forecast(size=int(stage["Size"]))
        wheels = cached_size(plan.recipe.lock(plan.target), self.settings.cache)
        if wheels is None:
            return Forecast()
        layer = UNPACKED_RATIO * wheels
        base = self.daemon.attributes(self._base_name(plan))
        size = int(base["Size"]) + layer if base else None
        return Forecast(size=size, cached=0 if site_layer(plan, self.settings).checksum() else layer)

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        """Make a tag for each workload: the recipe's image and one variable. Images that lose their last name go."""
        image = self.daemon.attributes(self.address(recipe))
        names = names_of(recipe)
        outdated: list[dict[str, Any]] = []
        for name, workload in zip(names, workloads_of(recipe), strict=True):
            tagged = self.daemon.attributes(self.address(name))
            if image and (tagged is None or not self._is_name_of(tagged, image, workload)):
                dockerfile = f"FROM {image['Id']}\nENV {WORKLOAD}={workload}\n"
                self.daemon.build(dockerfile, tag=self.address(name))
                outdated += [tagged] if tagged else []
        parents = (image.get("Parent") for image in outdated)
        for identifier in filter(None, dict.fromkeys([*(image["Id"] for image in outdated), *parents])):
            self.daemon.remove_unnamed(identifier)
        return names

    def _is_name_of(self, tagged: dict[str, Any], image: dict[str, Any], workload: str) -> bool:
        """Return whether an image is another one and the name of a workload, and nothing else."""
        name, whole = self.inspect(tagged["Id"]), self.inspect(image["Id"])
        is_child = tagged.get("Parent") == whole.identifier
        return is_child and name.workload == workload and name.identity() == whole.identity()

    def remove(self, recipe: str) -> Iterable[str]:
        """Remove the tags of a recipe, and so its image."""
        for name in (*names_of(recipe), recipe):
            if self.daemon.attributes(self.address(name)):
                self.daemon.remove(self.address(name))
                yield self.address(name)
        folder = attestation_folder(recipe, self.settings.cache)
        if folder.is_dir():
            shutil.rmtree(folder)
            yield str(folder)

    def prune_stages(self) -> Iterable[str]:
        """Remove the bases with our wheels, and those loaded from sources; what Docker pulled stays."""
        with translated_errors():
            images = [image for name in (STAGES, BASES) for image in self.daemon.sdk.images.list(name)]
            for image in images:
                for tag in image.tags:
                    if tag.startswith((f"{STAGES}:", f"{BASES}:")):  # the site may have given it names too
                        self.daemon.sdk.images.remove(tag)
                        yield f"{tag} ({human_size(int(image.attrs['Size']))})"

    def command(self, address: str, verb: str, arguments: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """Return `docker run` with the host's shared memory, as Apptainer has it, unless the options say otherwise.

        There is a network only where a device needs one.
        """
        shared = [] if any(word.startswith("--ipc") for word in options) else ["--ipc=host"]
        network = [] if any(word.startswith("--network") for word in options) else ["--network=none"]
        start, words = [], list(arguments)
        if verb == "exec":
            start, words = [f"--entrypoint={words[0]}"], words[1:]
        elif verb == "test":
            words = ["--check", *words]
        return [DOCKER, "run", "--rm", *shared, *network, *options, *start, address, *words]

    def device_flags(self, access: Access) -> list[str]:
        """Return Docker's own flag of a vendor, or the device files with the groups that they belong to."""
        devices = access.existing_files()
        if not devices:
            return []
        files = [] if "--gpus=all" in access.docker else [f"--device={path}" for path in devices]
        variables = [f"--env={name}" for name in device_selection()]
        volumes = [f"--volume={path}:{path}:ro" for path in device_selection_files()]
        return [*files, *(f"--group-add={gid}" for gid in access.groups()), *access.docker, *variables, *volumes]

    def home_flags(self) -> list[str]:
        """Return the options that show the current folder, and run as the current user."""
        user, folder = f"{os.geteuid()}:{os.getegid()}", Path.cwd()
        return [f"--user={user}", f"--volume={folder}:{folder}", f"--workdir={folder}", *_HOME_OF_UNKNOWN_USER]

    def bind_flags(self, binds: Sequence[Bind]) -> list[str]:
        """Return `--mount`, whose values are CSV: any path can be written. `home_flags` have the current folder."""
        here = Bind(Path.cwd(), writable=True)
        return [f"--mount={_mount(bind)}" for bind in binds if bind != here]

    def env_flags(self, variable: str) -> list[str]:
        """Return the option that lets Docker take the value from its own environment."""
        return [f"--env={variable}"]

    def name_flags(self, name: str) -> list[str]:
        """Return the option that names a container: the engine runs it, even if the `docker` command is killed."""
        return [f"--name={name}"]

    def end_run(self, name: str) -> None:
        """Remove the container of this name, whatever it does."""
        self.daemon.remove_container(name)

    def isolation_flags(self, access: Access | None, *, variables: bool = False) -> list[str]:  # noqa: ARG002 - none
        """Return the options for a user whom the image does not know, without privileges, and with its own memory.

        A network is in the device's own options, which Docker does not take twice.
        """
        return [
            *([] if access is not None and access.is_on_network() else ["--network=none"]),
            *("--ipc=private", f"--shm-size={_SHARED_MEMORY}"),
            f"--user={NOBODY}:{NOBODY}",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            *_HOME_OF_UNKNOWN_USER,
        ]

    def inspect(self, address: str) -> DockerInspection:
        """Inspect a local image. Raises SifmarkError if there is no such image."""
        return DockerInspection(address, self.daemon, self._load_base, self.settings.cache)

    def _base_name(self, plan: Plan) -> str:
        """Return the engine's name of the base: its address, or its tag if it is loaded from the folder of sources."""
        layout = offline_base(plan.base, self.settings.sources)
        return plan.base.pull if layout is None else f"{BASES}:{layout.name[:32]}"

    def _load_base(self, plan: Plan) -> str:
        """Return the engine's name of the base, which is loaded from the folder of sources if it is there."""
        name, layout = self._base_name(plan), offline_base(plan.base, self.settings.sources)
        if layout is not None and self.daemon.attributes(name) is None:
            require_intact(layout, plan.base.digest)
            with tempfile.TemporaryDirectory(prefix="sifmark-") as folder, step("load the base"):
                archive = Path(folder) / "base.tar"
                write_archive(layout, plan.base.digest, name, archive)
                self.daemon.load(archive)
        return name


def make(settings: Settings) -> Docker:
    """Return the engine."""
    return Docker(settings)


def stage_tag(plan: Plan) -> str:
    """Return the tag of a base with our wheels."""
    steps = render.dockerfile_of_stage(plan.base.digest)
    key = sha256_json([steps, plan.site_key]).removeprefix("sha256:")
    return f"{STAGES}:{key[:32]}"


def _mount(bind: Bind) -> str:
    source, target = (str(path).replace('"', '""') for path in (bind.path, bind.target))
    return f'type=bind,"source={source}","target={target}"' + ("" if bind.writable else ",readonly")
