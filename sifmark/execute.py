"""Running an image by name, with the flags that this host needs."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sifmark.console import say
from sifmark.engines import engine
from sifmark.errors import SifmarkError
from sifmark.images import find_image
from sifmark.run import CommandError


def run_image(name: str, command_line: Sequence[str]) -> NoReturn:
    """Become the run of an image; what stands after `--` on the command line goes to it, word for word.

    The exit code, the signals and the terminal are the image's. Raises SifmarkError where there is no such image.
    """
    words = list(command_line)
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    argv = engine().command(locate(name), "run", arguments)
    say(f"+ {shlex.join(argv)}")
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
