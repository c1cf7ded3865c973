"""The code of images that this sifmark ships, as far as hosts share it: what needs the standard library alone."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from sifmark.core import paths

_PACKAGE = "entrypoints"


def import_shared(name: str) -> ModuleType:
    """Return a module of the entrypoints by its dotted name, such as `rules.check`.

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
    return import_module(f"{_PACKAGE}.{name}")
