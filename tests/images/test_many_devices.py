"""One run by several tasks of each launcher: the commands of the page, with the image, on two nodes of Slurm."""

import json
import os
import subprocess
from pathlib import Path

import documentation
import pytest
from documentation import ROOT
from images.sites import Command, Site, set_up

from sifmark.core import paths

PAGE = ROOT / "docs" / "many-devices.md"
TORCH = str(paths.CHECKOUT / ".venvs" / "torch_new" / "bin" / "python")
LAUNCHERS = ("srun", "mpirun", "torchrun")
# As root, Apptainer and mpirun want to be asked; a node has one processor here, and mpirun counts cores.
AS_ROOT = {"APPTAINER_USERNS": "true", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CROWDED = {"OMPI_MCA_rmaps_base_oversubscribe": "1"}


def lines() -> list[str]:
    """The commands with a launcher and an image of this machine, each after what its block exports before."""
    written = [(block, line) for block in documentation.blocks(PAGE) for line in block.lines]
    return [
        "\n".join([*(other for other in block.lines if other.startswith("export ")), line])
        for block, line in written
        if line.split(" ")[0] in LAUNCHERS and "dist/" in line
    ]


def command_of(line: str) -> list[str]:
    return line.splitlines()[-1].split()


@pytest.fixture(scope="module")
def cluster() -> dict[str, str]:
    """Variables with which the launchers start tasks here."""
    where = {"SLURM_CONF": set_up("slurm", "Slurm")}
    set_up("openmpi", "Open MPI")
    return {**AS_ROOT, **CROWDED, **where}


def test_every_launcher_has_an_example() -> None:
    assert {command_of(line)[0] for line in lines()} == set(LAUNCHERS)


@pytest.mark.full
@pytest.mark.parametrize("line", lines(), ids=lambda line: " ".join(command_of(line)[:4]))
def test_the_tasks_of_a_launcher_write_one_document(
    line: str, built: Site, cluster: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "dist").symlink_to(built.dist)
    script = line.replace("torchrun", f"{TORCH} -m torch.distributed.run")  # which is torchrun
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={**os.environ, **cluster}, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stranger" not in done.stderr
    (document,) = [json.loads(path.read_text()) for path in (tmp_path / "results").iterdir()]
    assert document["status"]["state"] == "completed", document["status"]
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
    assert (document["accelerator"]["count"], document["transport"]["backend"]) == (2, "gloo")


def test_the_image_divides_a_model(apptainer: Command, built: Site) -> None:
    """The check before the run compares two ranks with one."""
    words = ("--strategy", "zero3", "--replicas", "2", "--batch-size", "4", "--steps", "3", "--meter", "none")
    document = json.loads(apptainer("run", built.dist / "lstm-cpu.sif", *words).stdout)
    assert (document["status"]["state"], document["numerics"]["state"]) == ("completed", "passed")
    assert "zero3 by fully_shard" in document["accelerator"]["execution"]
    assert document["accelerator"]["mesh"] == {"pipeline": 1, "replicate": 1, "shard": 2, "tensor": 1}
