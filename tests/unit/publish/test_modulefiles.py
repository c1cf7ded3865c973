"""`registry.pull --modulefile`; what Lmod and Environment Modules make of the files is in tests/images."""

import json
from pathlib import Path

import pytest
from unit.fakes import write_image
from unit.refusals import refused

from sifmark import __version__
from sifmark.builds.records import write_build_record
from sifmark.commands.registry import pull
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings, load_settings
from sifmark.engines.apptainer.engine import Apptainer, describe_image
from sifmark.publish import sif
from sifmark.recipes.names import names_of


@pytest.fixture
def store(site: Settings, tmp_path: Path) -> Path:
    """A folder with the published image of recipe cpu."""
    engine = Apptainer(site)
    path = Path(engine.address("cpu"))
    plan = write_image(path, "cpu", site)
    write_build_record(plan, engine, describe_image(path, engine.inspect(str(path))), site)
    engine.tag_workloads("cpu")
    sif.push("cpu", str(tmp_path / "store"), "1", engine, site)
    return tmp_path / "store"


def test_a_pull_writes_module_files(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMARK_DIST", str(tmp_path / "elsewhere"))
    pull("cpu", load_settings(), str(store), "1", modulefile=str(tmp_path / "modules"), form="json")
    files = [tmp_path / "modules" / "sifmark" / "cpu" / f"{__version__}{suffix}" for suffix in (".lua", "")]
    assert json.loads(capsys.readouterr().out)["modulefiles"] == list(map(str, files))
    lua, tcl = (file.read_text() for file in files)
    assert tcl.startswith("#%Module")
    for name in names_of("cpu"):
        file = tmp_path / "elsewhere" / f"{name}.sif"
        assert file.is_file() and str(file) in lua and f"set-function {name} " in tcl and f"set-alias {name} " in tcl


def test_without_the_option_there_are_none(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pull("cpu", load_settings(), str(store), "1", form="json")
    assert "modulefiles" not in json.loads(capsys.readouterr().out)


def test_images_of_docker_have_none(site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIFMARK_ENGINE", "docker")
    with refused(UsageError, "invalid-option"):
        pull("cpu", load_settings(), "registry.example/x", modulefile=str(tmp_path / "modules"))
