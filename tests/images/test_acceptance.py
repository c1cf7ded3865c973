"""A contract and a quick screening on a Slurm of two nodes, by a real image: what is accepted, refused and found."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documentation
import pytest
from documents import problems_of
from images.sites import Command, Site, call, set_up
from unit.keys import make_key

from sifmark.core import paths

CONTRACT = """
title   = "Two nodes"
nodes   = 2
repeats = 3
spread  = 0.02
allow   = ["busy", "unsteady", "stopped"]

[[clause]]
name   = "matmul"
run    = {{ workload = "matmul", largest_size = 256, steps = 4, warmup_steps = 1, threads = 1, idle_seconds = 0 }}
metric = "peak_flops"
value  = {value}
unit   = "GFLOP/s"
"""
SLOW = Path("/sys/fs/cgroup/cpu/sifmark-test-slow")  # of control groups of version 1
SECONDS = 900
# What the commands of pages for clusters name, and what this one has.
HERE = {
    "--nodes n[01-16] --image cuda --devices 4": "--nodes n[1-2] --image cpu",
    "--image cuda --fail --textfile /var/lib/node_exporter/sifmark.prom /shared/screenings": (
        "--image cpu --devices 1 --fail --textfile node.prom fleet"
    ),
}

pytestmark = pytest.mark.full


@pytest.fixture
def sifmark(built: Site, tmp_path: Path) -> Command:
    """Run a command in a folder of its own, on a cluster of two nodes."""
    environment = {**built.environment, "SLURM_CONF": set_up("slurm", "Slurm"), "PYTHONPATH": str(paths.ROOT)}

    def run(*words: str, before: tuple[str, ...] = (), check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [*before, sys.executable, "-m", "sifmark", *words]
        return call(argv, check=check, cwd=tmp_path, env=environment)

    return run


def of_page(page: str, start: str) -> list[str]:
    """Return the words of the one command of a page that begins so, with the names of this cluster."""
    commands = map(" ".join, documentation.own_commands(paths.CHECKOUT / "docs" / page))
    (command,) = {each for each in commands if each.startswith(start)}
    for theirs, ours in HERE.items():
        command = command.replace(theirs, ours)
    return command.split()


def wait_for_runs(sifmark: Command, study: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        totals = json.loads(sifmark("study.status", study, "--json").stdout)["totals"]
        if not totals["queued"] and not totals["running"]:
            assert totals["to do"] == totals["failed"] == 0, totals
            return
        assert time.monotonic() < deadline, totals
        time.sleep(2)


def test_a_contract_is_measured_on_two_nodes_and_accepted_or_refused(sifmark: Command, tmp_path: Path) -> None:
    file = tmp_path / "contract.toml"
    file.write_text(CONTRACT.format(value=0.001))
    key, public = make_key(tmp_path, "site")
    sifmark(*of_page("acceptance.md", "study.accept contract.toml --on slurm"))
    wait_for_runs(sifmark, *of_page("acceptance.md", "study.status contract-acceptance")[1:])
    accepted = sifmark(*of_page("acceptance.md", f"study.accept contract.toml --key {key.name}"), "--json")
    document = json.loads(accepted.stdout)
    assert document["verdict"] == "pass" and len(document["evidence"]) == 6
    assert [node["node"] for node in document["clauses"][0]["nodes"]] == ["n1", "n2"]
    assert sifmark("results.verify", "contract-acceptance/acceptance.json", "--key", public).returncode == 0
    file.write_text(CONTRACT.format(value=1e6))
    refused = sifmark("study.accept", "contract.toml", check=False)
    assert refused.returncode == 7 and "n1: peak_flops is 0.000" in refused.stdout
    assert "Not accepted" in (tmp_path / "contract-acceptance" / "index.html").read_text()
    results = list((tmp_path / "results" / "contract").glob("n?/*.json"))
    assert len(results) == 6 and all(problems_of(result) == [] for result in results)


@pytest.fixture
def slow() -> Iterator[Path]:
    """A control group whose processes get the twentieth part of a processor."""
    try:
        SLOW.mkdir(exist_ok=True)
        (SLOW / "cpu.cfs_period_us").write_text("100000")
        (SLOW / "cpu.cfs_quota_us").write_text("5000")
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield SLOW
    SLOW.rmdir()


def test_a_slow_node_is_found_within_three_minutes(sifmark: Command, slow: Path, tmp_path: Path) -> None:
    words = of_page("screening.md", "study.screen --quick --image cuda --fail --textfile")
    first = sifmark(*words, "--node", "n2", check=False)
    assert first.returncode == 8 and "0 earlier screenings" in first.stdout
    file = tmp_path / "fleet" / "n2.json"
    fill(file, json.loads(file.read_text()))
    into = ("srun", "-w", "n1", "-n1", "sh", "-c", f'echo $$ > {slow}/tasks; exec "$@"', "sh")
    began = time.monotonic()
    found = sifmark(*words, before=into, check=False)
    assert time.monotonic() - began < 200  # three minutes, and the start of Python in the same group
    assert found.returncode == 7 and found.stdout.startswith("n1: named: ")
    assert "scontrol update nodename=n1 state=drain" in found.stderr
    assert 'sifmark_screen_verdict{node="n1",verdict="named"} 1' in (tmp_path / "node.prom").read_text()
    state = call(["sinfo", "--noheader", "--node", "-o", "%N %T"], env=os.environ | {"SLURM_CONF": conf()})
    assert "drain" not in state.stdout  # nothing was changed


def conf() -> str:
    return call([paths.CHECKOUT / "ci" / "setup" / "slurm"]).stdout.strip()


def fill(file: Path, document: dict[str, Any]) -> None:
    """Put twenty screenings of a fleet in place of the only one: as that, within one percent."""
    chance = random.Random(1)
    (only,) = document["screenings"]
    for number in range(20):
        screening = json.loads(json.dumps(only))
        for test in screening["tests"]:
            for measure in test["measures"].values():
                measure["value"] *= 1 + chance.uniform(-0.01, 0.01)
        node = f"m{number}"
        text = json.dumps({"schema_version": "1.0", "node": node, "screenings": [screening]})
        file.with_name(f"{node}.json").write_text(text)
