"""What pyproject.toml declares is what the host side imports or runs, no more and no less."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from unit.fakes import FakeEngine
from unit.layering import imports
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
    paths.PACKAGE / "report",
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


def test_a_build_without_its_packages_is_an_error_with_its_remedy(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(site)
    monkeypatch.setitem(sys.modules, "spdx_tools", None)
    with pytest.raises(SifmarkError, match="a build needs spdx-tools") as caught:
        build_one("cpu", BuildOptions(), engine, site)
    assert (caught.value.code, caught.value.remedy) == ("package-missing", "pip install 'sifmark[build]'")
    assert not engine.builds


@pytest.mark.parametrize(("kind", "package"), [("records", "crc32c"), ("speech", "numpy"), ("tokens", "tokenizers")])
def test_a_missing_extra_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(SifmarkError, match=f"--format {kind} needs {package}") as caught:
        prepare_data(str(tmp_path), str(tmp_path / "t"), kind)
    assert caught.value.remedy == "pip install 'sifmark[data]'"


@pytest.mark.parametrize("suffix", ["parquet", "duckdb"])
def test_an_export_without_its_package_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setitem(sys.modules, EXPORT_PACKAGE, None)
    with pytest.raises(SifmarkError, match=f"an export as {suffix} needs {EXPORT_PACKAGE}") as caught:
        export_results([str(tmp_path)], str(tmp_path / f"runs.{suffix}"))
    assert (caught.value.code, caught.value.remedy) == ("package-missing", "pip install 'sifmark[export]'")


def test_a_data_frame_without_pandas_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PANDAS, None)
    with pytest.raises(SifmarkError) as caught:
        sifmark.Results(()).to_frame()
    assert (caught.value.code, caught.value.remedy) == ("package-missing", "pip install 'sifmark[pandas]'")
