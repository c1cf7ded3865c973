"""Many recipes at once, for real: planned, built side by side, killed, damaged, and nothing to do."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from images.sites import Site, call, copy_project, outcomes

from sifmark.core import paths
from sifmark.core.settings import load_settings


@pytest.mark.full  # the gate has this of build.batch, without images
def test_a_failure_is_told_and_stops_no_other(cold: Site) -> None:
    copy = copy_project(cold.folder / "clone")
    lock = copy / "recipes" / "locks" / "cuda-cp311-x86_64.txt"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join(line[:-4] + "0000" if line.startswith("attrs==") else line for line in lines))
    (copy / "recipes" / "xpu.toml").write_text("title = 7")
    for path in (copy / "recipes").glob("*.toml"):
        path.unlink() if path.stem not in ("cuda", "ipu", "xpu") else None
    clone = cold.using(PYTHONPATH=str(copy))
    done = clone.inv("build", "image_compression-*", "--json", check=False)
    cuda, ipu, xpu = (outcomes(done)[recipe] for recipe in ("cuda", "ipu", "xpu"))
    assert done.returncode == 1 and "not built: cuda, xpu" in done.stderr
    assert (cuda["state"], xpu["state"], ipu["state"]) == ("failed", "failed", "built")
    assert "hash" in cuda["reason"].lower() and "xpu.toml" in xpu["reason"]
    assert (clone.dist / "ipu.sif").is_file() and not (clone.dist / "cuda.sif").exists()


def test_a_damaged_stage_is_found_by_its_hash_and_made_again(cold: Site) -> None:
    cold.inv("build", "ipu")
    (stage,) = (cold.folder / "cache" / "bases-with-wheels").glob("[!.]*")
    file = stage / "content" / "root.squashfs"
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 1]))
    done = cold.inv("build", "ipu", "--force")
    assert f"{stage} is damaged" in done.stderr and "append the wheels" in done.stderr
    cold.inv("verify", "image_compression-ipu")


def test_what_was_longest_unused_makes_room(cold: Site) -> None:
    (cold.folder / "sifmark.toml").write_text("cache_limit = 0.000001\n")
    settings = str(cold.folder / "sifmark.toml")
    for name in ("wheels", "layers"):  # shared with others: not theirs to lose
        (cold.folder / "cache" / name).unlink()
        shutil.copytree(load_settings().cache / name, cold.folder / "cache" / name, ignore=_but_ipu)
    assert "cache over its limit" in cold.inv("build", "ipu", SIFMARK_SETTINGS=settings).stderr
    assert not list((cold.folder / "cache").glob("bases-with-wheels/[!.]*"))
    cold.inv("verify", "image_compression-ipu")


def _but_ipu(folder: str, names: list[str]) -> list[str]:
    """Nothing but what belongs to the Poplar stand-in's wheels is worth copying."""
    wanted = {line.split("sha256:")[1] for line in (paths.LOCKS / "ipu-cp38-x86_64.txt").read_text().splitlines()
              if "sha256:" in line}  # fmt: skip
    return [name for name in names if Path(folder).name in ("wheels", "layers") and name not in wanted]


@pytest.mark.full
@pytest.mark.parametrize("moment", range(2))
def test_killed_at_a_random_moment_then_built_and_verified(cold: Site, moment: int) -> None:
    """Three recipes, two at once. In test_build.py a build is killed in each of its parts."""
    seconds = random.Random(moment).uniform(0.5, 12)
    with cold.start("build", "image_compression-ipu*", "--jobs", "2") as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
    cold.inv("build", "image_compression-ipu*", "--jobs", "2")
    assert [path for path in cold.folder.rglob(".*.partial-*") if path.exists()] == []
    (stages,) = json.loads(cold.inv("verify", "image_compression-ipu", "--json").stdout).values()
    assert {verdict["outcome"] for verdict in stages} <= {"passed", "skipped"}


@pytest.mark.full
def test_two_catalogue_builds_at_once(cold: Site) -> None:
    both = [cold.start("build", "image_compression-[ic]*", "--jobs", "2", "--json") for _ in range(2)]
    said = [json.loads(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    states = {outcome["state"] for document in said for outcome in document}
    assert states <= {"built", "up to date", "skipped"}
    assert len(list((cold.folder / "cache" / "bases").glob("[!.]*"))) == len(
        {outcome["digest"] for outcome in said[0] if outcome["digest"] and outcome["recipe"] != "cpu_tf"}
    ), "each base is converted once, and cpu_tf shares cpu's"


def test_terminated_it_stops_what_it_started(cold: Site) -> None:
    with cold.start("build", "image_compression-*", "--jobs", "2", until="convert the base") as process:
        process.terminate()
        process.communicate()
    assert process.returncode == 143
    assert not list(cold.dist.glob("*.sif"))
    left = call(["pgrep", "-f", str(cold.folder)], check=False).stdout.split()
    assert left == []
