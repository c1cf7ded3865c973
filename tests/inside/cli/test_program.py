"""The verbs that need no framework, and the surroundings that an image may find itself in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program import IMAGE, ROOT, Program, checked, lay

from entrypoints.contract import cards


def test_list_names_every_workload(program):
    code, output, errors = program.run("--list")
    assert (code, errors) == (0, "")
    assert [line.split()[0] for line in output.splitlines()[1:]] == list(cards.load())
    assert "25,557,032" in output


def test_a_list_does_not_wait_for_modules_that_it_has_no_use_for(program):
    def loaded(*words):
        report = subprocess.run(
            [sys.executable, "-s", "-X", "importtime", *map(str, words)], stderr=subprocess.PIPE, check=True
        ).stderr.decode()
        return {line.rpartition("|")[2].strip() for line in report.splitlines()}

    ours = loaded(program.main, "--list") - loaded("-c", "pass")
    assert {"argparse", "json"} <= ours
    assert not {"hashlib", "importlib.util", "pathlib", "socket", "subprocess", "urllib.parse"} & ours


def test_an_image_knows_the_workloads_of_its_framework_alone(tmp_path):
    program = Program(lay(tmp_path / "image", framework="tensorflow", device="cpu"), tmp_path)
    _, output, _ = program.run("--list")
    listed = [line.split()[0] for line in output.splitlines()[1:]]
    assert {"resnet50", "image_compression"} <= set(listed) < set(cards.load())
    described = json.loads(program.run("resnet50", "--describe", "--json")[1])["configuration"]
    assert (described["framework"], described["device"]) == ("tensorflow", "cpu")
    code, output, errors = program.run("mobilenet_v3_small", "--describe", "--json")
    assert (code, output) == (2, "")
    assert errors.endswith(f"known: {', '.join(listed)}\n")


def test_an_image_without_poptorch_says_so_whatever_else_is_there(tmp_path):
    program = Program(lay(tmp_path / "image", framework="pytorch", device="ipu"), tmp_path)
    code, output, _ = program.run("resnet50", "--smoke")
    assert code == 3
    assert json.loads(output)["status"]["message"].startswith("PopTorch cannot be imported: ")


def test_describe_says_what_would_run(double):
    code, output, _ = double.run("resnet50", "--describe", "--json", "--batch-size", "5", "--seed", "7", fault="exit")
    described = json.loads(output)
    assert code == 0
    assert described["configuration"]["batch_size"] == 5 and described["configuration"]["seed"] == 7
    assert described["configuration"]["device"] == "double"
    assert described["workload"]["identity"] == cards.load()["resnet50"].identity
    assert described["image"] == IMAGE


def test_help_and_version(program, double):
    assert "--batch-size" in program.run("--help")[1]
    assert program.run("--version")[1].startswith("sifmark not run from an image")
    assert double.run("--version")[1].startswith("sifmark 0.1.0 (image double, sha256:")


@pytest.mark.parametrize(
    ("name", "code"), [("resnet50-cpu.sif", 0), ("resnet50-cpu_1.2.sif", 0), ("cpu.sif", 2), ("nosuch-cpu.sif", 2)]
)
def test_the_image_name_says_the_workload(double, name, code):
    assert double.run("--smoke", APPTAINER_NAME=name)[0] == code


def test_an_unknown_workload_is_refused(program):
    code, output, errors = program.run("resnet05")
    assert (code, output) == (2, "")
    assert "[unknown-name]" in errors and "did you mean resnet50 or " in errors


def test_the_verbs_import_no_framework_and_no_jsonschema(double, tmp_path):
    for name in ("torch", "tensorflow", "numpy", "PIL", "jsonschema"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported too early')")
    for arguments in (["--list"], ["--help"], ["--version"], ["resnet50", "--describe", "--json"]):
        assert double.run(*arguments, PYTHONPATH=str(tmp_path))[0] == 0


@pytest.mark.parametrize("path", [None, "", ".", ":/nowhere"])
def test_nothing_in_the_current_folder_is_imported(double, tmp_path, path):
    for name in ("entrypoints", "jsonschema", "json", "select"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    environment = {} if path is None else {"PYTHONPATH": path}
    if path is not None:
        (tmp_path / "json.py").unlink()  # Python's own start-up may want it before we can say no
        (tmp_path / "select.py").unlink()
    assert double.run("resnet50", "--smoke", **environment)[0] == 0


@pytest.mark.parametrize("home", [True, False])
def test_nothing_in_a_home_folder_is_imported(double, tmp_path, home):
    """Gaudi's base names root's home in PYTHONPATH; other folders there stay."""
    (tmp_path / "select.py").write_text("raise SystemExit('imported from the home folder')")
    settings = {"HOME": str(tmp_path)} if home else {}
    code, _, errors = double.run("resnet50", "--smoke", PYTHONPATH=f"{tmp_path}/", **settings)
    assert code == 0 if home else "imported from the home folder" in errors


def test_older_packages_of_the_base_are_not_mixed_with_ours(double_tree, tmp_path):
    """A jsonschema of ours does not work with attrs of 2021; the worker imports what its base has."""
    tree, base = shutil.copytree(str(double_tree), str(tmp_path / "sifmark")), tmp_path / "base"
    site = Path(f"{tree}-site")
    site.mkdir()
    for entry in map(Path, filter(os.path.isdir, sys.path)):
        if entry.name.endswith("-packages"):
            for package in entry.iterdir():
                target = site / package.name
                if not target.exists():
                    target.symlink_to(package)
    base.mkdir()
    for name in ("attr", "attrs", "typing_extensions", "rpds"):
        (base / f"{name}.py").write_text(f"raise SystemExit('the base has an older {name}')")
    output = subprocess.run(
        [sys.executable, "-S", "-s", "-B", f"{tree}/entrypoints/main.py", "resnet50", "--smoke"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(base)},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert checked(output.decode())["status"]["state"] == "completed"


def test_an_image_whose_base_has_another_python_says_so(double_tree, tmp_path):
    tree = Path(shutil.copytree(str(double_tree), str(tmp_path / "sifmark")))
    described = json.loads((tree / "image.json").read_text())
    (tree / "image.json").write_text(json.dumps({**described, "python": "3.2"}))
    code, output, errors = Program(tree, tmp_path).run("--list")
    assert (code, output) == (2, "") and "is built for Python 3.2, and" in errors


def test_the_door_works_bare(double_tree, tmp_path):
    """No home, nearly no environment, and called through a link."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / "door").symlink_to(double_tree / "run")
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    site = os.pathsep.join(entry for entry in sys.path if entry.endswith("-packages"))
    output = subprocess.run(
        [str(tmp_path / "door"), "resnet50", "--smoke"],
        cwd="/",
        env={"PATH": path, "PYTHONPATH": site},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert checked(output.decode())["status"]["state"] == "completed"


def test_nothing_is_written_beside_the_program(double, double_tree):
    before = sorted(double_tree.rglob("*"))
    code, _, _ = double.run("image_compression", "--smoke")
    assert (code, sorted(double_tree.rglob("*"))) == (0, before)


def test_a_data_folder_without_images_is_refused_before_the_run(double, tmp_path):
    code, output, errors = double.run("resnet50", "--data", tmp_path)
    assert (code, output) == (2, "")
    assert "no class folders" in errors and "importing" not in errors


def test_the_in_image_code_parses_as_python_3_8():
    import ast

    for path in (ROOT / "entrypoints").rglob("*.py"):
        ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 8))
