"""The arguments of an image, which its own grammar reads before the image is started."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.errors import UsageError
from sifmark.core.paths import import_shared
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.engines.binds import OUTPUT_OPTION
from sifmark.recipes.labels import VERSION

_HELP = {"-h", "--help"}
_RUN = "run"  # the verb that writes results


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
    if options is None or options.output is not None or options.verb != _RUN or not sys.stdout.isatty():
        return arguments
    return *arguments, OUTPUT_OPTION, f"{_shown(settings.results)}/"


def _shown(folder: Path) -> str:
    """Return a folder as people read it: relative to the current folder, if it is inside."""
    here = Path.cwd()
    return os.path.relpath(folder, here) if here in folder.parents else str(folder)
