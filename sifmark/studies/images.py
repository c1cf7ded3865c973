"""Images of systems: their IDs, which are part of the keys of runs, or why they are missing."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sifmark.core.console import step
from sifmark.core.errors import SifmarkError
from sifmark.core.files import read_record, sha256_bytes, write_json
from sifmark.core.permissions import file_state
from sifmark.core.settings import Settings
from sifmark.engines import Engine, ImageInspection
from sifmark.engines.locate import engine_for, locate_any, names_file
from sifmark.recipes.labels import DEVICE, FRAMEWORK
from sifmark.recipes.recipe import recipe_names
from sifmark.studies.feasibility import ImageTarget, target_of
from sifmark.studies.study import System


@dataclass(frozen=True, slots=True)
class SystemImage:
    """The image of a system: its ID, or an empty one and the reason why it is missing."""

    identity: str
    reason: str
    target: ImageTarget | None  # None if nothing is known of the image

    def key_of(self, system: System) -> str:
        """Return what stands for the image in the keys of runs: its ID, or its name if it is not here."""
        return self.identity or system.image


def is_address(image: str) -> bool:
    """Return whether an image is the address of a registry."""
    return "://" in image


def is_recipe_or_place(image: str) -> bool:
    """Return whether an image is a recipe that exists, or the path or address of one."""
    return is_address(image) or names_file(image) or image in recipe_names()


def find_image_of(system: System, settings: Settings) -> SystemImage:
    """Return the image of a system. Its file is hashed if that has not been done since it was last changed."""
    target = target_of(system.image) if system.image in recipe_names() else None
    if is_address(system.image):
        reason = f"the image is not here: pull it, and name its file: --system {system.name}:FILE.sif"
        return SystemImage("", reason, target)
    try:
        engine = engine_for(system.image, settings)
        address = locate_any(system.image, engine)
        return SystemImage(
            image_hashes(address, engine, settings).identity, "", target or _labelled_target(address, engine)
        )
    except SifmarkError as error:
        if error.code == "image-not-built":
            return SystemImage("", f"the image is not here: sifmark build {system.image}", target)
        return SystemImage("", f"{error.cause}: {error.remedy}" if error.remedy else error.cause, target)


def _labelled_target(address: str, engine: Engine) -> ImageTarget | None:
    info = engine.image_info(address)
    labels = info.labels if info else {}
    return ImageTarget(labels[FRAMEWORK], labels[DEVICE]) if {FRAMEWORK, DEVICE} <= labels.keys() else None


@dataclass(frozen=True, slots=True)
class ImageHashes:
    """The ID of an image, and the hash of its bytes, as they were when its file had a state."""

    identity: str
    digest: str
    state: str = ""


def image_hashes(address: str, engine: Engine, settings: Settings) -> ImageHashes:
    """Return the hashes of an image. Those of a file are kept with its state: hashing gigabytes takes a while.

    Plans and submissions alone use what is kept: whatever starts an image hashes it again.
    """
    path = Path(address)
    if not path.is_file():  # an image of Docker, which knows its digests
        return _hashes(engine.inspect(address))
    state = repr(file_state(path))
    kept = settings.cache / "image-ids" / sha256_bytes(str(path.absolute()).encode())[7:39]
    record = read_record(kept, ImageHashes)
    if record is not None and record.state == state:
        return record
    with step(f"look at {path.name}"):
        hashes = _hashes(engine.inspect(address), state)
    with suppress(OSError):
        write_json(kept, asdict(hashes))
    return hashes


def _hashes(image: ImageInspection, state: str = "") -> ImageHashes:
    return ImageHashes(image.identity(), image.digest(), state)
