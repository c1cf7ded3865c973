"""The rules of results, which hosts and images share: they are part of the entrypoints that this sifmark ships."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from sifmark.core import paths

Document = dict[str, Any]
Violations = Callable[[Document, str | None], Sequence[str]]
_PACKAGE = "entrypoints"


@cache
def violations_of() -> Violations:
    """Return the function that returns what in a document that fits its schema contradicts itself or its card.

    A wheel has the entrypoints as data, outside of Python's module path.
    """
    if _PACKAGE not in sys.modules:
        folder = paths.ENTRYPOINTS
        spec = spec_from_file_location(_PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)])
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} is no package")
        module = module_from_spec(spec)
        sys.modules[_PACKAGE] = module
        spec.loader.exec_module(module)
    violations: Violations = import_module(f"{_PACKAGE}.rules.check").violations
    return violations
