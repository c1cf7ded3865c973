"""Container engines behind one interface: what commands need of an engine, and no more."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

from sifmark.core.console import status
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines.binds import Bind
from sifmark.recipes.hardware import Access, all_hardware
from sifmark.recipes.plan import Plan

APPTAINER, DOCKER = "apptainer", "docker"
NOBODY = 65534  # user and group of images that are not trusted
UNPACKED_RATIO = 3  # size of an unpacked wheel with its bytecode, relative to the wheel file


class CheckFailed(SifmarkError):  # noqa: N818 - the outcome of a check, not a fault of the program
    """A check found that an image is not what it should be."""


@dataclass(frozen=True)
class ImageInfo:
    """What can be read of an image without starting it. The labels are empty where they cannot be read."""

    labels: dict[str, str]
    size: int  # bytes
    content: str  # equal for the names of one image
    workload: str | None = None  # what the image itself says it is named for; a file says nothing


@dataclass(frozen=True)
class BuiltImage:
    """What a build made: `identity` is the hash of what runs, `digest` that of the file that holds it."""

    size: int  # bytes
    identity: str
    digest: str


@dataclass(frozen=True)
class Forecast:
    """What a build will take. None is what cannot be estimated yet."""

    size: int | None = None  # bytes of the image
    seconds: float | None = None
    cached: int = 0  # bytes that will be added to the cache, where that can be estimated
    temporary: int = 0  # bytes that the engine needs for a while in its folder of temporary files
    stored: int = 0  # bytes that will be added to the folder of images; 0 for an engine with a store of its own


class Engine(Protocol):
    """Builds, runs and inspects images. An address is how it finds an image: a path or a reference."""

    name: str
    settings: Settings
    suffix: str  # distinguishes its build records and locks from those of other engines

    @property
    def home(self) -> Path:
        """The folder with the build records and locks of its images."""

    def version(self) -> str | None:
        """Return the engine's version, or None if it is not installed or does not answer."""

    def address(self, name: str) -> str:
        """Return the address of the image of a name or a recipe, built or not."""

    def pinned(self, address: str) -> str:
        """Return an address of the image that stays this image's if its name comes to mean another.

        What was checked is run by it; a file stays where it is. Raises SifmarkError if there is no such image.
        """

    def image_info(self, address: str) -> ImageInfo | None:
        """Return the image's labels and size, or None if there is no such image."""

    def build(self, plan: Plan, log: Path) -> AbstractContextManager[BuiltImage]:
        """Build the image of a plan. It gets its name when the block ends without an error. Raises SifmarkError."""

    def stages(self, plan: Plan) -> dict[str, bool]:
        """Return the intermediate results of a build that are kept, and whether each is there."""

    def forecast(self, plan: Plan) -> Forecast:
        """Estimate what a build of a plan would take. Of registries only sizes are requested."""

    def rebuild(self, plan: Plan, run_command: Callable[..., str], folder: Path) -> AbstractContextManager[str]:
        """Build without anything that earlier builds left; give the image's address, valid within the block.

        `run_command` runs a sifmark command that writes all its files into `folder`, and returns its output.
        """

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        """Let each workload's image name refer to the recipe's image. Return the names."""

    def remove(self, recipe: str) -> Iterable[str]:
        """Remove the images of a recipe under all their names. Yield what was removed."""

    def prune_stages(self) -> Iterable[str]:
        """Remove the intermediate results that the engine itself keeps. Yield what was removed."""

    def command(self, address: str, verb: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
        """Return the argv that runs, tests or executes something in an image on this host: `run`, `test`, `exec`."""

    def device_flags(self, access: Access) -> list[str]:
        """Return the options that give a container access to devices; none if this host has no such device."""

    def home_flags(self) -> list[str]:
        """Return the options that show a run the user's folder, if the engine does not do so anyway."""

    def bind_flags(self, binds: Sequence[Bind]) -> list[str]:
        """Return the options that show a run paths of the host."""

    def env_flags(self, variable: str) -> list[str]:
        """Return the options that pass a variable of our environment, if the engine does not do so anyway."""

    def name_flags(self, name: str) -> list[str]:
        """Return the options that name a run, so that `end_run` finds it; none if a run ends with its process."""

    def end_run(self, name: str) -> None:
        """End the run of a name that outlived the process that it was started by, and wait for its end."""

    def isolation_flags(self, access: Access | None, *, variables: bool = False) -> list[str]:
        """Return the options that keep the user's folders, rights and variables out of a container.

        There is a network only if the device is reached over one. With `variables` those of this process that the
        engine shows to other runs are shown.
        """

    def inspect(self, address: str) -> "ImageInspection":
        """Inspect an image. Raises SifmarkError if it cannot be read."""


class ImageInspection(Protocol):
    """What an engine reads from a finished image."""

    labels: dict[str, str]
    workload: str | None  # the one that the image's name stands for
    signature_covers_attestations: bool  # whether a signature also covers SBOMs and provenance

    def identity(self) -> str:
        """Return the hash of what runs. Raises SifmarkError if something outside it would run too."""

    def digest(self) -> str:
        """Return the hash of what holds the image: the file's, or Docker's identifier."""

    def require_digest(self, recorded: str, signer: str | None) -> str:
        """Compare the image with a recorded digest. Return how they relate; `signer` has a valid signature of it.

        Raises CheckFailed.
        """

    def require_covered(self) -> None:
        """Raise CheckFailed if the image holds something that no signature of it covers."""

    def require_start(self) -> str:
        """Compare labels, names and start as the engine sees them with what was built. Raises CheckFailed."""

    def file_modes(self) -> Iterable[tuple[str, str]]:
        """Yield mode, as `ls` prints it, and name of each file that we add to a base."""

    def signer(self, keys: Sequence[str]) -> str:
        """Return which of the trusted keys signed all of it. Raises CheckFailed, with the reason, if none did."""

    def signed(self) -> bool:
        """Return whether there is a signature, by any key."""

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        """Return the provenance statement and the subjects it must have: names with SHA-256, hexadecimal."""

    def sboms(self) -> dict[str, bytes]:
        """Return the SBOMs by name."""

    def signatures(self) -> dict[str, bytes]:
        """Return the signatures that are kept with the image, by name."""

    def difference(self, other: str) -> str | None:
        """Return the first difference from the image at another address, or None if they are equal."""

    def require_base(self, plan: Plan) -> str:
        """Compare everything that we did not add with the base. Raises CheckFailed if it differs."""


def open_engine(settings: Settings, name: str = "") -> Engine:
    """Return the engine that the settings choose, or the one called `name`. Its module is imported only now."""
    name = name or settings.engine
    module = import_module(f"sifmark.engines.{name}.engine")
    make: Callable[[Settings], Engine] = module.make
    return make(replace(settings, engine=name))


def require_signed(inspection: ImageInspection, keys: Sequence[str]) -> None:
    """Raise CheckFailed unless a trusted key has signed all of an image."""
    status(f"  signed by {inspection.signer(keys)}")


def should_check_signature(required: bool, keys: Sequence[str], signed: Callable[[], bool]) -> bool:
    """Return whether to check a signature: if one is required, or if there is one and this site trusts keys."""
    return required or (bool(keys) and signed())


def device_selection() -> dict[str, str]:
    """Return the variables by which this user chooses among this host's devices.

    A container that does not get them would use other devices.
    """
    names = dict.fromkeys(name for hardware in all_hardware() for name in hardware.selection)
    return {name: os.environ[name] for name in names if name in os.environ}


def device_selection_files() -> list[str]:
    """Return the files and folders that these variables name."""
    names = [name for hardware in all_hardware() for name in hardware.selection_paths]
    paths = (Path(os.environ[name]) for name in names if name in os.environ)
    return [str(path) for path in paths if path.is_absolute() and path.exists()]
