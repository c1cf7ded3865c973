"""The workload of an invocation."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from entrypoints.contract import cards
from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError, unknown_name
from entrypoints.planning.arguments import Options
from entrypoints.system import image

APP_VARIABLES = ("APPTAINER_APPNAME", "SINGULARITY_APPNAME", "SCIF_APPNAME")
IMAGE_VARIABLES = ("APPTAINER_NAME", "SINGULARITY_NAME")


def runnable() -> dict[str, Card]:
    """Return the cards that this image's framework can run, by name."""
    return cards.load_for(image.target(image.read())[0])


def find(options: Options) -> tuple[list[Card], Mapping[str, Any] | None]:
    """Return the cards that the options select, and this image's description. Raises UsageError."""
    runnable_cards, built = runnable(), image.read()
    if not options.all:
        return [runnable_cards[choose(options.workload, os.environ, list(runnable_cards))]], built
    if options.workload:
        raise UsageError(f"--all and {options.workload}", "name a workload, or ask for all of them")
    able = [card for card in runnable_cards.values() if options.task in (None, *card.tasks)]
    if not able:
        raise UsageError(f"--all: no workload can do {options.task}", "`--list` shows the tasks of each")
    return able, built


def choose(explicit: str | None, environ: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the name of the selected workload.

    Raises UsageError, listing the names, if there is none or an unknown one.
    """
    name = named(explicit, environ, names)
    if name is None:
        raise UsageError("which workload?", f"name one as the first argument: {', '.join(names)}")
    return name


def named(explicit: str | None, environ: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return the argument, else the SCIF app, else the workload in the image's name; None if there is none.

    Raises UsageError if the argument or app is unknown.
    """
    asked = explicit or _first(environ, APP_VARIABLES)
    if asked:
        return _require_name(asked, names)
    name = workload_of_image(_first(environ, IMAGE_VARIABLES))
    return name if name in names else None


def workload_of_image(file_name: str) -> str | None:
    """Return the text before the first dash of `<workload>-<recipe>[_<tag>][.sif]`; None without a dash.

    The rest is ignored: a pull appends its tag there, and the image knows its own recipe.
    """
    before, dash, _ = file_name.partition("-")
    return before if dash and before else None


def _first(environ: Mapping[str, str], variables: Sequence[str]) -> str:
    return next((environ[name] for name in variables if environ.get(name)), "")


def _require_name(name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    raise unknown_name("workload", name, names)
