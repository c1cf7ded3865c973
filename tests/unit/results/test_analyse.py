"""docs/analyse.md: what it shows works, here and from an installed wheel in an empty environment."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import documentation
import pytest
from unit.studies.histories import nights, write_nights

import sifmark
from sifmark.core import paths

PAGE = documentation.ROOT / "docs" / "analyse.md"
BLOCKS = ["\n".join(block.lines) for block in documentation.blocks(PAGE) if block.language == "python"]
EXPORTS = [line.partition(" ")[2] for line in documentation.commands(PAGE)]
# What works without pandas: no plot and no frame.
BARE = "\n".join(
    (
        "import sifmark",
        "results = sifmark.load('results/')",
        "table = results.compare(baseline={'site': 'alpha'}, metrics=['throughput'])",
        "print(table)",
        "assert table.gate(minimum=0.5).passed and len(list(results.rows('points'))) > 6",
        "try:",
        "    results.to_frame()",
        "except sifmark.SifmarkError as error:",
        "    print(error.remedy)",
    )
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the results that the page speaks of."""
    for site, speed in (("alpha", 1), ("beta", 2)):
        write_nights(tmp_path / "results" / site, [100 * speed * each / 100 for each in nights(1, 3)], site=site)
    return tmp_path


def python(interpreter: str | Path, code: str, folder: Path, **variables: str) -> str:
    """What a program prints in a folder."""
    done = subprocess.run(
        [str(interpreter), "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MPLBACKEND": "svg", **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_works(folder: Path) -> None:
    export = "\n".join(f"main({line.split()!r})" for line in EXPORTS)
    program = [*BLOCKS[:-1], f"from sifmark.commands.command_line import main\n{export}", BLOCKS[-1]]
    out = python(sys.executable, "\n".join(program), folder, PYTHONPATH=str(paths.CHECKOUT))
    assert "2.0" in out and "alpha" in out
    assert (folder / "throughput.svg").stat().st_size and (folder / "points.duckdb").is_file()


def test_results_make_a_report(folder: Path) -> None:
    page = sifmark.load(folder / "results").report(folder / "report", title="Nights")
    assert page.is_file() and "Nights" in page.read_text() and (page.parent / "runs.csv").is_file()


def test_a_report_of_some_results_has_those_alone(folder: Path) -> None:
    files = sorted((folder / "results").rglob("*.json"))
    (folder / "all.jsonl").write_text("".join(json.dumps(json.loads(file.read_text())) + "\n" for file in files))
    some = sifmark.load(folder / "all.jsonl").where(site="alpha")
    page = some.report(folder / "report")
    assert len(some) == 3 and "beta" not in (page.parent / "runs.csv").read_text()


def test_the_package_is_imported_at_once_and_nothing_heavy_with_it() -> None:
    code = "import sys, sifmark; print([name for name in sys.modules if name.startswith('sifmark')], len(sys.modules))"
    assert python(sys.executable, code, paths.CHECKOUT).startswith("['sifmark'] ")


@pytest.mark.full
def test_the_library_works_from_a_wheel_in_an_empty_environment(folder: Path, tmp_path: Path) -> None:
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels, place = tmp_path / "wheels", tmp_path / "empty"
    subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", wheels, paths.CHECKOUT], check=True)
    (wheel,) = wheels.glob("*.whl")
    venv.create(place, with_pip=True)
    interpreter = place / "bin" / "python"
    subprocess.run([interpreter, *pip, "install", str(wheel)], check=True)
    bare = python(interpreter, BARE, folder, PYTHONPATH="")
    assert "faster" in bare and "pip install 'sifmark[pandas]'" in bare
    subprocess.run([interpreter, *pip, "install", f"{wheel}[pandas]", "matplotlib"], check=True)
    python(interpreter, "\n".join(BLOCKS[:3]), folder, PYTHONPATH="")
    assert (folder / "throughput.svg").stat().st_size


def test_several_paths_are_loaded_as_one_list_and_compared_from_files(folder: Path) -> None:
    paths = [folder / "results" / "alpha", folder / "results" / "beta"]
    results = sifmark.load(paths)
    assert len(results) == len(sifmark.load(*paths)) == 6
    by_value, by_path = results.compare(baseline={"site": "alpha"}), results.compare(baseline=sifmark.load(paths[0]))
    assert sifmark.compare(*paths, baseline={"site": "alpha"}).rows() == by_value.rows()
    assert sifmark.compare(*paths, baseline=paths[0]).rows() == by_path.rows()


def test_wrong_names_are_errors_with_a_code(folder: Path) -> None:
    results = sifmark.load(str(folder / "results"))
    wrong: list[Callable[[], object]] = [
        lambda: results.where(precison="fp32"),
        lambda: list(results.rows("run")),
        lambda: results.export(folder / "runs.csv", table="run"),
        lambda: results.export(folder / "runs.xlsx"),
        lambda: results.compare(metrics="throughputs"),
        lambda: results.compare(by="precison"),
        lambda: results.compare(baseline={"sight": "alpha"}),
    ]
    for call in wrong:
        with pytest.raises(sifmark.UsageError) as error:
            call()
        assert error.value.code == "unknown-name"
    for baseline in ("site=alpha", {"site": "alpha", "precision": "fp32"}):
        with pytest.raises(sifmark.UsageError) as error:
            results.compare(baseline=baseline)  # type: ignore[arg-type]
        assert error.value.code == "invalid-option"


def test_one_name_is_as_good_as_a_list_and_reprs_are_a_line(folder: Path) -> None:
    results = sifmark.load(str(folder / "results"))
    table = results.compare(metrics="throughput", by="precision")
    assert table.rows() == results.compare(metrics=["throughput"], by=["precision"]).rows()
    study = sifmark.Study.load("quick", variant="small")
    for each in (results, results[0], results[:2], table, study):
        assert len(repr(each)) < 250
        assert "\n" not in repr(each)
