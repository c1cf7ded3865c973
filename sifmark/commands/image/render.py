"""The image.render command: print an image's build file for the plain tools."""

import sys

from sifmark.build.image import render as build_file
from sifmark.core.settings import Settings


def render(name: str, form: str, settings: Settings) -> None:
    """Print a definition or a Dockerfile, and assemble the layers that it names. Raises SifmarkError."""
    sys.stdout.write(build_file(name, form, settings))
