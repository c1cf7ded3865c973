"""The fetch-sources verb."""

from collections.abc import Iterable
from pathlib import Path

from sifmark.core.console import output, status, step
from sifmark.core.errors import SifmarkError, UnbuildableError, UsageError
from sifmark.core.files import human_size
from sifmark.core.settings import settings, with_options
from sifmark.layers.offline import add_base, add_wheels
from sifmark.layers.wheels import fetch_wheels
from sifmark.recipes.plan import Plan, make_plan
from sifmark.recipes.recipe import recipe_names


def fetch_sources(folder: str, names: Iterable[str], bases: str | None) -> None:
    """Collect base and wheels of recipes in a folder. What is there already is not fetched again.

    Raises SifmarkError where one of the recipes named cannot be fetched; of all, those that cannot be built are left.
    """
    target, wanted, failed = Path(folder).absolute(), tuple(names), []
    for recipe in wanted or recipe_names():
        try:
            plan = make_plan(recipe, with_options(settings(), bases=bases))
            plan.require_resolved()
            _fetch(plan, target)
        except UsageError:
            raise
        except UnbuildableError as error:
            if wanted:
                raise
            status(f"left out: {error.cause}")
        except SifmarkError as error:  # the others can be had all the same
            status(f"error: {error}")
            failed.append(recipe)
    if failed:
        raise SifmarkError(
            f"not fetched: {', '.join(failed)}", "what is whole is kept: run it again when that is mended"
        )
    output(str(target))


def _fetch(plan: Plan, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    try:
        with step(f"fetch the base {plan.base.pull}") as progress:
            base = add_base(target, plan.base, progress.detail)
        with fetch_wheels(plan.recipe, plan.target, log=None) as wheels:
            added = add_wheels(target, wheels)
    except OSError as error:
        raise SifmarkError(f"{target}: {error}", "what is whole is kept: run it again when that is mended") from error
    status(f"  {plan.recipe.name}: base {human_size(base)}, wheels {human_size(added)}")
