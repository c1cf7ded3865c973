"""Sites and users for the tests of built images."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from images.devtools import Tab, chromium
from images.sites import NOBODY, Command, Refused, Site, call, make_site, set_up

from sifmark.core.settings import load_settings
from sifmark.core.terminal import configure
from sifmark.engines.apptainer.engine import user_flags


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how each recipe fared with each engine, by properties `recipe` and `engine`; and what was refused."""
    if report.when == "call":
        properties = [value for name, value in report.user_properties if name == "refused"]
        _refused.extend(value for value in properties if isinstance(value, tuple))
    said = dict(report.user_properties)
    if "recipe" not in said or (report.when != "call" and report.outcome == "passed"):
        return
    reason = f": {report.longrepr[2]}" if report.skipped and isinstance(report.longrepr, tuple) else ""
    _matrix.setdefault((str(said["recipe"]), str(said["engine"])), []).append(f"{report.outcome}{reason}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (mark := item.get_closest_marker("matrix")) is not None:
        assert isinstance(item, pytest.Function)
        recipe = mark.kwargs.get("recipe") or item.callspec.id
        item.user_properties += [("recipe", recipe), ("engine", mark.args[0])]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Recipe by engine: the worst that any of its tests said; then attacks and faults with the message of each."""
    if _matrix:
        terminalreporter.section("recipe x engine, each with a smoke workload")
    for (recipe, engine), outcomes in sorted(_matrix.items()):
        worst = min(outcomes, key=lambda outcome: ("failed", "skipped", "passed").index(outcome.split(":")[0]))
        terminalreporter.line(f"{recipe:<12}{engine:<12}{worst}")
    if _refused:
        terminalreporter.section("attacks and faults, each refused")
    for what, message in sorted(_refused):
        terminalreporter.line(f"{what:<40}{message}")


_matrix: dict[tuple[str, str], list[str]] = {}
_refused: list[tuple[str, str]] = []


@pytest.fixture(scope="session")
def consumers() -> Path:
    """The folder with programs that read what we write."""
    return Path(set_up("consumers", "Lmod or Prometheus"))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser for all tests of a module."""
    with chromium(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def terminal() -> None:
    """The library reports to the terminal, as it does below a command line."""
    configure()


@pytest.fixture(scope="session")
def gate(request: pytest.FixtureRequest) -> bool:
    """Whether what is marked `full` is left out."""
    return "not full" in request.config.getoption("markexpr")


@pytest.fixture
def refused(record_property: Callable[[str, object], None]) -> Refused:
    """Put an attack or a fault, and the message that refused it, into the table at the end."""

    def note(what: str, output: str) -> None:
        lines = [line for line in output.splitlines() if line.strip() and "remedy" not in line]
        record_property("refused", (what, lines[-1].strip().removeprefix("error: ")[:150]))

    return note


@pytest.fixture
def site() -> Iterator[Site]:
    """A site without images."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark-test-"))
    yield make_site(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cold(site: Site) -> Site:
    """A site whose cache shares wheels and layers with the others, but has neither base nor stages."""
    cache = site.folder / "cache"
    bare = site.with_cache(cache)
    for name in ("wheels", "layers"):
        (load_settings().cache / name).mkdir(exist_ok=True)  # where nothing was built yet
        (cache / name).symlink_to(load_settings().cache / name)
    return bare


@pytest.fixture(scope="session")
def built() -> Iterator[Site]:
    """A site whose images are built, shared by tests that only read them."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark test "))  # with blanks, as users' folders have them
    shared = make_site(folder)
    shared.build()
    yield shared
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def image(built: Site) -> Path:
    return built.dist / "resnet50-cpu.sif"


@pytest.fixture
def apptainer() -> Command:
    """`apptainer VERB ...` for whoever runs the tests."""

    def run(verb: str, *words: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        flags = user_flags() if verb in ("run", "exec", "test") else ()
        return call(["apptainer", "--quiet", verb, *flags, *map(str, words)], check=check, **options)

    return run


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that belongs to the ordinary user."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark-user-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def as_user(home: Path) -> Command:
    """Run a command as an ordinary user, whose home and working folder is `home`."""
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}

    def run(*argv: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(home), "USER": "nobody", **options.pop("environment", {})}
        return call(list(map(str, argv)), check=check, cwd=home, env=environment, **identity, **options)

    return run
