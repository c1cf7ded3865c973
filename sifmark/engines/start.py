"""What a run of an image is started with: options and binds, and what its result is to say of the image."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.console import status
from sifmark.core.errors import UsageError
from sifmark.core.paths import import_shared
from sifmark.core.permissions import FileState, file_state, require_unshared
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed, Engine, ImageInspection, require_signed, should_check_signature
from sifmark.engines.binds import OUTPUT_OPTION, Bind, binds_of
from sifmark.engines.locate import device_options, engine_for, locate_any, require_platform
from sifmark.recipes.labels import BUILD_KEY, VERSION

_HELP = {"-h", "--help"}
_RUN = "run"  # the verb that writes results
IMAGE_VARIABLE = "SIFMARK_IMAGE"  # which entrypoints/system/image.py reads


def read_arguments(engine: Engine, address: str, arguments: Sequence[str]) -> Any | None:
    """Return the options of an image that its arguments set; None for those of another version, or for its help.

    Raises UsageError, with the image's own words, if it would refuse them.
    """
    info = engine.image_info(address)
    if info is None or info.labels.get(VERSION) != __version__ or _HELP & {*arguments}:
        return None
    refusal: type[Exception] = import_shared("contract.statuses").UsageError
    try:
        return import_shared("planning.arguments").parse(arguments)
    except refusal as error:
        said: Any = error
        raise UsageError(said.cause, said.remedy, code=said.code) from None


def with_results_kept(options: Any | None, arguments: Sequence[str], settings: Settings) -> Sequence[str]:
    """Return the arguments of a run that a person watches so that its results are kept, unless they say where."""
    if options is None or options.output is not None or not is_run(options) or not sys.stdout.isatty():
        return arguments
    return *arguments, *kept_in(settings)


def is_run(options: Any) -> bool:
    """Return whether the options of an image ask for runs, which write results."""
    return bool(options.verb == _RUN)


def kept_in(settings: Settings) -> tuple[str, str]:
    """Return the words by which an image keeps its results in the folder of the settings."""
    return OUTPUT_OPTION, f"{_shown(settings.results)}/"


def image_facts(image: ImageInspection, required: bool, keys: Sequence[str]) -> dict[str, str | None]:
    """Return what the result is to say of the image, which only the process that starts it can see.

    Raises CheckFailed if a required signature is not valid.
    """
    signer = None
    if should_check_signature(required, keys, image.signed):
        try:
            signer = image.signer(keys)
            status(f"  signed by {signer}")
        except CheckFailed as reason:
            if required:
                raise
            status(f"  its signature is not trusted here: {reason.cause}")
    facts = {"identity": image.identity(), "digest": image.digest(), "signer": signer}
    return {**facts, "build_key": image.labels.get(BUILD_KEY)}


@dataclass(frozen=True)
class CheckedImage:
    """An image that was looked at: what a result is to say of it, and the state of its file before that."""

    address: str
    engine: Engine
    facts: Mapping[str, str | None]
    state: FileState | None  # None if it is no file

    def require_unchanged(self) -> None:
        """Raise CheckFailed if the file is not the one that was looked at."""
        if self.state is not None and file_state(Path(self.address)) != self.state:
            cause = f"{self.address} was replaced while it was looked at"
            raise CheckFailed(cause, "run it again if that was you", code="image-altered")

    def command(self, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
        """Return the argv of a run, which finds `variables` in its environment."""
        variables = (
            IMAGE_VARIABLE,
            *(name for name in import_shared("system.session").JOB_VARIABLES if name in os.environ),
        )
        options = [*options, *(flag for name in variables for flag in self.engine.env_flags(name))]
        return self.engine.command(self.address, "run", arguments, options)

    @property
    def variables(self) -> dict[str, str]:
        """What a run is to have in its environment."""
        return {IMAGE_VARIABLE: json.dumps(self.facts)}


def find(name: str, settings: Settings) -> tuple[str, Engine]:
    """Return the address and the engine of an image given by name, recipe or path. Raises SifmarkError if none is."""
    engine = engine_for(name, settings)
    return locate_any(name, engine), engine


def run_options(
    engine: Engine, address: str, arguments: Sequence[str], binds: Sequence[Bind] = (), make_folders: bool = True
) -> list[str]:
    """Return the options of a run with these arguments, which also sees what `binds` ask for.

    Raises SifmarkError for an image that cannot run on this host, UsageError for a path that cannot be shown to it.
    """
    require_platform(engine, address)
    shown = engine.bind_flags(binds_of(arguments, make_folders, binds))
    return [*engine.home_flags(), *device_options(engine, address), *shown]


def check_image(address: str, engine: Engine, settings: Settings, signed: bool) -> CheckedImage:
    """Look at an image whose run is to be started. Raises CheckFailed if a required signature is not valid."""
    required = signed or settings.require_signature
    address = engine.pinned(address)
    state = _state_before(address, required)
    return CheckedImage(address, engine, image_facts(engine.inspect(address), required, settings.keys), state)


def printed_command(
    address: str,
    engine: Engine,
    arguments: Sequence[str],
    settings: Settings,
    signed: bool,
    binds: Sequence[Bind] = (),
) -> list[str]:
    """Return the argv of a run for a job's script. Raises SifmarkError as `run_options` and `check_image`."""
    options = run_options(engine, address, arguments, binds, make_folders=False)
    required = signed or settings.require_signature
    _state_before(address, required)
    if required:
        address = engine.pinned(address)
        require_signed(engine.inspect(address), settings.keys)
    return engine.command(address, "run", arguments, options)


def _state_before(address: str, required: bool) -> FileState | None:
    """Return the state of an image's file, which nobody else may change if its signature is required."""
    if not (path := Path(address)).is_file():  # an address of Docker is none
        return None
    if required:
        require_unshared(path, "an image whose signature is required")
    return file_state(path)


def _shown(folder: Path) -> str:
    """Return a folder as people read it: relative to the current folder, if it is inside."""
    here = Path.cwd()
    return os.path.relpath(folder, here) if here in folder.parents else str(folder)
