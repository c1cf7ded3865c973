"""Studies on the real CPU image: killed at any moment, stopped, done by two at once, and what their status says."""

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from documents import problems_of
from images.sites import Site, make_site

STUDY = """
title = "Short runs"
questions = ["Is nothing done twice?"]
repeats = {repeats}

[[system]]
name = "here"
image = "cpu"

[[run]]
name = "sizes"
workload = "memory_copy"
largest_size = ["4K", "8K"]
meter = "none"
skip_numerics = true
"""


@pytest.fixture
def study(built: Site, tmp_path: Path) -> Site:
    """A site with the image and a study, `short.toml`, of four runs."""
    (tmp_path / "short.toml").write_text(STUDY.format(repeats=2))
    return make_site(tmp_path).using(SIFMARK_DIST=str(built.dist))


def documents(site: Site) -> dict[str, dict[str, Any]]:
    """The valid results by their names."""
    files = sorted((site.folder / "results" / "short" / "here").glob("*.json"))
    assert {file.name: problems_of(file) for file in files} == {file.name: [] for file in files}
    return {file.name: json.loads(file.read_text()) for file in files}


def completed(site: Site) -> dict[str, str]:
    """The IDs of completed results by their names."""
    return {name: each["id"] for name, each in documents(site).items() if each["status"]["state"] == "completed"}


def processes_of(site: Site) -> list[str]:
    """The processes that have to do with the site's folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(site.folder) in line and "short" in line]


def kill_and_resume(site: Site, times: int, longest: float) -> None:
    chance, kept = random.Random(36), dict[str, str]()
    for _ in range(times):
        process = site.start("study.run", "short.toml", until="run short")
        time.sleep(chance.uniform(0, longest))
        process.kill()
        process.communicate()
        now = completed(site)
        assert {name: now.get(name) for name in kept} == kept  # nothing that was completed is done again
        kept = now
    site.inv("study.run", "short.toml")
    now = completed(site)
    assert {name: now.get(name) for name in kept} == kept
    assert len(now) == len(documents(site)) == int(status(site)["totals"]["done"])
    assert processes_of(site) == []


def status(site: Site) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(site.inv("study.status", "short.toml", "--json").stdout)
    return answer


def test_a_study_that_is_killed_goes_on_where_it_was(study: Site) -> None:
    kill_and_resume(study, times=2, longest=6)
    assert len(completed(study)) == 4
    again = study.inv("study.run", "short.toml")
    assert "0 runs to do" in again.stderr and len(completed(study)) == 4


@pytest.mark.full
def test_twenty_runs_survive_ten_kills(study: Site) -> None:
    (study.folder / "short.toml").write_text(STUDY.format(repeats=10))
    kill_and_resume(study, times=10, longest=15)
    assert len(completed(study)) == 20


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_study_that_is_stopped_keeps_what_its_run_measured(study: Site, number: int, code: int) -> None:
    text = (
        STUDY.format(repeats=2)
        .replace("memory_copy", "lstm")
        .replace('largest_size = ["4K", "8K"]', "steps = 10_000\nbatch_size = 2\nwarmup_steps = 1")
    )
    (study.folder / "short.toml").write_text(text)
    process = study.start("study.run", "short.toml", until="run short")
    log = study.folder / "results" / "short" / "here" / "logs"
    while not any("measuring" in path.read_text() for path in log.glob("*.log")):
        time.sleep(0.2)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == code, errors
    (result,) = documents(study).values()
    assert result["status"]["state"] == "interrupted" and result["steps"]["count"] > 0
    assert {state: count for state, count in status(study)["totals"].items() if count} == {"to do": 2}


@pytest.mark.full
def test_two_at_once_share_the_work(study: Site) -> None:
    both = [study.start("study.run", "short.toml") for _ in range(2)]
    assert [process.communicate() and process.returncode for process in both] == [0, 0]
    assert len(completed(study)) == 4
    assert not list((study.folder / "results" / "short" / "here").glob(".earlier/*"))
