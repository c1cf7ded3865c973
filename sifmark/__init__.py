"""sifmark: one benchmark image per AI accelerator, one workload set in each, one JSON answer from all.

>>> import sifmark
>>> results = sifmark.load("results/")

The names in `__all__` are the public API; docs/analyse.md shows it. Each is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from sifmark.core.errors import SifmarkError, UsageError
    from sifmark.library import Comparison, Result, Results, load

# By public name the module that has it.
_PUBLIC = {
    "Comparison": "sifmark.library",
    "Result": "sifmark.library",
    "Results": "sifmark.library",
    "SifmarkError": "sifmark.core.errors",
    "UsageError": "sifmark.core.errors",
    "load": "sifmark.library",
}
__all__ = ["Comparison", "Result", "Results", "SifmarkError", "UsageError", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
