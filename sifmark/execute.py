"""Running an image by name, with the flags that this host needs."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sifmark.console import say, show, step
from sifmark.engines import Engine, Evidence, Refuted, engine, signature_counts
from sifmark.errors import AGAIN, SifmarkError
from sifmark.images import find_image
from sifmark.plan import BUILD_KEY, DEVICES, DOCKER_FLAGS, RECIPE, RUN_FLAGS
from sifmark.recipe import Access, load_recipe, recipe_names
from sifmark.run import CommandError
from sifmark.settings import settings

_TOLD = "SIFMARK_IMAGE"  # the variable that entrypoints/image.py reads


def run_image(name: str, command_line: Sequence[str], printed: bool = False, signed: bool = False) -> None:
    """Become the run of an image; what stands after `--` on the command line goes to it, word for word.

    The exit code, the signals and the terminal are the image's. With `printed` the command is only told, for a job's
    script. Where this site or `signed` asks for a signature, an image without one by a trusted key is not started.
    Raises SifmarkError where there is no such image.
    """
    words = list(command_line)
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    tool, address = locate(name)
    options = [*tool.at_home(), *device_options(tool, address)]
    to_be_signed = signed or settings().require_signature
    if printed:
        if to_be_signed:
            require_signed(tool.evidence(address))
        show(shlex.join(tool.command(address, "run", arguments, options)))
        return
    with step(f"look at {Path(address).name}"):
        told = _told(tool.evidence(address), to_be_signed)
    argv = tool.command(address, "run", arguments, [*options, *tool.handing_in(_TOLD)])
    say(f"+ {shlex.join(argv)}")
    _become(argv, {_TOLD: told})


def require_signed(image: Evidence) -> None:
    """Raise Refuted unless a trusted key has signed all of an image."""
    say(f"  signed by {image.signer(settings().keys)}")


def _told(image: Evidence, to_be_signed: bool) -> str:
    """What the result is to say of the image, and no one but who starts it can see. Raises Refuted."""
    signer = None
    if signature_counts(to_be_signed, image.signed):
        try:
            signer = image.signer(settings().keys)
            say(f"  signed by {signer}")
        except Refuted as reason:
            if to_be_signed:
                raise
            say(f"  its signature is not trusted here: {reason.cause}")
    facts = {"identity": image.identity(), "digest": image.digest(), "signer": signer}
    return json.dumps({**facts, "build_key": image.labels.get(BUILD_KEY)})


def device_options(tool: Engine, address: str) -> list[str]:
    """What lets the image's run reach its device here, by its labels. Raises SifmarkError where they are not ours."""
    seen = tool.look(address)
    labels = seen.labels if seen else {}
    if DEVICES not in labels:
        return []
    flags = {"apptainer": RUN_FLAGS, "docker": DOCKER_FLAGS}
    given = {engine: tuple(labels.get(label, "").split()) for engine, label in flags.items()}
    access = Access(tuple(labels[DEVICES].split(",")), **given)
    if labels.get(RECIPE) in recipe_names():  # what is here says it better than an image that may be anybody's
        access = load_recipe(labels[RECIPE]).access or access
    if not access.harmless():
        raise SifmarkError(f"{address}: its labels ask for {access}", "is it an image that sifmark built?")
    if not access.here():
        say(f"  this host has no {' and no '.join(access.devices)}: {Path(address).name} will find no device")
    return tool.reach(access)


def _become(argv: list[str], variables: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, {**os.environ, **variables})
    except OSError as error:
        raise CommandError(f"cannot start {argv[0]}: {error.strerror}", f"install it: ci/setup/{argv[0]}") from error


def names_file(name: str) -> bool:
    """Whether a user means a file, not an image of this project: by its ending or a slash."""
    return name.endswith(".sif") or "/" in name


def locate(name: str) -> tuple[Engine, str]:
    """The engine and the address of an image given by name, or of a file by its path. Raises SifmarkError for none."""
    if names_file(name):
        path = Path(name).absolute()
        if not path.is_file():
            raise SifmarkError(f"there is no file {Path(name)}", "see what is built: inv list")
        return engine("apptainer"), str(path)
    tool, image = engine(), find_image(name)
    address = tool.address(image.name)
    seen = tool.look(address)
    if seen is None:
        raise SifmarkError(f"{image.name} is not built", f"build it: inv build {image.name} --engine {tool.name}")
    if (recipe := seen.labels.get(RECIPE)) not in (None, image.recipe):
        raise SifmarkError(f"{address} is an image of recipe {recipe}", AGAIN)
    return tool, address
