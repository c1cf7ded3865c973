"""What pyproject.toml declares is what the host side imports or runs, no more and no less."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from unit.fakes import FakeEngine
from unit.layering import imports
from unit.refusals import refused
from unit.test_architecture import files

import sifmark
from sifmark.builds.batch import BuildOptions, build_one
from sifmark.commands.data import prepare as prepare_data
from sifmark.commands.results import export_results
from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.datasets.formats import EXTRA_PACKAGES
from sifmark.layers.installers import PACKAGES as BUILD_PACKAGES
from sifmark.library import PANDAS
from sifmark.report.packages import PACKAGES as REPORT_PACKAGES
from sifmark.results.export import PACKAGE as EXPORT_PACKAGE

PROJECT = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = (paths.ROOT / "ci" / "setup" / "constraints.txt").read_text()
USERS = ("build", "data", "export", "pandas", "report")
OWN = canonicalize_name(PROJECT["name"])
# Only builds, data.prepare, results.export and report import these, and say how to install them.
WITH_EXTRA = (
    paths.PACKAGE / "attestations" / "sbom.py",
    paths.PACKAGE / "datasets",
    paths.PACKAGE / "layers" / "installers.py",
    paths.PACKAGE / "library.py",
    paths.PACKAGE / "results" / "export.py",
    paths.PACKAGE / "report" / "charts" / "render.py",
    paths.PACKAGE / "report" / "paper.py",
)


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def distributions(modules: set[str]) -> set[str]:
    """The distributions that bring modules, by what is installed here; a module of none is itself in the answer."""
    installed = packages_distributions()
    return {canonicalize_name(name) for module in modules for name in installed.get(module, [module])}


def foreign(path: Path) -> set[str]:
    """The modules from elsewhere that a file imports, at its top or later, or runs as `python -m MODULE`."""
    roots = {name.partition(".")[0] for name in imports(path)} - sys.stdlib_module_names
    return (roots | set(run_as_modules(path))) - {"sifmark"}


def run_as_modules(path: Path) -> Iterator[str]:
    """Each word that follows the word `-m` in a list or tuple; one that is computed, as of a module itself, is none."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List | ast.Tuple):
            words = [element.value if isinstance(element, ast.Constant) else None for element in node.elts]
            yield from (str(word) for flag, word in pairwise(words) if flag == "-m" and word)


def used(*, with_extra: bool) -> set[str]:
    host = [*files(paths.PACKAGE), paths.CHECKOUT / "tasks.py"]
    chosen = [path for path in host if any(map(path.is_relative_to, WITH_EXTRA)) is with_extra]
    return distributions(set().union(*map(foreign, chosen)))


def test_all_that_is_imported_or_run_is_declared_and_nothing_else() -> None:
    assert used(with_extra=False) == names(PROJECT["dependencies"])


def test_extras_are_what_only_builds_datasets_exports_and_reports_import() -> None:
    required = names(PROJECT["dependencies"])
    assert used(with_extra=True) - required == set().union(*(names(EXTRAS[each]) for each in USERS))
    of_datasets = {module for modules in EXTRA_PACKAGES.values() for module in modules}
    assert of_datasets == names(EXTRAS["data"])
    assert ({EXPORT_PACKAGE}, {PANDAS}) == (names(EXTRAS["export"]), names(EXTRAS["pandas"]))
    assert set(BUILD_PACKAGES.values()) == names(EXTRAS["build"])
    assert set(REPORT_PACKAGES.values()) == names(EXTRAS["report"])


def test_late_imports_and_modules_that_are_run_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import sys\nfrom sifmark import cli\n_PIP = ('-m', 'pip', '--no-input')\n"
        "def late():\n    import numpy.typing as t\n    run([sys.executable, '-m', 'uv', name])\n"
    )
    assert foreign(path) == {"pip", "uv", "numpy"}


def test_whatever_is_declared_is_pinned_for_developers() -> None:
    pinned = {canonicalize_name(name) for name in re.findall(r"^([^#=\s]+)==", CONSTRAINTS, re.MULTILINE)}
    build = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    declared = names(PROJECT["dependencies"]) | names(build) | set().union(*map(names, EXTRAS.values()))
    assert declared - {OWN} <= pinned


def build(site: Settings) -> object:
    return build_one("cpu", BuildOptions(), FakeEngine(site), site)


def prepare(form: str, site: Settings) -> None:
    prepare_data(str(site.cache.parent), str(site.dist), form)


def export(suffix: str, site: Settings) -> None:
    export_results([str(site.cache.parent)], str(site.dist / f"runs.{suffix}"))


@pytest.mark.parametrize(
    ("extra", "package", "named", "act"),
    [
        ("build", "spdx_tools", "spdx-tools", build),
        *(
            ("data", package, f"--format {form} needs {package}", partial(prepare, form))
            for form, package in (("records", "crc32c"), ("speech", "numpy"), ("tokens", "tokenizers"))
        ),
        *(("export", EXPORT_PACKAGE, suffix, partial(export, suffix)) for suffix in ("parquet", "duckdb")),
        ("pandas", PANDAS, PANDAS, lambda _: sifmark.Results(()).to_frame()),
    ],
)
def test_without_its_extra_an_action_is_an_error_that_names_package_and_remedy(
    site: Settings,
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
    package: str,
    named: str,
    act: Callable[[Settings], object],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with refused(SifmarkError, "package-missing", named) as caught:
        act(site)
    assert caught.value.remedy == f"pip install 'sifmark[{extra}]'"
