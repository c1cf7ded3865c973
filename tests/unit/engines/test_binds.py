"""Which paths of the host a run gets to see, and under which options."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.refusals import refused

from entrypoints.planning.arguments import parser
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.engines.apptainer.engine import Apptainer
from sifmark.engines.binds import (
    METER_OPTION,
    OUTPUT_OPTION,
    READ_OPTIONS,
    Bind,
    all_binds_of,
    binds_of,
    parse_bind,
    parse_binds,
    with_absolute_paths,
)
from sifmark.engines.docker.engine import Docker, _mount


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
        (["--data", "//usr"], "invalid-option"),
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
    for name in ("/a\\", "/a\n"):  # which --bind takes for another path
        assert flags(None, [Bind(Path(name), writable=True)])[0] == "--mount"  # type: ignore[arg-type]
    both = [Bind(Path("/a"), False, Path("/b")), Bind(Path("/c"), True, Path("/d"))]
    assert flags(None, both) == ["--bind", "/a:/b:ro", "--bind", "/c:/d"]  # type: ignore[arg-type]
    assert flags(None, [Bind(Path("/a"), True, Path("/b,"))])[1].endswith('"destination=/b,"')  # type: ignore[arg-type]


def test_docker_mounts_any_path() -> None:
    assert _mount(Bind(Path("/a:b"))) == 'type=bind,"source=/a:b","target=/a:b",readonly'
    assert _mount(Bind(Path("/a"), writable=True)) == 'type=bind,"source=/a","target=/a"'
    assert _mount(Bind(Path("/a"), False, Path("/b"))) == 'type=bind,"source=/a","target=/b",readonly'


def test_docker_shows_the_current_folder_once(here: Path, site: Settings) -> None:
    binds = binds_of([], asked=[Bind(here.parent)])
    assert binds == [Bind(here.parent), Bind(here, writable=True)]
    docker = Docker(site)
    assert docker.bind_flags(binds) == docker.bind_flags(binds[:1])
    assert any(word.startswith(f"--volume={here}:") for word in docker.home_flags())


# What users ask for


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("/a", Bind(Path("/a"))),
        ("/a/../b/", Bind(Path("/b"))),
        ("/a:/b", Bind(Path("/a"), False, Path("/b"))),
        ("/a:/b:ro", Bind(Path("/a"), False, Path("/b"))),
        ("/a:/b:rw", Bind(Path("/a"), True, Path("/b"))),
        ("/a:/a:rw", Bind(Path("/a"), True)),
        (r"/a\:b:/c\\", Bind(Path("/a:b"), False, Path("/c\\"))),
        (r"/a\b,c d", Bind(Path(r"/a\b,c d"))),
    ],
)
def test_a_bind_is_read_as_it_is_written(text: str, bind: Bind) -> None:
    assert parse_bind(text) == bind


def test_a_relative_path_of_a_bind_is_in_the_current_folder(here: Path) -> None:
    assert parse_bind("a:/b") == Bind(here / "a", False, Path("/b"))


PATHS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).map(
    lambda name: Path("/data") / f"x{name}"
)


@given(PATHS, st.booleans(), st.none() | PATHS)
def test_the_text_of_a_bind_is_read_back(path: Path, writable: bool, name: Path | None) -> None:
    bind = Bind(path, writable, name if name != path else None)
    assert parse_bind(bind.text) == bind


@pytest.mark.parametrize(
    "text",
    ["", ":/b", "/a:", "/a:ro", "/a:b", "/a:/b:", "/a:/b:nosuid", "/a:/b:rw:", "/a:/usr", "/", "//", "/a:/sifmark/run"],
)
def test_what_is_no_bind_is_refused(text: str) -> None:
    with refused(UsageError, "invalid-option"):
        parse_bind(text)


def test_two_binds_are_not_in_one_place() -> None:
    assert parse_binds(["/a", "/b:/c", "/a"]) == (Bind(Path("/a")), Bind(Path("/b"), False, Path("/c")))
    for other in ("/b:/a", "/a:/a:rw"):
        with refused(UsageError, "invalid-option"):
            parse_binds(["/a", other])


def test_what_is_asked_for_comes_before_what_is_in_it_and_has_to_exist(here: Path) -> None:
    data = here.parent / "data"
    asked = [Bind(data / "cat", writable=True), Bind(data)]
    assert binds_of([], asked=asked) == [Bind(data), Bind(data / "cat", writable=True)]
    with refused(UsageError, "file-missing", here.parent / "nowhere"):
        binds_of([], asked=[Bind(here.parent / "nowhere")])


def test_results_are_written_within_what_is_read_only(here: Path) -> None:
    parent, results = here.parent, here.parent / "results"
    results.mkdir()
    assert binds_of(["--output", f"{results}/"], asked=[Bind(parent), Bind(results)]) == [
        Bind(parent),
        Bind(results, writable=True),
        Bind(here, writable=True),
    ]
    (here / "own").mkdir()
    words = ["--output", "own/results/"]
    assert binds_of(words, asked=[Bind(here / "own")])[-1] == Bind(here / "own" / "results", writable=True)
    assert binds_of(words, asked=[Bind(here)]) == []  # it stays writable


def test_data_may_be_named_as_the_run_sees_them(here: Path) -> None:
    asked = [Bind(here.parent / "data", False, Path("/sets")), Bind(here.parent, False, Path("/sets/more"))]
    assert binds_of(["--data", "/sets/cat"], asked=asked) == asked
    assert binds_of(["--data", "/sets/more/data/cat"], asked=asked) == asked
    with refused(UsageError, "file-missing"):
        binds_of(["--data", "/sets/dog"], asked=asked)


def test_a_link_in_the_current_folder_is_followed_out_of_it(here: Path) -> None:
    data = here.parent / "data"
    (here / "sets").mkdir()
    (here / "sets" / "data").symlink_to(data)
    (here / "results").symlink_to(data / "cat")
    (here / "inside").symlink_to(here / "sets")
    assert binds_of(["--data", "sets/data", "--output", "results/"]) == [Bind(data), Bind(data / "cat", writable=True)]
    assert binds_of(["--data", "inside"]) == [Bind(data)]
    assert all_binds_of(["--data", "sets/data"]) == [Bind(here / "sets" / "data")]
    (here / "system").symlink_to("/usr")
    with refused(UsageError, "invalid-option"):
        binds_of(["--data", "system"])
