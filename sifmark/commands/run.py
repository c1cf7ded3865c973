"""Running an image by name, with the flags that this host needs."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sifmark.commands.arguments import after_dashes
from sifmark.core.console import output, status, step
from sifmark.core.process import CommandError
from sifmark.core.settings import settings
from sifmark.engines import CheckFailed, ImageInspection, should_check_signature
from sifmark.engines.locate import device_options, locate, require_signed
from sifmark.recipes.plan import BUILD_KEY

_TOLD = "SIFMARK_IMAGE"  # the variable that entrypoints/system/image.py reads


def run_image(name: str, command_line: Sequence[str], printed: bool = False, signed: bool = False) -> None:
    """Become the run of an image; what stands after `--` on the command line goes to it, word for word.

    The exit code, the signals and the terminal are the image's. With `printed` the command is only told, for a job's
    script. Where this site or `signed` asks for a signature, an image without one by a trusted key is not started.
    Raises SifmarkError where there is no such image.
    """
    arguments = after_dashes(command_line)
    tool, address = locate(name)
    options = [*tool.home_flags(), *device_options(tool, address)]
    to_be_signed = signed or settings().require_signature
    if printed:
        if to_be_signed:
            require_signed(tool.inspect(address))
        output(shlex.join(tool.command(address, "run", arguments, options)))
        return
    with step(f"look at {Path(address).name}"):
        told = _told(tool.inspect(address), to_be_signed)
    argv = tool.command(address, "run", arguments, [*options, *tool.env_flags(_TOLD)])
    status(f"+ {shlex.join(argv)}")
    _become(argv, {_TOLD: told})


def _told(image: ImageInspection, to_be_signed: bool) -> str:
    """What the result is to say of the image, and no one but who starts it can see. Raises Refuted."""
    signer = None
    if should_check_signature(to_be_signed, image.signed):
        try:
            signer = image.signer(settings().keys)
            status(f"  signed by {signer}")
        except CheckFailed as reason:
            if to_be_signed:
                raise
            status(f"  its signature is not trusted here: {reason.cause}")
    facts = {"identity": image.identity(), "digest": image.digest(), "signer": signer}
    return json.dumps({**facts, "build_key": image.labels.get(BUILD_KEY)})


def _become(argv: list[str], variables: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, {**os.environ, **variables})
    except OSError as error:
        raise CommandError(f"cannot start {argv[0]}: {error.strerror}", f"install it: ci/setup/{argv[0]}") from error
