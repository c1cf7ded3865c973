"""The run command: become the run of an image, with the flags that this host needs."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

from sifmark.core.process import run_foreground, start_failure
from sifmark.core.settings import Settings
from sifmark.core.terminal import can_draw, output, status, step
from sifmark.engines import Engine
from sifmark.engines.binds import output_of
from sifmark.engines.library import result_states
from sifmark.engines.progress import new_pipe, progress_folder
from sifmark.engines.start import (
    CheckedImage,
    check_image,
    printed_command,
    read_arguments,
    run_options,
    with_results_kept,
)
from sifmark.results.envelope import sign_results


def start_image(
    address: str,
    engine: Engine,
    arguments: Sequence[str],
    settings: Settings,
    printed: bool,
    signed: bool,
    plain: bool = False,
) -> None:
    """Run an image at an address of an engine, which is given the arguments word for word, or print its command.

    Exit code, signals and terminal are the image's. With `printed` the command is only printed, for a job's script;
    with `plain` nothing is drawn on a terminal. Where the settings or `signed` require a signature, an image without a
    trusted one is not started. Options that the image would refuse are refused before it is looked at. On a terminal
    its results go to the folder of the settings, unless the arguments name a place. This process becomes the image,
    unless it has to draw its progress or to sign its results. Raises SifmarkError.
    """
    if printed:
        output(shlex.join(printed_command(address, engine, arguments, settings, signed)))
        return
    arguments = with_results_kept(read_arguments(engine, address, arguments), arguments, settings)
    options = run_options(engine, address, arguments)
    with step(f"look at {Path(address).name}"):
        image = check_image(address, engine, settings, signed)
    argv = image.command(arguments, options)
    status(f"+ {shlex.join(argv)}")
    image.require_unchanged()
    results = output_of(arguments)
    start = partial(run_foreground, argv, image.variables)
    if can_draw() and not plain:
        start = partial(_run_drawn, image, arguments, options)
    elif settings.results_key is None or results is None:
        _become(argv, image.variables)
    if settings.results_key is None or results is None:
        sys.exit(start())
    _run_and_sign(start, results, settings.results_key)


def _run_drawn(image: CheckedImage, arguments: Sequence[str], options: Sequence[str]) -> int:
    """Run an image to its end and draw its progress; without a pipe it writes plain lines. Return its exit code.

    Raises SifmarkError.
    """
    from sifmark.live.run import run_with_view  # here: a run that becomes the image should not wait for it

    with progress_folder() as folder:
        pipe = new_pipe(folder, "run")
        if pipe is None:
            return run_foreground(image.command(arguments, options), image.variables)
        with closing(pipe):
            argv = image.command(arguments, [*options, *pipe.options(image.engine)])
            return run_with_view(argv, image.variables, pipe)


def _run_and_sign(start: Callable[[], int], results: Path, key: Path) -> NoReturn:
    """Run an image to its end, sign what it wrote to `results`, and exit as it did. Raises SifmarkError."""
    before = result_states(results)
    code = start()
    for file, state in result_states(results).items():
        if before.get(file) != state:
            status(f"signed: {sign_results(Path(file), key)}")
    sys.exit(code)


def _become(argv: list[str], variables: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, {**os.environ, **variables})
    except OSError as error:
        raise start_failure(argv[0], error) from error
