"""The recipe.lock command: resolve a recipe's wheels and write their lock."""

from sifmark.core.settings import Settings
from sifmark.layers.wheels import write_lock


def lock(name: str, settings: Settings, python: str, platform: str) -> None:  # noqa: ARG001 - until it is used
    """Write the lock of a recipe for a Python and a platform; empty for its base's and for this machine's."""
    write_lock(name, python or None, platform or None)
