"""Container engines: sibling modules behind one interface. What the verbs need of an engine, and no more."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from sifmark.core.errors import SifmarkError
from sifmark.core.settings import settings
from sifmark.recipes.plan import Plan
from sifmark.recipes.recipe import Access

# By these users and schedulers say which of a host's devices a run may use; a container that does not know would use
# others.
SELECTION_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ONEAPI_DEVICE_SELECTOR",
    "IPUOF_CONFIG_PATH",
    "IPUOF_VIPU_API_HOST",
    "IPUOF_VIPU_API_PORT",
    "IPUOF_VIPU_API_PARTITION_ID",
    "IPUOF_VIPU_API_GCD_ID",
    "IPUOF_VIPU_API_TIMEOUT",
)
_FILES = ("IPUOF_CONFIG_PATH",)  # those that name one


class CheckFailed(SifmarkError):  # noqa: N818 - named for what it says
    """A check found the image not to be what it should be."""


@dataclass(frozen=True)
class ImageInfo:
    """What can be told of an image without starting anything in it. Labels are empty where it does not read."""

    labels: dict[str, str]
    size: int  # bytes


@dataclass(frozen=True)
class BuiltImage:
    """What a build made: `identity` is of what runs, `digest` of the file that holds it."""

    size: int  # bytes
    identity: str
    digest: str


class Engine(Protocol):
    """Builds, runs and inspects images. An address is what it finds an image by: a path or a reference."""

    name: str
    suffix: str  # tells its records and locks from those of others

    @property
    def home(self) -> Path:
        """Where the records and locks of its images lie."""

    def version(self) -> str | None:
        """The engine's version, or None where it is not there or does not answer."""

    def address(self, name: str) -> str:
        """Where the image of a name or of a recipe is, once it is built."""

    def image_info(self, address: str) -> ImageInfo | None:
        """What is there, or None."""

    def build(self, plan: Plan, log: Path) -> AbstractContextManager[BuiltImage]:
        """Make the image of a recipe. It takes its place when the block ends well. Raises SifmarkError."""

    def stages(self, plan: Plan) -> dict[str, bool]:
        """The stages of a build that are kept, and whether they are at hand."""

    def rebuild(self, plan: Plan, ours: Callable[..., str], folder: Path) -> AbstractContextManager[str]:
        """Build without anything that earlier builds left; the address of what was made, which lasts for the block.

        `ours` runs a verb of ours that puts all it makes into a folder, and gives what it printed.
        """

    def tag_workloads(self, recipe: str) -> tuple[str, ...]:
        """Let each workload's name mean the recipe's image; the names."""

    def remove(self, recipe: str) -> Iterable[str]:
        """Remove the images of a recipe under all their names; says what went."""

    def prune_stages(self) -> Iterable[str]:
        """Remove what the engine itself keeps of builds; says what went."""

    def command(self, address: str, verb: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
        """The argv that runs, tests or executes in an image on this host."""

    def device_flags(self, access: Access) -> list[str]:
        """The options of `command` that let a container reach devices; none where this host has no such device."""

    def home_flags(self) -> list[str]:
        """The options of `command` that let a run see the user's folder, where it does not by itself."""

    def env_flags(self, variable: str) -> list[str]:
        """The options of `command` that let a run see a variable of our environment, where it does not by itself."""

    def isolation_flags(self) -> list[str]:
        """The options of `command` that keep the user's folders and variables out."""

    def inspect(self, address: str) -> "ImageInspection":
        """What the image shows of itself. Raises SifmarkError where it does not read."""


class ImageInspection(Protocol):
    """A finished image, for who doubts it."""

    labels: dict[str, str]
    workload: str | None  # the one that its name means
    signature_covers_attestations: bool  # whether a signature is of its lists of packages and its provenance too

    def identity(self) -> str:
        """The hash of what runs. Raises SifmarkError where something beside it would."""

    def digest(self) -> str:
        """The hash of what holds it: the file's, or Docker's identifier."""

    def require_digest(self, recorded: str, signer: str | None) -> str:
        """Say how it stands to the digest that was recorded, where `signer`'s signature of it holds. Raises Refuted."""

    def require_start(self) -> str:
        """Say what the engine sees of labels, names and start. Raises Refuted where it is not what was built."""

    def file_modes(self) -> Iterable[tuple[str, str]]:
        """Mode, as `ls` prints it, and name of each file of ours."""

    def signer(self, keys: Sequence[str]) -> str:
        """Which of the trusted keys signed all of it. Raises Refuted where none did, and says why."""

    def signed(self) -> bool:
        """Whether there is a signature, whosever."""

    def provenance(self) -> tuple[bytes, dict[str, str]] | None:
        """The statement of where it came from, and what that must be of: names with SHA-256, hexadecimal."""

    def sboms(self) -> dict[str, bytes]:
        """The documents of what is in it, by name."""

    def difference(self, again: str) -> str | None:
        """What differs first from another image, by its address; None where nothing does."""

    def require_base(self, plan: Plan) -> str:
        """Say how all that is not ours stands to the base. Raises Refuted where it differs."""


def should_check_signature(needed: bool, signed: Callable[[], bool]) -> bool:
    """Whether a signature is to be looked at: where one is needed, or there is one and this site trusts keys."""
    return needed or (bool(settings().keys) and signed())


def device_selection() -> dict[str, str]:
    """The variables by which this user chooses among this host's devices."""
    return {name: os.environ[name] for name in SELECTION_VARIABLES if name in os.environ}


def device_selection_files() -> list[str]:
    """The files and folders that these variables name."""
    named = (Path(value) for name, value in device_selection().items() if name in _FILES)
    return [str(path) for path in named if path.is_absolute() and path.exists()]


def engine(name: str | None = None) -> Engine:
    """The engine of a name, or the one in use. Each is its own module, imported when it is wanted."""
    module = import_module(f"sifmark.engines.{name or settings().engine}.engine")
    make: Callable[[], Engine] = module.make
    return make()
