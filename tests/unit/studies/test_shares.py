"""Shares of a machine: devices and processors that runs side by side have for themselves."""

import os
from pathlib import Path

import pytest
from unit.fake_studies import ScriptEngine
from unit.fakes import FakeEngine
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.recipes.labels import DEVICES
from sifmark.studies.running.shares import Machine, Shares, machine_for

EIGHT = tuple(range(8))
GPUS = Machine(EIGHT, ("0", "1", "2", "3"), "CUDA_VISIBLE_DEVICES", jobs=4)


def test_runs_have_devices_and_processors_of_their_own(tmp_path: Path) -> None:
    shares = Shares(tmp_path)
    first, second = shares.take(GPUS, (), 1), shares.take(GPUS, (), 2)
    assert first and second
    assert first.environment == {"CUDA_VISIBLE_DEVICES": "0"} and first.cores == (0, 1)
    assert second.environment == {"CUDA_VISIBLE_DEVICES": "1,2"} and second.cores == (2, 3, 4, 5)
    assert shares.take(GPUS, (), 2) is None
    first.release()
    third = shares.take(GPUS, (), 2)
    assert third and third.environment == {"CUDA_VISIBLE_DEVICES": "0,3"} and third.cores == (0, 1, 6, 7)


def test_another_process_s_share_is_not_given_away(tmp_path: Path) -> None:
    share = Shares(tmp_path).take(Machine(EIGHT), (), 1)
    assert share and share.cores == ()  # all of them: nothing is bound
    other = Shares(tmp_path)
    assert other.take(Machine(EIGHT), (), 1) is None
    share.release()
    assert other.take(Machine(EIGHT), (), 1)


def test_who_waits_is_next(tmp_path: Path) -> None:
    first, second = Shares(tmp_path), Shares(tmp_path)
    share = first.take(Machine(EIGHT), (), 1)
    assert share and second.take(Machine(EIGHT), (), 1) is None
    share.release()
    assert first.take(Machine(EIGHT), (), 1) is None
    again = second.take(Machine(EIGHT), (), 1)
    assert again and first.take(Machine(EIGHT), (), 1) is None
    again.release()
    first.leave()
    assert second.take(Machine(EIGHT), (), 1)


def test_a_run_gets_the_threads_that_it_asks_for(tmp_path: Path) -> None:
    shares = Shares(tmp_path)
    machine = Machine(EIGHT, jobs=4)
    share = shares.take(machine, ("resnet50", "--threads", "3"), 1)
    assert share and share.cores == (0, 1, 2)
    plain = shares.take(machine, (), 1)
    assert plain and plain.cores == (3, 4)


def test_what_a_scheduler_gave_is_divided(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(EIGHT))
    machine = machine_for(gpu_engine(site), "fake:cuda", None, 0)
    assert machine == Machine(EIGHT, ("GPU-a", "GPU-b"), "CUDA_VISIBLE_DEVICES", 2)


@pytest.mark.parametrize(
    ("files", "variable"),
    [
        ("/dev/nvidia?", "CUDA_VISIBLE_DEVICES"),
        ("/dev/kfd,/dev/dri", "ROCR_VISIBLE_DEVICES"),
        ("/dev/dri", "ZE_AFFINITY_MASK"),
    ],
)
def test_devices_are_chosen_as_their_vendor_does(
    site: Settings, monkeypatch: pytest.MonkeyPatch, files: str, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(EIGHT))
    machine = machine_for(gpu_engine(site, files), "fake:cuda", 4, 0)
    assert (machine.variable, machine.devices, machine.jobs) == (variable, ("0", "1", "2", "3"), 4)


def test_a_cpu_image_has_the_machine_to_itself_unless_told_otherwise(site: Settings) -> None:
    engine = ScriptEngine(site)
    engine.add("cpu")
    assert machine_for(engine, "fake:cpu", None, 0).jobs == 1


def test_more_at_once_is_refused_where_they_would_disturb_each_other(site: Settings) -> None:
    engine = FakeEngine(site)
    engine.add("cpu")
    for shared, address, devices in ((engine, "fake:cpu", None), (gpu_engine(site, "/dev/ipu*"), "fake:cuda", 4)):
        with refused(UsageError, "invalid-option"):
            machine_for(shared, address, devices, 2)
    assert machine_for(engine, "fake:cpu", None, 0).jobs == 1


def gpu_engine(site: Settings, files: str = "/dev/nvidia?") -> ScriptEngine:
    engine = ScriptEngine(site)
    engine.add("cuda", labels={DEVICES: files, "org.sifmark.recipe": "another"})
    return engine
