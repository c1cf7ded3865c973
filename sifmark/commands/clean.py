"""The clean command: remove what can be made again."""

import sys
from itertools import chain

from sifmark.build.clean import find_products, remove_products, remove_stages
from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.console import ask, output, status
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.engines import open_engine


def clean(settings: Settings, cache: bool, dry_run: bool = False, confirmed: bool = False, form: str = TABLE) -> None:
    """Remove images of the engine in use, logs and assembled layers; with `cache` also wheels and converted bases.

    Signed and pulled images cannot be made again from a recipe alone: they are removed only if that is `confirmed`, on
    the command line or by an answer on a terminal. Raises UsageError if it is not.
    """
    engine = open_engine(settings)
    products = find_products(engine, settings)
    if dry_run:
        names = [name for product in products for name in product.names]
        answer(form, names, Table(("removed",), [(name,) for name in names]), lambda: _show(names))
        return
    precious = [name for product in products if product.origin for name in product.names[:1]]
    if precious and not confirmed:
        _confirm(precious)
    removed = []
    for name in chain(remove_products(engine, settings), remove_stages(engine, settings) if cache else ()):
        removed.append(name)
        status(f"removed {name}")
    answer(form, removed, Table(("removed",), [(name,) for name in removed]), lambda: None)


def _show(names: list[str]) -> None:
    output("\n".join(names) or "nothing to remove")


def _confirm(names: list[str]) -> None:
    listed = "\n  ".join(names)
    if sys.stdin.isatty() and sys.stderr.isatty() and ask(f"Remove these, which were signed or pulled?\n  {listed}\n"):
        return
    cause = f"signed or pulled images would be removed:\n  {listed}"
    remedy = "keep copies, then: sifmark clean --yes"
    raise UsageError(cause, remedy, code="confirmation-missing")
