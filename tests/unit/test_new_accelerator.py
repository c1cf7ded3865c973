"""An accelerator that nobody has heard of, added by files alone: no module of the host knows it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sifmark.core import paths

HARDWARE = """
schema_version = "1.0"
device = "npu"
aliases = ["loom2"]

[run]
docker = ["--cap-add=IPC_LOCK"]
devices = ["/dev/null"] # a device file that every host has

[selection]
variables = ["LOOM_VISIBLE_CARDS", "LOOM_CONFIG"]
paths = ["LOOM_CONFIG"]
share = "LOOM_VISIBLE_CARDS"

[pci]
vendor = "0xabcd"
classes = ["0x12"]

[flops]
fp32 = 1e13
"""
RENDER = "import json; from sifmark.recipes.golden import golden_texts; print(json.dumps(golden_texts('loom')))"
HOST = """
import json, sys
from pathlib import Path

from sifmark.core.settings import load_settings
from sifmark.doctor import cards, host
from sifmark.engines import open_engine
from sifmark.recipes.hardware import hardware_of
from sifmark.recipes.recipe import load_recipe

cards.PCI = Path(sys.argv[1])
settings, access = load_settings(), load_recipe("loom").access
print(json.dumps({
    "allowed": access.is_allowed(),
    "apptainer": open_engine(settings, "apptainer").device_flags(access),
    "docker": open_engine(settings, "docker").device_flags(access),
    "isolated": open_engine(settings, "apptainer").isolation_flags(access),
    "share": hardware_of(access).share,
    "cards": [check.detail for check in cards.check_host_devices("npu")],
    "devices": [check.detail for check in host.check_devices(settings)],
}))
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with one file for the hardware, one for a recipe, its lock, and the device's module."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("sifmark", "recipes", "schemas", "studies", "entrypoints"):
        shutil.copytree(paths.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(paths.ROOT / "pyproject.toml", folder)
    recipes, devices = folder / "recipes", folder / "entrypoints" / "devices" / "pytorch"
    (recipes / "hardware" / "loom.toml").write_text(HARDWARE)
    recipe = (recipes / "cpu.toml").read_text()
    recipe = recipe.replace('hardware = "cpu"', 'hardware = "loom"').replace("CPU, PyTorch", "Loom, PyTorch")
    (recipes / "loom.toml").write_text(recipe)
    shutil.copy(recipes / "locks" / "cpu-cp311-x86_64.txt", recipes / "locks" / "loom-cp311-x86_64.txt")
    shutil.copy(devices / "cpu.py", devices / "npu.py")
    return folder


def call(clone: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    argv = [sys.executable, *words]
    return subprocess.run(argv, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=False)


def answer(clone: Path, *words: str, **variables: str) -> Any:
    done = call(clone, *words, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_listed_and_rendered_as_any_other(clone: Path) -> None:
    rows = answer(clone, "-m", "sifmark", "list", "--format", "json")["recipes"]
    (row,) = [row for row in rows if row["name"] == "loom"]
    assert (row["device"], row["title"]) == ("npu", "Loom, PyTorch")
    rendered = answer(clone, "-c", RENDER)
    assert "org.sifmark.devices /dev/null" in rendered["loom.def"]
    assert 'org.sifmark.device="npu"' in rendered["loom.Dockerfile"]
    mistaken = call(clone, "-m", "sifmark", "build", "resnet50-loom2")
    assert "[unknown-name]" in mistaken.stderr and "resnet50-loom" in mistaken.stderr


def test_its_runs_are_planned_with_the_rates_of_its_file(clone: Path) -> None:
    words = ("-m", "sifmark", "study.plan", "quick", "--variant", "small", "--format", "json")
    seconds = {}
    for image in ("cpu", "loom"):
        groups = answer(clone, *words, "--system", f"here:{image}")["groups"]
        assert not sum(group["cannot_run"] for group in groups)
        (seconds[image],) = [group["seconds"] for group in groups if group["group"] == "resnet50-training"]
    assert seconds["loom"] < seconds["cpu"]
    file = clone / "recipes" / "hardware" / "loom.toml"
    file.write_text(HARDWARE.partition("[flops]")[0])  # without them it is planned too
    assert answer(clone, *words, "--system", "here:loom")["groups"]
    file.write_text(HARDWARE)


def test_a_run_gets_its_device_files_and_what_selects_among_them(clone: Path, tmp_path: Path) -> None:
    config, card = tmp_path / "loom.conf", tmp_path / "pci" / "0000:17:00.0"
    config.touch()
    card.mkdir(parents=True)
    for name, fact in {"vendor": "0xabcd", "class": "0x120000", "numa_node": "1"}.items():
        (card / name).write_text(fact)
    chosen = {"LOOM_VISIBLE_CARDS": "3", "LOOM_CONFIG": str(config)}
    output = answer(clone, "-c", HOST, str(tmp_path / "pci"), **chosen)
    assert output["allowed"] and output["share"] == "LOOM_VISIBLE_CARDS"
    assert output["apptainer"] == ["--bind", "/dev/null", "--bind", f"{config}:{config}:ro"]
    assert {"--device=/dev/null", "--cap-add=IPC_LOCK", "--env=LOOM_VISIBLE_CARDS"} <= set(output["docker"])
    assert f"--volume={config}:{config}:ro" in output["docker"]
    assert "LOOM_VISIBLE_CARDS=3" in output["isolated"]
    assert output["cards"] == ["1: 0000:17:00.0 on NUMA node 1"]
    assert "of recipe loom: /dev/null" in output["devices"]


def test_the_program_in_its_images_takes_it_for_a_device(clone: Path) -> None:
    words = ("entrypoints/main.py", "resnet50", "--device", "npu", "--describe", "--json")
    assert answer(clone, *words)["configuration"]["device"] == "npu"
