"""Filling a folder with all that a build takes from elsewhere, for hosts without a network."""

from dataclasses import dataclass
from pathlib import Path

from sifmark.core.console import step
from sifmark.core.errors import SifmarkError
from sifmark.layers.offline import add_base, add_wheels
from sifmark.layers.wheels import fetch_wheels
from sifmark.recipes.plan import Plan


@dataclass(frozen=True)
class FetchedSources:
    """The sizes in bytes of what a recipe's build needs, fetched now or earlier."""

    base: int
    wheels: int


def fetch_sources(plan: Plan, folder: Path) -> FetchedSources:
    """Fetch a base and its wheels into a folder; what is there already is kept. Raises SifmarkError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with step(f"fetch the base {plan.base.pull}") as progress:
            base = add_base(folder, plan.base, progress.detail)
        with fetch_wheels(plan.recipe, plan.target, log=None) as wheels:
            return FetchedSources(base, add_wheels(folder, wheels))
    except OSError as error:
        remedy = "what is whole is kept: run it again when that is mended"
        raise SifmarkError(f"{folder}: {error}", remedy, code="system-error") from error
