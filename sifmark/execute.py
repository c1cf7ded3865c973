"""Running an image by name, with the flags that this host needs."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sifmark.console import say, show
from sifmark.engines import engine
from sifmark.errors import SifmarkError
from sifmark.images import find_image
from sifmark.plan import DEVICES, RUN_FLAGS
from sifmark.recipe import Access
from sifmark.run import CommandError
from sifmark.sif import read_sif


def run_image(name: str, command_line: Sequence[str], printed: bool = False) -> None:
    """Become the run of an image; what stands after `--` on the command line goes to it, word for word.

    The exit code, the signals and the terminal are the image's. With `printed` the command is only told, for a job's
    script. Raises SifmarkError where there is no such image.
    """
    words = list(command_line)
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    path = locate(name)
    argv = engine().command(path, "run", arguments, device_options(path))
    if printed:
        show(shlex.join(argv))
        return
    say(f"+ {shlex.join(argv)}")
    _become(argv)


def device_options(image: Path) -> list[str]:
    """What lets the image's run reach its device here, by its labels. Raises SifmarkError where they are not ours."""
    labels = read_sif(image).labels()
    if DEVICES not in labels:
        return []
    access = Access(tuple(labels[DEVICES].split(",")), tuple(labels.get(RUN_FLAGS, "").split()))
    if not access.harmless():
        raise SifmarkError(f"{image}: its labels ask for {access}", "is it an image that sifmark built?")
    if not access.here():
        say(f"  this host has no {' and no '.join(access.devices)}: {image.name} will find no device")
    return engine().reach(access)


def _become(argv: list[str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise CommandError(f"cannot start {argv[0]}: {error.strerror}", "install it: ci/setup/apptainer") from error


def names_file(name: str) -> bool:
    """Whether a user means a file, not an image of this project: by its ending or a slash."""
    return name.endswith(".sif") or "/" in name


def locate(name: str) -> Path:
    """The file of an image given by name or by path. Raises SifmarkError where it is not built."""
    path = Path(name)
    if names_file(name):
        if not path.is_file():
            raise SifmarkError(f"there is no file {path}", "see what is built: inv list")
        return path.absolute()
    image = find_image(name)
    if not image.path.is_file():
        raise SifmarkError(f"{image.name} is not built", f"build it: inv build {image.name}")
    return image.path
