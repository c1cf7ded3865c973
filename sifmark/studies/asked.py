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
def asked_of(command: str, workload: str = "") -> tuple[Any, ...] | None:
    """Return what a command asks the image for, of what the keys of runs say; None if the image does not take it.

    `workload` is the one of a command that names none: the image's name may have said it.
    """
    words = shlex.split(command)
    try:
        options = None if _HELP & set(words) else import_shared("planning.arguments").parse(words)
    except usage_error():
        return None
    if options is None:
        return None
    named = options._replace(workload=options.workload or workload or None)
    return tuple(getattr(named, name) for name in sorted({*axis_keys(), *_OF_DIVISION} & set(named._fields)))
