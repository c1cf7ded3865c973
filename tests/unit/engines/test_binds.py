"""Which paths of the host a run gets to see, and under which options."""

from pathlib import Path

import pytest
from unit.refusals import refused

from entrypoints.planning.arguments import parser
from sifmark.core.errors import UsageError
from sifmark.engines.apptainer.engine import Apptainer
from sifmark.engines.binds import METER_OPTION, OUTPUT_OPTION, READ_OPTIONS, Bind, binds_of, with_absolute_paths
from sifmark.engines.docker.engine import _mount


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, beside others."""
    folder = tmp_path / "here"
    folder.mkdir()
    (tmp_path / "data" / "cat").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_every_option_of_an_image_that_names_a_path_is_covered() -> None:
    named = {
        string
        for action in parser()._actions
        for string in action.option_strings
        if (action.metavar in ("PATH", "PLACE") or "PLACE" in str(action.metavar))
    }
    assert named == {*READ_OPTIONS, OUTPUT_OPTION, METER_OPTION}


@pytest.mark.parametrize("form", [["--data", "../data"], ["--data=../data"]])
@pytest.mark.parametrize("more", [[], ["--steps", "3"]])
def test_data_are_shown_for_reading(here: Path, form: list[str], more: list[str]) -> None:
    assert binds_of(["resnet50", *more, *form, *more]) == [Bind(here.parent / "data")]


def test_what_lies_below_the_current_folder_is_seen_anyway(here: Path) -> None:
    (here / "data").mkdir()
    assert binds_of(["--data", "data", "--output", "results/"]) == []
    assert (here / "results").is_dir()


def test_synthetic_data_and_other_options_name_no_path(here: Path) -> None:
    assert binds_of(["--data", "synthetic", "--site", "/etc", "--meter", "nvml:0", "--meter", "rapl", "--data"]) == []


def test_results_are_written_to_a_folder_that_is_made(here: Path) -> None:
    folder = here.parent / "new" / "results"
    assert binds_of(["--output", f"{folder}/"]) == [Bind(folder, writable=True)]
    assert folder.is_dir()
    assert binds_of(["--output", f"{folder}/more/"], make_folders=False) == [Bind(folder / "more", writable=True)]
    assert not (folder / "more").exists()
    assert binds_of(["--output", f"{folder}/one.json"]) == [Bind(folder, writable=True)]


def test_a_trace_and_a_kernel_folder_are_shown(here: Path) -> None:
    trace = here.parent / "trace.json"
    trace.touch()
    assert binds_of(["--meter", f"replay:{trace}"]) == [Bind(trace)]
    assert binds_of([f"--meter=rapl:{here.parent}/data"]) == [Bind(here.parent / "data")]


def test_paths_that_are_read_become_absolute_in_either_form(here: Path) -> None:
    words = ("matmul", "--data", "a b", "--evaluation-data=../x", "--meter", "replay:t.json", "--output", "r", "--data")
    expected = ("--data", f"{here}/a b", f"--evaluation-data={here.parent}/x", "--meter", f"replay:{here}/t.json")
    assert with_absolute_paths(words) == ("matmul", *expected, "--output", "r", "--data")
    same = ("matmul", "--data", "synthetic", "--meter=nvml", "--meter", "replay", "--measured-peak=/p", "--steps", "4")
    assert with_absolute_paths(same) == same


def test_links_out_of_the_data_are_followed(here: Path) -> None:
    data, elsewhere = here.parent / "data", here.parent / "elsewhere"
    (elsewhere / "dog").mkdir(parents=True)
    (elsewhere / "a.jpg").touch()
    (data / "dog").symlink_to(elsewhere / "dog")
    (data / "cat" / "a.jpg").symlink_to(elsewhere / "a.jpg")
    (data / "inside").symlink_to(data / "cat")
    (data / "broken").symlink_to("nowhere")
    link = here.parent / "link"
    link.symlink_to(data)
    assert binds_of(["--data", "../link"]) == [Bind(link), Bind(elsewhere)]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--data", "/nowhere"], "file-missing"),
        (["--data", "/usr"], "invalid-option"),
        (["--output", "/nowhere/x.json"], "file-missing"),
        (["--output", "/opt/x.json"], "invalid-option"),
        (["--output", "/proc/x/"], "system-error"),
        (["--meter", "replay:/nowhere"], "file-missing"),
    ],
)
def test_a_path_that_cannot_be_shown_is_an_error(here: Path, words: list[str], code: str) -> None:
    with refused(UsageError, code):
        binds_of(words)


def test_apptainer_binds_any_path() -> None:
    flags = Apptainer.bind_flags
    assert flags(None, [Bind(Path("/a b"))]) == ["--bind", "/a b:/a b:ro"]  # type: ignore[arg-type]
    assert flags(None, [Bind(Path("/a"), writable=True)]) == ["--bind", "/a"]  # type: ignore[arg-type]
    words = flags(None, [Bind(Path('/a:b,"c'))])  # type: ignore[arg-type]
    assert words == ["--mount", 'type=bind,"source=/a:b,""c","destination=/a:b,""c",ro']


def test_docker_mounts_any_path() -> None:
    assert _mount(Bind(Path("/a:b"))) == 'type=bind,"source=/a:b","target=/a:b",readonly'
    assert _mount(Bind(Path("/a"), writable=True)) == 'type=bind,"source=/a","target=/a"'
