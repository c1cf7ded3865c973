"""Lines of a shell by which plain Apptainer starts an image on the node that the shell runs on."""

import shlex
from collections.abc import Iterator

from sifmark.studies.schedulers.jobs import StartedImage


def start_lines(image: StartedImage) -> Iterator[str]:
    """Yield the lines of a script that come before an image is started with `start_options`."""
    if image.binds:
        paths = shlex.quote(",".join(image.binds))
        yield f'export APPTAINER_BIND="${{APPTAINER_BIND:+$APPTAINER_BIND,}}"{paths}'
    if image.device_files:
        flags = shlex.join(image.device_flags) if image.device_flags else '--bind "$file"'
        first = " && break" if image.device_flags else ""
        yield "flags=()"
        yield f'for file in {" ".join(image.device_files)}; do [ ! -e "$file" ] || {{ flags+=({flags}){first}; }}; done'


def facts_line(image: StartedImage) -> str:
    """Return the line by which plain Apptainer's results say of the image what was seen of it."""
    return f"export SIFMARK_IMAGE={shlex.quote(image.facts)}"


def start_options(image: StartedImage) -> list[str]:
    """Return the options of plain Apptainer as a shell takes them: those of the device as `start_lines` found it."""
    options = [shlex.join(image.flags)] if image.flags else []
    return [*options, '"${flags[@]}"'] if image.device_files else options
