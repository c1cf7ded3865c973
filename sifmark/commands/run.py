"""The run command: become the run of an image, with the flags that this host needs."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sifmark.core.console import output, status, step
from sifmark.core.permissions import FileState, file_state, require_unshared
from sifmark.core.process import CommandError, attend
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed, Engine, ImageInspection, require_signed, should_check_signature
from sifmark.engines.binds import binds_of, output_of
from sifmark.engines.locate import device_options, engine_for, locate, locate_recipe, require_platform
from sifmark.recipes.labels import BUILD_KEY
from sifmark.recipes.recipe import recipe_names
from sifmark.results.envelope import sign_results
from sifmark.results.load import files_of

IMAGE_VARIABLE = "SIFMARK_IMAGE"  # which entrypoints/system/image.py reads


def run_image(
    name: str, arguments: Sequence[str], settings: Settings, printed: bool = False, signed: bool = False
) -> None:
    """Become the run of an image, which is given the arguments word for word.

    Exit code, signals and terminal are the image's. With `printed` the command is only printed, for a job's script.
    Where the settings or `signed` require a signature, an image without a trusted one is not started. Raises
    SifmarkError.
    """
    engine = engine_for(name, settings)
    address = locate_recipe(name, engine) if name in recipe_names() else locate(name, engine)
    start_image(address, arguments, engine, settings, printed, signed)


def start_image(
    address: str, arguments: Sequence[str], engine: Engine, settings: Settings, printed: bool, signed: bool
) -> None:
    """Become the run of an image at an address of an engine, or print its command. Raises SifmarkError."""
    require_platform(engine, address)
    options = [
        *engine.home_flags(),
        *device_options(engine, address),
        *engine.bind_flags(binds_of(arguments, make_folders=not printed)),
    ]
    required = signed or settings.require_signature
    is_file = Path(address).is_file()  # an address of Docker is none
    if required and is_file:
        require_unshared(Path(address), "an image whose signature is required")
    before = file_state(Path(address)) if is_file else None
    if printed:
        if required:
            require_signed(engine.inspect(address), settings.keys)
        output(shlex.join(engine.command(address, "run", arguments, options)))
        return
    with step(f"look at {Path(address).name}"):
        facts = image_facts(engine.inspect(address), required, settings.keys)
    argv = engine.command(address, "run", arguments, [*options, *engine.env_flags(IMAGE_VARIABLE)])
    status(f"+ {shlex.join(argv)}")
    if is_file and file_state(Path(address)) != before:
        cause = f"{address} was replaced while it was looked at"
        raise CheckFailed(cause, "run it again if that was you", code="image-altered")
    variables = {IMAGE_VARIABLE: json.dumps(facts)}
    results = output_of(arguments)
    if settings.results_key is None or results is None:
        _become(argv, variables)
    _run_and_sign(argv, variables, results, settings.results_key)


def _run_and_sign(argv: list[str], variables: Mapping[str, str], results: Path, key: Path) -> NoReturn:
    """Run an image to its end, sign what it wrote to `results`, and exit as it did. Raises SifmarkError."""
    before = _states(results)
    code = attend(argv, variables)
    for file, state in _states(results).items():
        if before.get(file) != state:
            status(f"signed: {sign_results(Path(file), key)}")
    sys.exit(code)


def _states(results: Path) -> dict[str, FileState]:
    """Return the state of each result file at a path, which need not exist yet."""
    return {file: file_state(Path(file)) for file in files_of([str(results)])} if results.exists() else {}


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


def _become(argv: list[str], variables: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, {**os.environ, **variables})
    except OSError as error:
        cause, remedy = f"cannot start {argv[0]}: {error.strerror}", f"install it: ci/setup/{argv[0]}"
        raise CommandError(cause, remedy, code="program-missing") from error
