"""The built image, used as its users do."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from images.sites import Command, Site, answer, assert_all_answered
from processes import wait_for

from sifmark.engines.apptainer.engine import user_flags
from sifmark.recipes.names import cards

SMALL = ("--steps", "3", "--warmup-steps", "1", "--batch-size", "2")


@pytest.fixture
def quick(built: Site) -> Path:
    """The image of a workload whose runs and check take seconds."""
    return built.dist / "image_compression-cpu.sif"


def test_training_answers_with_valid_json_alone(apptainer: Command, image: Path) -> None:
    result = answer(apptainer("run", image, *SMALL))
    assert result["status"]["state"] == "completed"
    assert result["workload"]["parameters"] == 25_557_032
    assert result["metrics"]["throughput"]["value"] > 0
    assert result["provenance"]["image"]["recipe"] == "cpu"
    assert result["provenance"]["stand_in"] is True
    assert result["provenance"]["software"]["framework_version"] == "2.13.0+cpu"
    assert result["numerics"]["state"] == "passed"


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        pytest.param("resnet50", ("--task", "inference"), marks=pytest.mark.full),
        ("image_compression", ("--precision", "bf16")),
    ],
)
def test_inference_and_bf16(apptainer: Command, built: Site, workload: str, options: tuple[str, ...]) -> None:
    result = answer(apptainer("run", built.dist / f"{workload}-cpu.sif", *SMALL, *options))
    assert result["status"]["state"] == "completed" and result["numerics"]["state"] != "failed"


def test_alone_without_network_home_or_rights(as_user: Command, quick: Path) -> None:
    isolated = ("--cleanenv", "--containall", "--no-home", "--net", "--network", "none")
    done = as_user("apptainer", "--quiet", "run", *isolated, quick, "--smoke", environment={"HOME": "/nonexistent"})
    result = answer(done)
    assert result["status"]["state"] == "completed"


def test_the_environment_of_a_shell_does_not_reach_the_interpreter(
    apptainer: Command, quick: Path, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    shell = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path), "PYTHONSTARTUP": "/nonexistent"}
    result = answer(apptainer("run", "--bind", tmp_path, quick, "--smoke", env=shell, cwd=tmp_path))
    assert result["status"]["state"] == "completed"


def test_questions_are_answered_without_a_run(apptainer: Command, image: Path, quick: Path, built: Site) -> None:
    cpu = built.dist / "cpu.sif"
    assert "resnet50" in apptainer("run", cpu, "--list").stdout
    assert json.loads(apptainer("run", image, "--describe", "--json").stdout)["workload"]["name"] == "resnet50"
    assert "--batch-size" in apptainer("run", image, "--help").stdout
    assert "apptainer run" in apptainer("run-help", image).stdout
    assert "org.sifmark.stand-in: true" in apptainer("inspect", image).stdout
    assert apptainer("inspect", "--list-apps", image).stdout.split() == list(cards())
    assert "correctness passed" in apptainer("test", quick).stderr


@pytest.mark.full
def test_every_workload_answers(apptainer: Command, built: Site) -> None:
    """In inference; docs/measure/run.md trains them."""
    words = ("--all", "--task", "inference", "--smoke", "--steps", "2", "--memory-limit", "2400")
    done = apptainer("run", built.dist / "cpu.sif", *words, check=False)
    assert done.returncode == 4  # not all fit
    assert_all_answered([json.loads(line) for line in done.stdout.splitlines()], "cpu", "inference")


def test_an_app_is_a_workload(apptainer: Command, built: Site) -> None:
    result = answer(apptainer("run", "--app", "image_compression", built.dist / "cpu.sif", "--smoke"))
    assert result["workload"]["name"] == "image_compression"


def test_a_file_without_workload_in_its_name_lists_them(apptainer: Command, built: Site) -> None:
    done = apptainer("run", built.dist / "cpu.sif", "--smoke", check=False)
    assert done.returncode == 2
    assert "resnet50" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("how", [os.link, os.symlink, shutil.copyfile])
@pytest.mark.parametrize("name", ["resnet50-cpu.sif", "resnet50-cpu_1.2.sif", "resnet50-renamed.sif"])
def test_the_name_decides_however_the_file_got_it(
    apptainer: Command, built: Site, how: Callable[[Path, Path], object], name: str
) -> None:
    folder = built.folder / f"{how.__name__}-{name}"
    folder.mkdir()
    how(built.dist / "cpu.sif", folder / name)
    described = json.loads(apptainer("run", folder / name, "--describe", "--json").stdout)
    assert described["workload"]["name"] == "resnet50"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--batch-size", "0"), "--batch-size"),
        (("--batch-size", "-4"), "--batch-size"),
        (("--batch-size", "many"), "--batch-size"),
        (("--data", "/no/such/folder"), "/no/such/folder"),
        (("--output", "/no/such/folder/result.json"), "/no/such/folder"),
        (("--steps", "3", "--warmup-steps", "3"), "warm"),
        (("resnet51",), "resnet50"),
    ],
)
def test_wrong_usage_is_refused_before_the_run(
    apptainer: Command, image: Path, options: tuple[str, ...], said: str
) -> None:
    done = apptainer("run", image, *options, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_precision_that_the_device_cannot_do(apptainer: Command, image: Path) -> None:
    done = apptainer("run", image, "--precision", "fp16", "--skip-numerics", check=False)
    assert done.returncode == 3
    assert answer(done)["status"]["state"] == "unsupported"


def test_an_output_file_that_may_not_be_written(as_user: Command, image: Path) -> None:
    done = as_user("apptainer", "--quiet", "run", image, "--smoke", "--output", "/etc/result.json", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "/etc" in done.stderr


def start(image: Path, *options: str) -> subprocess.Popen[str]:
    """A long run, past its first measured steps."""
    argv = [
        "apptainer",
        "--quiet",
        "run",
        *user_flags(),
        str(image),
        "--batch-size",
        "2",
        "--duration",
        "600",
        "--skip-numerics",
        *options,
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(process, "measuring step")  # a line of progress: there are timed steps by now
    return process


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.full)]
)
def test_a_signal_ends_in_a_valid_result_with_the_steps_so_far(image: Path, number: int, code: int) -> None:
    process = start(image)
    process.send_signal(number)
    output, _ = process.communicate()
    result = answer(subprocess.CompletedProcess([], 0, output))
    assert process.returncode == code
    assert result["status"]["state"] == "interrupted"
    assert result["steps"]["count"] > 0


@pytest.mark.full  # the gate has it without an image: inside/runs/test_faults.py; here a signal ends one
def test_a_killed_child_ends_in_a_valid_result(image: Path) -> None:
    process = start(image)
    children = [pid for pid in descendants(process.pid) if b"--child" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert children
    os.kill(children[0], signal.SIGKILL)
    output, _ = process.communicate()
    result = answer(subprocess.CompletedProcess([], 0, output))
    assert process.returncode == 4
    assert result["status"]["state"] == "crashed"
    assert result["steps"]["count"] > 0


def descendants(pid: int) -> list[int]:
    """All processes below one, nearest first."""
    pids = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            pids += [child, *descendants(child)]
    return pids
