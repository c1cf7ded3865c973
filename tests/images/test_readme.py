"""Every command in the README, executed: ours as they are typed in a clone, Apptainer's as an ordinary user."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from images.sites import NOBODY, Command, Site, answer, assert_all_answered, assert_same_tree, call, docker_alone

from sifmark.core import paths
from sifmark.core.settings import load_settings
from sifmark.engines.apptainer.sif import read_sif
from sifmark.engines.docker.engine import Docker
from sifmark.recipes.names import cards
from sifmark.results.load import problems_of

README = (paths.ROOT / "README.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()
]
# ci/test is what runs this test; running it here would never end.
BY_OTHERS = {"ci/test"}
# The full run executes the page as it is; the gate its commands on a smaller workload, and with fewer steps.
SMALLER = {
    "resnet50-cpu": "image_compression-cpu",
    "ci/start": "ci/start --steps 3 --warmup-steps 1 --batch-size 2",
}
# Builds of the whole image once more; the gate has them of the smallest, in test_recipes.py and test_reproduce.py.
FULL = {"apptainer build --notest plain.sif cpu.def", "inv image.reproduce cpu"}
VERIFIED = {"inv verify resnet50-cpu", "inv verify image_compression-cpu --engine docker"}  # whole in other tests, too
# As the page says: not all workloads fit.
EXIT_CODES = {"apptainer run dist/cpu.sif --all --smoke --steps 2 --memory-limit 4096 --output results/": 4}
# Results that the README's own commands write, for those that read them.
EXPECTED_RESULTS = (
    *("result.json", "result-bf16.json", "result-photographs.json", "result-shards.json", "result-run.json"),
    "result-shakespeare.json",
)
SONNET = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance, or nature's changing course untrimm'd;
"""


@pytest.fixture(scope="module")
def folder(built: Site) -> Iterator[Path]:
    """A folder like the clone, as commands see it, that an ordinary user may write to."""
    path = Path(tempfile.mkdtemp(prefix="sifmark-readme-"))
    for name in ("tasks.py", ".venv"):
        (path / name).symlink_to(paths.ROOT / name)
    shutil.copytree(built.dist, path / "dist", copy_function=os.link)
    photographs(path / "photographs")
    (path / "shakespeare.txt").write_text(SONNET)
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def photographs(folder: Path) -> None:
    """Two classes of photographs, those that scikit-image ships, found where ci/setup/inside installs it."""
    sources = sorted((paths.ROOT / ".venvs" / "torch_new").glob("lib/python*/site-packages/skimage/data"))
    if not sources:
        return  # the command that reads them is then skipped
    names = {"people": ["astronaut.png"], "things": ["coffee.png", "motorcycle_left.png", "rocket.jpg"]}
    for kind, files in names.items():
        (folder / kind).mkdir(parents=True)
        for name in files:
            for copy in range(3):
                shutil.copy(sources[0] / name, folder / kind / f"{copy}-{name}")


def as_user(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    environment = {**os.environ, "HOME": str(home), "USER": "nobody"}
    if load_settings().bases == "stand-in":
        environment["APPTAINER_NOHTTPS"] = "1"  # the stand-in's registry on the loopback address speaks no TLS
    return call(["bash", "-c", line], check=False, cwd=folder, env=environment, **identity)


def as_developer(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SIFMARK_DIST": str(folder / "dist")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    where = paths.ROOT if line.startswith("ci/") else folder
    return call(["bash", "-c", line], check=False, cwd=where, env=environment)


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) > 20
    assert set(COMMANDS) >= {*BY_OTHERS, *FULL, *VERIFIED}
    assert all(any(part in line for line in COMMANDS) for part in SMALLER)


LINES = [pytest.param(line, marks=[pytest.mark.full] * (line in FULL)) for line in COMMANDS if line not in BY_OTHERS]


def smaller(line: str) -> str:
    """What the gate runs in a line's place."""
    for part, other in SMALLER.items():
        line = line.replace(part, other)
    return line


@pytest.mark.parametrize("line", LINES)
def test_every_command_works_in_the_order_of_the_page(line: str, folder: Path, gate: bool) -> None:
    if "photographs" in line and not (folder / "photographs").is_dir():
        pytest.skip("no photographs: .venvs/torch_new is missing")
    if ("--engine docker" in line or "inv image.to-sif" in line) and Docker(load_settings()).version() is None:
        pytest.skip("no Docker Engine answers: ci/setup/docker")
    run = as_user if line.startswith("apptainer ") else as_developer
    with docker_alone() if "docker" in line or "to-sif" in line else nullcontext():
        done = run((smaller(line) + " --stages trust,smoke" * (line in VERIFIED)) if gate else line, folder)
    assert done.returncode == EXIT_CODES.get(line, 0), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("name", EXPECTED_RESULTS)
def test_what_the_commands_wrote_is_valid(name: str, folder: Path) -> None:
    if name in ("result-photographs.json", "result-shards.json") and not (folder / "photographs").is_dir():
        pytest.skip("no photographs: .venvs/torch_new is missing")
    assert problems_of(folder / name) == []


def test_all_workloads_did_their_first_task(folder: Path) -> None:
    """By the command with --all, the first of the page that writes into this folder."""
    results = [json.loads(path.read_text()) for path in (folder / "results").glob("*.json")]
    first: dict[str, dict[str, Any]] = {}
    for result in sorted(results, key=lambda result: result["started"]):
        first.setdefault(result["workload"]["name"], result)
    assert_all_answered(list(first.values()), "cpu")
    all_cards = cards()
    assert all(result["workload"]["task"] == all_cards[name]["tasks"][0] for name, result in first.items())


@pytest.mark.full
def test_the_plain_build_gives_the_same_file_tree(folder: Path, apptainer: Command, tmp_path: Path) -> None:
    fast, plain = folder / "dist" / "cpu.sif", folder / "plain.sif"
    assert_same_tree(fast, plain, tmp_path)
    labels = json.loads((tmp_path / "plain" / ".singularity.d" / "labels.json").read_text())
    ours = {key: value for key, value in read_sif(fast).labels().items() if "sifmark" in key}
    assert {key: labels[key] for key in ours} == ours
    plain.rename(folder / "resnet50-cpu.sif")
    assert answer(apptainer("run", folder / "resnet50-cpu.sif", "--smoke"))


def test_every_setting_in_the_readme_is_one(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "sifmark.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIFMARK_BASES")
    read = load_settings()
    document = tomllib.loads(block)
    assert read.mirrors == document["mirrors"]
    assert read.time_limit == document["time_limit"]
