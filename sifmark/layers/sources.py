"""Filling a sources folder with what a build needs, for hosts without a network."""

from dataclasses import dataclass
from pathlib import Path

from sifmark.core.console import step
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.layers import installers
from sifmark.layers.offline import add_base, add_wheels
from sifmark.layers.wheels import fetch_wheels
from sifmark.recipes.plan import Plan


@dataclass(frozen=True)
class FetchedSources:
    """The sizes in bytes of what a recipe's build needs, fetched now or earlier."""

    base: int
    wheels: int


def fetch_sources(plan: Plan, folder: Path, settings: Settings) -> FetchedSources:
    """Fetch a base and its wheels into a folder, except for files that exist there. Raises SifmarkError."""
    installers.require_packages("fetching wheels")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with step(f"fetch the base {plan.base.pull}") as progress:
            base = add_base(folder, plan.base, progress.detail)
        with fetch_wheels(plan.recipe, plan.target, settings, log=None) as wheels:
            return FetchedSources(base, add_wheels(folder, wheels))
    except OSError as error:
        remedy = "complete files are kept: run it again after the repair"
        raise SifmarkError(f"{folder}: {error}", remedy, code="system-error") from error
