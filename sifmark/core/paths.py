"""Paths of the project's data, beside the package in a clone, inside it in a wheel; and the code among them."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent
IS_CHECKOUT = (CHECKOUT / "recipes").is_dir() and (CHECKOUT / "pyproject.toml").is_file()
ROOT = CHECKOUT if IS_CHECKOUT else PACKAGE / "bundle"

RECIPES = ROOT / "recipes"
LOCKS = RECIPES / "locks"
HARDWARE = RECIPES / "hardware"
SCHEMAS = ROOT / "schemas"
STUDIES = ROOT / "studies"
PUBLISHED = STUDIES / "published"
ENTRYPOINTS = ROOT / "entrypoints"
CARDS = ENTRYPOINTS / "workloads"
GOLDEN = CHECKOUT / "tests" / "golden"
_CODE = "entrypoints"


def import_shared(name: str) -> ModuleType:
    """Return a module that hosts and images share, by its dotted name in the entrypoints, such as `rules.check`.

    A wheel has the entrypoints as data, outside of Python's module path.
    """
    if _CODE not in sys.modules:
        start, places = ENTRYPOINTS / "__init__.py", [str(ENTRYPOINTS)]
        spec = spec_from_file_location(_CODE, start, submodule_search_locations=places)
        if spec is None or spec.loader is None:
            raise ImportError(f"{ENTRYPOINTS} is no package")
        module = module_from_spec(spec)
        sys.modules[_CODE] = module
        spec.loader.exec_module(module)
    return import_module(f"{_CODE}.{name}")
