"""What the command of a run asks its image for, whatever the order of its options."""

import shlex
from functools import cache
from typing import Any

from sifmark.core.paths import import_shared
from sifmark.studies.groups import axis_keys
from sifmark.studies.image_options import usage_error

_OF_DIVISION = ("replicas", "find_max_batch")  # options that follow from keys of runs
_HELP = {"-h", "--help"}  # the parser would print it and exit


@cache
def asked_of(command: str) -> tuple[Any, ...] | None:
    """Return what a command asks the image for, of what the keys of runs say; None if the image does not take it."""
    words = shlex.split(command)
    try:
        options = None if _HELP & set(words) else import_shared("planning.arguments").parse(words)
    except usage_error():
        return None
    names = sorted({*axis_keys(), *_OF_DIVISION} & set(options._fields)) if options else ()
    return tuple(getattr(options, name) for name in names) or None
