"""Where the document goes, and every way in which it cannot."""

from __future__ import annotations

import json
import os
import stat

import pytest
from program import checked

RUN = ("resnet50", "--smoke")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent/result.json", "there is no folder"),
        ("folder", "no regular file"),
        ("pipe", "no regular file"),
        ("", "no regular file"),
        ("file/result.json", "there is no folder"),
    ],
)
def test_a_bad_place_is_refused_before_the_run(double, tmp_path, name, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(str(tmp_path / "pipe"))
    code, output, errors = double.run(*RUN, "--output", str(tmp_path / name) if name else "")
    assert (code, output) == (2, "")
    assert said in errors and "importing" not in errors


def test_a_place_that_cannot_be_written_is_refused_before_the_run(double):
    code, output, errors = double.run(*RUN, "--output", "/proc/result.json")  # not even by root
    assert (code, output) == (2, "")
    assert "/proc" in errors and "importing" not in errors


def test_the_file_holds_the_document_and_standard_output_nothing(double, tmp_path):
    target = tmp_path / "result.json"
    target.write_text("an older one")
    assert double.run(*RUN, "--output", str(target))[:2] == (0, "")
    assert checked(target.read_text("utf-8"))["status"]["state"] == "completed"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) & 0o111 == 0


def test_a_failed_run_writes_its_file_too(double, tmp_path):
    target = tmp_path / "result.json"
    assert double.run(*RUN, "--output", str(target), fault="exit")[:2] == (4, "")
    assert checked(target.read_text("utf-8"))["status"]["state"] == "crashed"


def test_a_link_stays_a_link(double, tmp_path):
    (tmp_path / "link.json").symlink_to("real.json")
    double.run(*RUN, "--output", str(tmp_path / "link.json"))
    assert (tmp_path / "link.json").is_symlink()
    checked((tmp_path / "real.json").read_text("utf-8"))


def test_a_place_that_fails_later_does_not_lose_the_document(double, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    process = double.start("resnet50", "--steps", "300", "--output", str(folder / "result.json"))
    for line in process.stderr:
        if "measuring" in line:
            folder.rmdir()
            break
    output, errors = process.communicate()
    assert process.returncode == 6 and output == ""
    assert "could not be written" in errors
    assert checked(errors.splitlines()[-1])["status"]["state"] == "completed"


def test_nobody_reading_standard_output_is_told_too(double):
    process = double.start(*RUN)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() == 6
    assert "could not be written" in errors and "Traceback" not in errors


def test_nobody_reading_standard_error_does_not_stop_a_run(double):
    process = double.start("resnet50", "--steps", "30")
    process.stderr.close()
    output = process.stdout.read()
    assert process.wait() == 0
    assert checked(output)["status"]["state"] == "completed"


def test_a_document_that_is_not_valid_is_our_defect(double, double_tree):
    schema = double_tree / "schemas" / "result-1.0.json"
    original = schema.read_text("utf-8")
    schema.write_text(json.dumps({"required": ["something_else"]}))
    try:
        code, output, errors = double.run(*RUN)
    finally:
        schema.write_text(original)
    assert (code, output) == (6, "")
    assert "'something_else' is a required property" in errors


def test_without_jsonschema_nothing_runs(double, tmp_path):
    blocked = tmp_path / "blocked" / "jsonschema"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('no jsonschema here')")
    code, output, errors = double.run(*RUN, PYTHONPATH=str(blocked.parent))
    assert (code, output) == (2, "")
    assert "Install jsonschema" in errors and "importing" not in errors
